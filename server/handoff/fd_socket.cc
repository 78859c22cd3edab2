#include "server/handoff/fd_socket.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::handoff {
namespace {

constexpr int64_t kRememberNs = int64_t{600} * 1'000'000'000;  // why a ticket is no longer valid
constexpr size_t kMostRemembered = 16384;
constexpr int64_t kBetweenLooksNs = int64_t{500} * 1'000'000;

absl::Status Misused(const std::string& what) {
  return Refusal(absl::StatusCode::kInvalidArgument, Reason::kProtocol, what);
}

// What a connection is told that the server does not take, or no longer.
v1::ServerMessage ConnectionRefused(const absl::Status& status) {
  v1::ServerMessage message;
  *message.mutable_refused() = RefusedOf(status);
  message.mutable_refused()->mutable_versions()->set_oldest(kOldestVersion);
  message.mutable_refused()->mutable_versions()->set_newest(kNewestVersion);
  return message;
}

// Ends both directions, and takes what the client has sent: a client of a socket that is closed
// with unread packets gets ECONNRESET before the last message to it. The close of a descriptor that
// it has sent may wait, in the bin.
void ShutDown(const UniqueFd& fd, DescriptorBin& bin) {
  ::shutdown(fd.get(), SHUT_RDWR);
  base::GuardedTurn("what a client has sent last is not taken", [&] {
    for (;;) {
      auto packet = ReceivePacket(fd.get(), {.most = 0, .free = !bin.full()});
      if (!packet.has_value() || packet->end) return;
      bin.Close(std::move(packet->descriptors));
    }
  });
}

// Called once for a grant: it must not be lost because there is no memory for what follows.
void EndGrant(Grant& grant, GrantEnd why) noexcept {
  base::GuardedTurn("the end of a grant is not told in full", [&] { grant.Ended(why); });
}

}  // namespace

std::string RandomHex128() {
  unsigned char bytes[16];
  for (size_t got = 0; got < sizeof bytes;) {
    const ssize_t n = ::getrandom(bytes + got, sizeof bytes - got, 0);
    if (n > 0) got += static_cast<size_t>(n);
  }
  std::string hex;
  for (const unsigned char byte : bytes) absl::StrAppend(&hex, absl::Hex(byte, absl::kZeroPad2));
  return hex;
}

absl::StatusOr<Answer> Grant::Open(const Peer&, const v1::Present&, std::shared_ptr<Link>) {
  return Misused("this grant takes a descriptor");
}

absl::StatusOr<Answer> Grant::OpenWith(const UniqueFd&, const Peer&, const v1::Present&,
                                       std::shared_ptr<Link>) {
  return Misused("this grant takes no descriptor");
}

absl::StatusOr<Answer> Grant::Message(const v1::ClientMessage&) {
  return Misused("this grant takes no messages but End");
}

/// One client. Used by the socket's thread, except for Send, Cut and HasGone.
class FdSocket::Connection {
 public:
  Connection(UniqueFd fd, Peer who, int64_t now_ns)
      : peer(who), since_ns(now_ns), fd_(std::move(fd)) {}
  bool Send(const v1::ServerMessage& message, int descriptor) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    if (SendPacket(fd_.get(), message, descriptor)) return true;
    if (errno == ETOOMANYREFS) TellNoDescriptors(message);
    CutLocked();  // the client has disconnected or does not read, so it would miss this message
    return false;
  }
  void Cut() {
    MutexLock lock(mutex_);
    if (!closed_) CutLocked();
  }
  bool HasGone() {
    MutexLock lock(mutex_);
    pollfd end{.fd = fd_.get(), .events = POLLRDHUP, .revents = 0};
    return closed_ || ::poll(&end, 1, 0) > 0;
  }
  /// Remaining references to the connection must not keep its descriptor open.
  UniqueFd Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    return std::move(fd_);
  }
  std::optional<Packet> Receive(bool room_for_descriptors) {
    const size_t most = TakesDescriptor(purpose) ? 1 : 0;
    return ReceivePacket(fd_.get(), {.most = most, .free = room_for_descriptors});
  }

  const Peer peer;
  int64_t since_ns;                               // without a grant
  v1::Purpose purpose = v1::PURPOSE_UNSPECIFIED;  // until the client has said Hello
  std::map<uint64_t, std::shared_ptr<Grant>> grants;
  std::map<uint64_t, Holder> holders;  // of the grants

 private:
  // The kernel lets a user have so many descriptors on their way as its processes may open; clients
  // that do not read them keep them there.
  void TellNoDescriptors(const v1::ServerMessage& unsent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::ServerMessage message;
    message.set_request(unsent.request());
    message.set_grant(unsent.grant());
    *message.mutable_refused() = RefusedOf(
        Refusal(absl::StatusCode::kResourceExhausted, Reason::kNoDescriptors,
                "the server cannot send a descriptor: too many are on their way to clients that do "
                "not read them; try again later"));
    (void)SendPacket(fd_.get(), message);
  }
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    closed_ = true;
    ::shutdown(fd_.get(), SHUT_RDWR);  // the thread then sees the end
  }
  UniqueFd fd_;  // only the thread reads from it; Send and Cut check closed_ first
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

class FdSocket::GrantLink final : public Link {
 public:
  GrantLink(std::shared_ptr<Connection> connection, uint64_t id)
      : connection_(std::move(connection)), id_(id) {}
  bool Send(v1::ServerMessage message, int descriptor) override {
    message.set_grant(id_);
    return connection_->Send(message, descriptor);
  }
  void Cut() override { connection_->Cut(); }
  bool HasGone() override { return connection_->HasGone(); }

 private:
  const std::shared_ptr<Connection> connection_;
  const uint64_t id_;
};

namespace {

size_t MostConnections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return FdSocket::kMostConnections;
  return std::clamp<rlim_t>(limit.rlim_cur / 8, 8, FdSocket::kMostConnections);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FdSocket>> FdSocket::Open(FdSocketConfig config,
                                                         const Clock* clock) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = config.path;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return InvalidField("handoff.unix",
                        absl::StrCat("'", path, "' has ", path.size(), " characters; allowed 1 to ",
                                     sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  {
    const UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), at, sizeof address) == 0) {
      return absl::AlreadyExistsError(
          absl::StrCat("handoff.unix: another server answers on ", path));
    }
    const bool other_kind = errno == EPROTOTYPE;  // another server's stream socket
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) {
      if (!S_ISSOCK(info.st_mode) || other_kind) {
        return absl::AlreadyExistsError(
            absl::StrCat("handoff.unix: ", path, " is there and no socket of this kind"));
      }
      ::unlink(path.c_str());
    }
  }
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Set the mode before the file exists, so that it never grants more; set it again afterwards, in
  // case the umask removed bits.
  if (!listener || ::fchmod(listener.get(), config.mode) != 0 ||
      ::bind(listener.get(), at, sizeof address) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("handoff.unix: cannot listen on ", path, ": ", std::strerror(errno)));
  }
  if (!config.group.empty()) {
    const group* entry = ::getgrnam(config.group.c_str());
    if (entry == nullptr || ::chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) {
      const std::string why = entry == nullptr ? "there is no such group" : std::strerror(errno);
      ::unlink(path.c_str());
      return absl::FailedPreconditionError(
          absl::StrCat("handoff.group: cannot give ", path, " to ", config.group, ": ", why));
    }
  }
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  bool fine = ::chmod(path.c_str(), config.mode) == 0 && ::listen(listener.get(), 128) == 0 &&
              epoll && wake;
  for (const int fd : {listener.get(), wake.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    fine = fine && ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  if (!fine) {
    const std::string why = std::strerror(errno);
    ::unlink(path.c_str());
    return absl::FailedPreconditionError(
        absl::StrCat("handoff.unix: cannot listen on ", path, ": ", why));
  }
  return std::unique_ptr<FdSocket>(new FdSocket(std::move(config), clock, std::move(listener),
                                                std::move(epoll), std::move(wake)));
}

FdSocket::FdSocket(FdSocketConfig config, const Clock* clock, UniqueFd listener, UniqueFd epoll,
                   UniqueFd wake)
    : config_(std::move(config)),
      clock_(clock),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      most_connections_(MostConnections()),
      thread_([this](std::stop_token stop) {
        pthread_setname_np(pthread_self(), "oct-handoff");
        Run(stop);
      }) {}

FdSocket::~FdSocket() { Stop(); }

void FdSocket::Stop() {
  std::map<std::string, Waiting> waiting;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    waiting.swap(waiting_);
  }
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
  while (!connections_.empty()) End(connections_.begin()->first, GrantEnd::kStopped);
  for (auto& [nonce, entry] : waiting) entry.grant->Ended(GrantEnd::kStopped);
  ::unlink(config_.path.c_str());
}

absl::StatusOr<Ticket> FdSocket::Issue(std::shared_ptr<Grant> grant, std::optional<uid_t> uid,
                                       const Holder& holder) {
  const std::string& payer = holder.payer;
  Ticket ticket{
      .nonce = RandomHex128(), .path = config_.path, .expires_seconds = config_.ticket_seconds};
  MutexLock lock(mutex_);
  if (stopped_)
    return Refusal(absl::StatusCode::kUnavailable, Reason::kDraining, "the server stops");
  if (waiting_.size() >= kMostTickets) {
    return WithInfo(
        absl::ResourceExhaustedError(absl::StrCat(
            waiting_.size(), " tickets wait to be presented; present or let expire some first")),
        {.reason = Reason::kTickets,
         .field = "",
         .numbers = {{"allowed", absl::StrCat(kMostTickets)}, {"retryable", "true"}}});
  }
  std::shared_ptr<void> place;
  if (!payer.empty() && (place = places_of_.Take(payer)) == nullptr) {
    return WithInfo(
        absl::ResourceExhaustedError(absl::StrCat(
            kMostTicketsOfOne, " tickets of ", payer, " wait to be presented; allowed to one ",
            "principal is half of ", kMostTickets, "; present or let expire some first")),
        {.reason = Reason::kTickets,
         .field = "",
         .numbers = {{"principal", payer},
                     {"allowed", absl::StrCat(kMostTicketsOfOne)},
                     {"retryable", "true"}}});
  }
  waiting_[ticket.nonce] = {
      .grant = std::move(grant),
      .uid = uid,
      .until_ns = NowNs() + static_cast<int64_t>(config_.ticket_seconds * 1e9),
      .place = std::move(place),
      .holder = holder};
  return ticket;
}

FdSocket::Counts FdSocket::Count() {
  MutexLock lock(mutex_);
  Counts counts = counts_;
  counts.waiting = static_cast<int64_t>(waiting_.size());
  return counts;
}

void FdSocket::TellRefusal(const Peer& peer, const absl::Status& refused) {
  {
    MutexLock lock(mutex_);
    ++counts_.refused[std::string(Name(ReasonOrCode(refused)))];
  }
  if (config_.refused != nullptr) config_.refused(peer, refused);
}

void FdSocket::Run(std::stop_token stop) {
  epoll_event events[32];
  while (!stop.stop_requested()) {
    const int count = ::epoll_wait(epoll_.get(), events, 32, 200);
    for (int i = 0; i < count && !stop.stop_requested(); ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener_.get()) {
        base::GuardedTurn("a connection is not accepted", [&] { Accept(); });
      } else if (fd != wake_.get() &&
                 !base::GuardedTurn("a connection breaks off", [&] { Read(fd); })) {
        base::GuardedTurn("a connection does not end", [&] { End(fd, GrantEnd::kHungUp); });
      }
    }
    base::GuardedTurn("a turn of oct-handoff broke off", [&] { Sweep(); });
  }
}

void FdSocket::Accept() {
  (void)Failpoint("handoff_accept");
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) {
    // Out of descriptors: the listener stays readable, so pause instead of spinning.
    if (errno == EMFILE || errno == ENFILE)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return;
  }
  if (connections_.size() >= most_connections_) MakeRoom();
  ucred credentials{};
  socklen_t size = sizeof credentials;
  const bool known = ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
  const Peer peer{.uid = credentials.uid, .pid = credentials.pid, .connection = next_connection_++};
  if (connections_.size() >= most_connections_ || !known) {
    const absl::Status full =
        Refusal(absl::StatusCode::kResourceExhausted, Reason::kConnections,
                absl::StrCat("there are ", most_connections_, " connections"));
    TellRefusal(peer, full);
    (void)SendPacket(fd.get(), ConnectionRefused(full));
    ShutDown(fd, bin_);
    return;
  }
  const int number = fd.get();
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = number}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, number, &event) != 0) return;
  connections_[number] = std::make_shared<Connection>(std::move(fd), peer, NowNs());
  MutexLock lock(mutex_);
  ++counts_.connections;
}

void FdSocket::MakeRoom() {
  std::map<uid_t, size_t> of_user;
  for (const auto& [fd, connection] : connections_) ++of_user[connection->peer.uid];
  // Of the user who has most of them: no user keeps the others off the socket.
  const auto goes_before = [&](const Connection& a, const Connection& b) {
    return std::pair(of_user[b.peer.uid], a.since_ns) < std::pair(of_user[a.peer.uid], b.since_ns);
  };
  int first = -1;
  for (const auto& [fd, connection] : connections_) {
    if (connection->grants.empty() && (first < 0 || goes_before(*connection, *connections_[first])))
      first = fd;
  }
  if (first < 0) return;
  const absl::Status refused = Refusal(
      absl::StatusCode::kResourceExhausted, Reason::kConnections,
      absl::StrCat("there are ", most_connections_, " connections, and yours had no grant"));
  TellRefusal(connections_[first]->peer, refused);
  (void)connections_[first]->Send(ConnectionRefused(refused), -1);
  End(first, GrantEnd::kHungUp);
}

void FdSocket::Read(int fd) {
  const auto it = connections_.find(fd);
  if (it == connections_.end()) return;
  const std::shared_ptr<Connection> connection = it->second;
  // A few messages at a time, so that other clients get their turn.
  for (int i = 0; i < 16; ++i) {
    auto packet = connection->Receive(!bin_.full());
    if (!packet.has_value()) return;
    const absl::Cleanup done = [&] { bin_.Close(std::move(packet->descriptors)); };
    (void)Failpoint("handoff_read");
    if (packet->end || !Handle(*connection, *packet)) {
      End(fd, GrantEnd::kHungUp);
      return;
    }
  }
}

bool FdSocket::Handle(Connection& connection, Packet& packet) {
  const v1::ClientMessage& request = packet.message;
  const bool greeted = connection.purpose != v1::PURPOSE_UNSPECIFIED;
  uint64_t id = 0;
  bool ended = false;
  auto answer = [&]() -> absl::StatusOr<Answer> {
    OCTAVO_RETURN_IF_ERROR(packet.status);
    if (!greeted) return Greet(connection, request);
    if (!packet.descriptors.empty() && !request.has_present())
      return Misused("the packet has a descriptor, and only a Present has one");
    switch (request.body_case()) {
      case v1::ClientMessage::BODY_NOT_SET:
        return Misused("the message says nothing that this server knows");
      case v1::ClientMessage::kHello: return Misused("a connection says Hello once");
      case v1::ClientMessage::kPresent:
        return Present(connection, request.present(), packet.descriptors, &id);
      default: break;
    }
    const auto it = connection.grants.find(request.grant());
    if (it == connection.grants.end()) {
      return Refusal(absl::StatusCode::kNotFound, Reason::kNoGrant,
                     absl::StrCat("grant ", request.grant(), " is none of this connection's"));
    }
    id = it->first;
    const std::shared_ptr<Grant> grant = it->second;
    if (!request.has_end()) return grant->Message(request);
    connection.grants.erase(it);
    connection.holders.erase(id);
    connection.since_ns = NowNs();
    grant->Ended(GrantEnd::kReleased);
    ended = true;
    Answer over;
    over.message.mutable_ended();
    return over;
  }();
  bin_.Close(std::exchange(packet.descriptors, {}));  // before the client has an answer
  if (!answer.ok()) TellRefusal(connection.peer, answer.status());
  v1::ServerMessage refused;
  if (!answer.ok()) {
    if (greeted) {
      *refused.mutable_refused() = RefusedOf(answer.status());
    } else {
      refused = ConnectionRefused(answer.status());
    }
  }
  v1::ServerMessage& message = answer.ok() ? answer->message : refused;
  message.set_grant(id);
  message.set_request(request.request());
  const bool silent =
      message.body_case() == v1::ServerMessage::BODY_NOT_SET && request.request() == 0;
  if (!silent) (void)connection.Send(message, answer.ok() ? answer->descriptor : -1);
  if (ended) {
    MutexLock lock(mutex_);
    --counts_.grants;
  }
  return greeted || answer.ok();
}

absl::StatusOr<Answer> FdSocket::Greet(Connection& connection, const v1::ClientMessage& request) {
  if (!request.has_hello()) return Misused("the first message of a connection is a Hello");
  const v1::Hello& hello = request.hello();
  OCTAVO_ASSIGN_OR_RETURN(const uint32_t version, CommonVersion(hello.versions()));
  if (!v1::Purpose_IsValid(hello.purpose()) || hello.purpose() == v1::PURPOSE_UNSPECIFIED) {
    return FieldNotAllowed("purpose", static_cast<int>(hello.purpose()),
                           "PURPOSE_MEMORY, PURPOSE_FEED, PURPOSE_RING, PURPOSE_IMPORT, "
                           "PURPOSE_FILE, PURPOSE_FRAMES");
  }
  connection.purpose = hello.purpose();
  Answer answer;
  v1::Welcome* welcome = answer.message.mutable_welcome();
  welcome->set_version(version);
  welcome->mutable_versions()->set_oldest(kOldestVersion);
  welcome->mutable_versions()->set_newest(kNewestVersion);
  return answer;
}

absl::StatusOr<Answer> FdSocket::Present(Connection& connection, const v1::Present& request,
                                         const std::vector<UniqueFd>& descriptors, uint64_t* id) {
  const std::string& nonce = request.ticket();
  const bool with_descriptor = TakesDescriptor(connection.purpose);
  if (with_descriptor && descriptors.size() != 1)
    return Misused(absl::StrCat("the Present has no descriptor; one of ",
                                v1::Purpose_Name(connection.purpose),
                                " has that of what is handed over"));
  Waiting waiting;
  const absl::Cleanup broken = [&] {  // by an exception: the grant ends, too
    if (waiting.grant != nullptr) EndGrant(*waiting.grant, GrantEnd::kRefused);
  };
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    const auto it = waiting_.find(nonce);
    if (it == waiting_.end()) {
      const auto known = spent_.find(nonce);
      const Reason reason = known == spent_.end() ? Reason::kTicketUnknown : known->second.first;
      return Refusal(absl::StatusCode::kPermissionDenied, reason,
                     reason == Reason::kTicketExpired
                         ? absl::StrCat("the ticket was good for ", config_.ticket_seconds,
                                        " s; ask for another one")
                     : reason == Reason::kTicketUnknown
                         ? "no such ticket"
                         : "the ticket was presented before; it is good once");
    }
    const bool late = NowNs() > it->second.until_ns,
               known_user = !it->second.uid.has_value() || *it->second.uid == connection.peer.uid;
    if (const v1::Purpose purpose = it->second.grant->purpose();
        !late && known_user && purpose != connection.purpose) {
      return Refusal(absl::StatusCode::kFailedPrecondition, Reason::kTicketKind,
                     absl::StrCat("the ticket is for ", v1::Purpose_Name(purpose),
                                  ", the connection for ", v1::Purpose_Name(connection.purpose)));
    }
    waiting = std::move(it->second);
    waiting_.erase(it);
    spent_[nonce] = {late ? Reason::kTicketExpired : Reason::kTicketUsed, NowNs() + kRememberNs};
    if (late) {
      refused = Refusal(absl::StatusCode::kPermissionDenied, Reason::kTicketExpired,
                        absl::StrCat("the ticket was good for ", config_.ticket_seconds,
                                     " s; ask for another one"));
    } else if (!known_user) {
      // Another user knows the nonce, so it becomes void.
      refused = Refusal(absl::StatusCode::kPermissionDenied, Reason::kWrongPeer,
                        "the ticket was made for another user");
    }
  }
  if (const std::string why = refused.ok() ? WhyNot(waiting.holder) : ""; !why.empty())
    refused = Refusal(absl::StatusCode::kUnauthenticated, Reason::kBadToken, why);
  if (!refused.ok()) {
    EndGrant(
        *std::exchange(waiting.grant, nullptr),
        InfoOf(refused).reason == Reason::kTicketExpired ? GrantEnd::kExpired : GrantEnd::kRefused);
    return refused;
  }
  const uint64_t number = next_grant_++;
  const auto self = std::find_if(connections_.begin(), connections_.end(), [&](const auto& entry) {
    return entry.second.get() == &connection;
  });
  auto link = std::make_shared<GrantLink>(self->second, number);
  auto answer = with_descriptor ? waiting.grant->OpenWith(descriptors.front(), connection.peer,
                                                          request, std::move(link))
                                : waiting.grant->Open(connection.peer, request, std::move(link));
  if (!answer.ok()) return answer.status();
  connection.grants[number] = std::move(waiting.grant);
  connection.holders[number] = std::move(waiting.holder);
  *id = number;
  MutexLock lock(mutex_);
  ++counts_.grants;
  return answer;
}

void FdSocket::End(int fd, GrantEnd why) {
  const auto it = connections_.find(fd);
  if (it == connections_.end()) return;
  const std::shared_ptr<Connection> connection = std::move(it->second);
  connections_.erase(it);
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  ShutDown(connection->Close(), bin_);
  const auto grants = std::exchange(connection->grants, {});
  {
    MutexLock lock(mutex_);
    --counts_.connections;
    counts_.grants -= static_cast<int64_t>(grants.size());
  }
  for (const auto& [id, grant] : grants) EndGrant(*grant, why);
}

void FdSocket::Sweep() {
  const int64_t now = NowNs();
  std::vector<std::shared_ptr<Grant>> expired;
  const absl::Cleanup tell = [&] {
    for (const auto& grant : expired) EndGrant(*grant, GrantEnd::kExpired);
  };
  {
    MutexLock lock(mutex_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (now <= it->second.until_ns) {
        ++it;
        continue;
      }
      spent_[it->first] = {Reason::kTicketExpired, now + kRememberNs};
      expired.push_back(it->second.grant);
      it = waiting_.erase(it);
    }
    std::erase_if(spent_, [&](const auto& entry) { return now > entry.second.second; });
    while (spent_.size() > kMostRemembered) spent_.erase(spent_.begin());
  }
  std::vector<int> strangers;
  for (const auto& [fd, connection] : connections_) {
    if (connection->grants.empty() &&
        static_cast<double>(now - connection->since_ns) > config_.stranger_seconds * 1e9)
      strangers.push_back(fd);
  }
  for (const int fd : strangers) End(fd, GrantEnd::kHungUp);
  if (config_.why_not == nullptr || now - looked_ns_ < kBetweenLooksNs) return;
  looked_ns_ = now;
  EndRevoked();
}

// As calls end. A connection ends whole: its client is one.
void FdSocket::EndRevoked() {
  std::map<int, std::string> revoked;  // by descriptor: why
  for (const auto& [fd, connection] : connections_) {
    for (const auto& [number, holder] : connection->holders) {
      if (std::string why = WhyNot(holder); !why.empty()) revoked[fd] = std::move(why);
    }
  }
  for (const auto& [fd, why] : revoked) {
    const std::shared_ptr<Connection> connection = connections_[fd];
    const absl::Status refused =
        Refusal(absl::StatusCode::kUnauthenticated, Reason::kBadToken, why);
    TellRefusal(connection->peer, refused);
    (void)connection->Send(ConnectionRefused(refused), -1);
    End(fd, GrantEnd::kHungUp);
  }
}

}  // namespace octavo::handoff
