#include "server/rpc/transport/listener.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/rpc/transport/tcp_user.h"

namespace octavo::rpc {
namespace {

constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kLook(
    100);  // how often it checks descriptors, closed connections and the stop flag
constexpr std::chrono::seconds kShort(30);  // longer than gRPC waits for the first bytes

int PortOf(const UniqueFd& fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

absl::Status CannotListen(const char* key, const std::string& address, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat(key, ": cannot listen on ", address, ": ", why));
}

std::string WhyNot(int error) {
  return error == EADDRINUSE ? "another program uses it; allowed is a free port, or 0 for any"
                             : std::strerror(error);
}

ino_t InodeOf(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// Nothing if the peer has gone.
std::optional<TcpEnd> PeerOf(int fd) {
  sockaddr_storage there{};
  socklen_t size = sizeof there;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return std::nullopt;
  return TcpEnd::Of(there);
}

// "192.0.2.7"; of IPv6 the network of 64 bits, in which a host has as many addresses as it likes.
std::string HostOf(TcpEnd end) {
  if (!end.version4()) std::fill(end.address.begin() + 8, end.address.end(), uint8_t{0});
  end.port = 0;
  const std::string text = end.text();
  return text.substr(0, text.rfind(':'));
}

// What connections may take, in descriptors: two each. Part of it is for the Unix socket alone.
struct Room {
  int64_t all = 0, for_socket = 0;
};

Room RoomFor(int spare) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, int64_t{1} << 30));
  const int64_t all = most - (spare > 0 ? spare : std::min<int64_t>(most / 4, 1024));
  return {.all = all, .for_socket = std::clamp<int64_t>(all / 8, 2, 256)};
}

// Open descriptors of the process; nothing if they cannot be counted, for want of a descriptor.
int64_t OpenDescriptors(int64_t otherwise) {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return otherwise;
  int64_t count = -3;  // does not count ".", ".." and the folder's own descriptor
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

Listener::~Listener() { Stop(); }

absl::Status Listener::AddTcp(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return InvalidField("listen.tcp", absl::StrCat("is '", address, "'; allowed host:port"));
  std::string host = address.substr(0, colon), port = address.substr(colon + 1);
  const std::string shown = host;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]"))
    host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &wanted, &found);
      error != 0) {
    return CannotListen("listen.tcp", address, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  int bound = 0, first_error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    UniqueFd fd(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_storage to{};
    std::memcpy(&to, at->ai_addr, at->ai_addrlen);
    const int one = 1, zero = 0;
    if (at->ai_family == AF_INET6) {
      // "[::]" means all addresses of both kinds, unless the other kind has a socket of its own.
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, found->ai_next == nullptr ? &zero : &one,
                   sizeof one);
      if (bound != 0)
        reinterpret_cast<sockaddr_in6&>(to).sin6_port = htons(static_cast<uint16_t>(bound));
    } else if (bound != 0) {
      reinterpret_cast<sockaddr_in&>(to).sin_port = htons(static_cast<uint16_t>(bound));
    }
    // A restarted server does not wait for connections of the one before; two servers never share a
    // port (no SO_REUSEPORT).
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&to), at->ai_addrlen) != 0 ||
        ::listen(fd.get(), kBacklog) != 0) {
      if (first_error == 0) first_error = errno;
      // A host may lack one of the two families; a port that is taken in either family is an error.
      if (errno == EADDRINUSE || errno == EACCES)
        return CannotListen("listen.tcp", address, WhyNot(errno));
      continue;
    }
    if (bound == 0) bound = PortOf(fd);
    doors_.push_back({.fd = std::move(fd), .is_unix = false});
  }
  if (bound == 0) return CannotListen("listen.tcp", address, WhyNot(first_error));
  addresses_.push_back(absl::StrCat(shown, ":", bound));
  return absl::OkStatus();
}

absl::Status Listener::AddUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return InvalidField("listen.unix",
                        absl::StrCat("'", path, "' has ", path.size(), " characters; allowed ",
                                     sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  {
    UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), at, sizeof address) == 0)
      return absl::AlreadyExistsError(
          absl::StrCat("listen.unix: another server answers on ", path));
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) {
      if (!S_ISSOCK(info.st_mode))
        return absl::AlreadyExistsError(
            absl::StrCat("listen.unix: ", path, " is there and no socket"));
      ::unlink(path.c_str());
    }
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(fd.get(), at, sizeof address) != 0 || ::chmod(path.c_str(), 0660) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return CannotListen("listen.unix", path, std::strerror(errno));
  }
  unix_path_ = path;
  doors_.push_back({.fd = std::move(fd), .is_unix = true});
  addresses_.push_back(absl::StrCat("unix:", path));
  return absl::OkStatus();
}

void Listener::Start(std::function<void(UniqueFd, bool)> hand_over) {
  hand_over_ = std::move(hand_over);
  thread_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "oct-listen");
    Run(stop);
  });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  doors_.clear();
  if (!unix_path_.empty()) ::unlink(std::exchange(unix_path_, "").c_str());
}

void Listener::CutAll() {
  MutexLock lock(mutex_);
  for (const auto& connection : connections_) ::shutdown(connection.duplicate.get(), SHUT_RDWR);
  connections_.clear();
}

void Listener::Cut(const std::string& peer) {
  int theirs = -1;
  if (!absl::StartsWith(peer, "fd:") || !absl::SimpleAtoi(peer.substr(3), &theirs)) return;
  MutexLock lock(mutex_);
  for (const auto& connection : connections_) {
    if (connection.theirs == theirs && InodeOf(theirs) == connection.inode)
      ::shutdown(connection.duplicate.get(), SHUT_RDWR);
  }
}

int64_t Listener::CutTcpBefore(int64_t generation) {
  int64_t cut = 0;
  MutexLock lock(mutex_);
  Sweep();
  for (const auto& connection : connections_) {
    if (connection.is_unix || connection.generation >= generation) continue;
    ::shutdown(connection.duplicate.get(), SHUT_RDWR);
    ++cut;
  }
  return cut;
}

Listener::Counts Listener::Count() {
  MutexLock lock(mutex_);
  return {.open = static_cast<int64_t>(connections_.size()),
          .accepted = accepted_,
          .pauses = pauses_,
          .refused = refused_};
}

void Listener::Run(const std::stop_token& stop) {
  std::vector<pollfd> wait;
  for (const Door& door : doors_)
    wait.push_back({.fd = door.fd.get(), .events = POLLIN, .revents = 0});
  std::chrono::steady_clock::time_point next_look;
  Allowance allowance;
  bool paused = false;
  const auto left = [&](const Door& door) -> int64_t& {
    return door.is_unix ? allowance.by_socket : allowance.tcp;
  };
  while (!stop.stop_requested()) {
    if (const auto now = std::chrono::steady_clock::now();
        allowance.tcp <= 0 || allowance.by_socket <= 0 || now >= next_look) {
      allowance = Allow();
      next_look = now + kLook;
      if (allowance.tcp <= 0 && !paused) {
        Log(LogLevel::kWarning,
            "the server accepts no more connections for now: it is short of file descriptors",
            {{"open", Count().open}, {"unix_socket", allowance.by_socket > 0}});
        MutexLock lock(mutex_);
        ++pauses_;
      }
      paused = allowance.tcp <= 0;
    }
    // A door without an allowance is not watched: its connections wait in the kernel's queue, and
    // the timer runs.
    for (size_t i = 0; i < wait.size(); ++i)
      wait[i].fd = left(doors_[i]) > 0 ? doors_[i].fd.get() : -1;
    const int ready = ::poll(wait.data(), wait.size(), static_cast<int>(kLook.count()));
    for (size_t i = 0; ready > 0 && i < wait.size(); ++i) {
      if ((wait[i].revents & POLLIN) == 0 || left(doors_[i]) <= 0) continue;
      Accept(doors_[i]);
      --left(doors_[i]);
    }
  }
}

void Listener::Accept(const Door& door) {
  UniqueFd connection(::accept4(door.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection) return;  // the connection has closed meanwhile
  if (!door.is_unix) {
    const int one = 1;
    const auto timeout_ms = static_cast<unsigned>(stalled_seconds_ * 1000);
    ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  }
  NotedUnixPeer unix_peer;
  if (door.is_unix) {
    struct stat file {};
    const bool known = ::lstat(unix_path_.c_str(), &file) == 0;
    std::tie(connection, unix_peer) = NotedUnixPeer::Note(
        std::move(connection), known ? std::optional<gid_t>(file.st_gid) : std::nullopt);
    if (!connection) return;  // a caller whom nobody knows
  }
  UniqueFd duplicate(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  // other threads took the descriptors meanwhile: refuse a connection that could not be cut later
  if (!duplicate) return;
  NotedPeer peer(connection.get());
  const auto there = door.is_unix ? std::nullopt : PeerOf(connection.get());
  std::string address = short_lived_ == nullptr || !there.has_value() ? "" : there->text();
  std::string host = there.has_value() && !there->loopback() ? HostOf(*there) : "";
  // Read before gRPC asks for certificates, so that it is never that of a later set.
  const int64_t generation = generation_;
  {
    MutexLock lock(mutex_);
    if (HasEnough(host)) return;
    ++accepted_;
    connections_.push_back({.theirs = connection.get(),
                            .inode = InodeOf(connection.get()),
                            .duplicate = std::move(duplicate),
                            .is_unix = door.is_unix,
                            .began = std::chrono::steady_clock::now(),
                            .generation = generation,
                            .address = std::move(address),
                            .host = std::move(host),
                            .peer = std::move(peer),
                            .unix_peer = std::move(unix_peer)});
  }
  hand_over_(std::move(connection), door.is_unix);
}

void Listener::Sweep() {
  std::erase_if(connections_, [&](const Connection& connection) {
    if (InodeOf(connection.theirs) == connection.inode) return false;
    if (!connection.address.empty() && std::chrono::steady_clock::now() - connection.began < kShort)
      short_lived_(connection.address);
    return true;
  });
}

bool Listener::HasEnough(const std::string& host) {
  if (host.empty()) return false;
  const Room room = RoomFor(spare_);
  const int64_t most = std::max<int64_t>(1, (room.all - room.for_socket) / 4);
  const int64_t has = std::count_if(connections_.begin(), connections_.end(),
                                    [&](const Connection& other) { return other.host == host; });
  if (has < most) return false;
  ++refused_;
  if (std::exchange(full_host_, host) != host) {
    Log(LogLevel::kWarning,
        "the server refuses further connections of a host: it has half of those that TCP may have",
        {{"host", host}, {"connections", has}});
  }
  return true;
}

Listener::Allowance Listener::Allow() {
  {
    MutexLock lock(mutex_);
    Sweep();
  }
  const Room room = RoomFor(spare_);
  const int64_t free = room.all - OpenDescriptors(room.all);
  // Each connection takes two; other threads may take some before the next check.
  const auto of = [](int64_t descriptors) {
    return descriptors < 2 ? 0 : std::max<int64_t>(1, descriptors / 4);
  };
  return {.tcp = of(free - room.for_socket), .by_socket = of(free)};
}

}  // namespace octavo::rpc
