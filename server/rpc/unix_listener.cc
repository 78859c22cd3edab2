#include "server/rpc/unix_listener.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_posix.h"

namespace octavo::rpc {

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Open(const std::string& path, grpc::Server* server) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen.unix: '", path, "' has ", path.size(), " characters; allowed ", sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  {
    UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), at, sizeof address) == 0) return absl::AlreadyExistsError(absl::StrCat("another server answers on ", path));
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) {
      if (!S_ISSOCK(info.st_mode)) return absl::AlreadyExistsError(absl::StrCat(path, " is there and no socket"));
      ::unlink(path.c_str());
    }
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(fd.get(), at, sizeof address) != 0 || ::chmod(path.c_str(), 0660) != 0 || ::listen(fd.get(), 128) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<UnixListener>(new UnixListener(path, std::move(fd), server));
}

UnixListener::UnixListener(std::string path, UniqueFd fd, grpc::Server* server)
    : path_(std::move(path)), fd_(std::move(fd)), server_(server), thread_([this](std::stop_token stop) {
        pthread_setname_np(pthread_self(), "oct-unix");
        Run(stop);
      }) {}

UnixListener::~UnixListener() { Stop(); }

void UnixListener::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) {
    thread_.join();
    ::unlink(path_.c_str());
  }
}

void UnixListener::CutAll() {
  MutexLock lock(mutex_);
  for (const auto& connection : connections_) ::shutdown(connection.get(), SHUT_RDWR);
  connections_.clear();
}

void UnixListener::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, 100);
    UniqueFd connection(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    {
      // Forget those whose peer has gone.
      MutexLock lock(mutex_);
      std::erase_if(connections_, [](const UniqueFd& fd) {
        char byte;
        return ::recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
      });
      if (!connection) continue;
      connections_.emplace_back(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
    }
    grpc::AddInsecureChannelFromFd(server_, connection.release());
  }
}

}  // namespace octavo::rpc
