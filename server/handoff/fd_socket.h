#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "octavo/handoff/v1/handoff.pb.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/base/reason.h"
#include "gpu/base/unique_fd.h"
#include "server/base/places_by_name.h"
#include "server/handoff/descriptor_bin.h"
#include "server/handoff/packets.h"

/// Hands file descriptors to programs on the same host, because gRPC cannot carry them. The wire,
/// its messages and their order: proto/octavo/handoff/v1/handoff.proto; README.md beside this file
/// has examples and the server's side.
namespace octavo::handoff {

/// The process at the other end, as the kernel reported it at connect.
struct Peer {
  uid_t uid = 0;
  pid_t pid = 0;
  uint64_t connection = 0;  // number of its connection; never used again
};

/// The sending side of a client's connection while it lasts. Thread-safe; never waits.
class Link {
 public:
  virtual ~Link() = default;
  /// Sends an unasked message, with a duplicate of `descriptor` unless it is -1; sets its grant.
  /// False if the connection has ended, or ends now because the client does not read.
  virtual bool Send(v1::ServerMessage message, int descriptor = -1) = 0;
  /// Ends the connection and with it every grant on it.
  virtual void Cut() = 0;
  /// Whether the client has closed its end, or was cut: its grants hear of it soon.
  virtual bool HasGone() = 0;
};

/// The answer of a grant; without a body, none is sent to a message that has no number. The client
/// gets a duplicate of the descriptor, which must stay open until
/// the call that returned it has returned to the socket (`keep` can ensure that).
struct Answer {
  v1::ServerMessage message;  // the socket sets request and grant
  int descriptor = -1;        // -1 = none
  std::shared_ptr<const void> keep;
};

enum class GrantEnd : uint8_t {
  kExpired = 1,   // the ticket was not presented in time
  kReleased = 2,  // the client ended it
  kHungUp = 3,    // the connection ended
  kRefused = 4,   // another user presented its ticket, or Open failed
  kStopped = 5    // the server stopped
};

/// The object behind a ticket: memory, a ring or a file. The socket's thread makes all calls, one
/// at a time, without locks; they must be short (no waiting for devices).
class Grant {
 public:
  virtual ~Grant() = default;
  /// The connections on which its ticket may be presented. Constant.
  virtual v1::Purpose purpose() const = 0;
  /// The user for whom the ticket was made has presented it, on a connection of its purpose. The
  /// socket sends the answer with its descriptor; an error refuses the client and ends the grant.
  virtual absl::StatusOr<Answer> Open(const Peer& peer, const v1::Present& request,
                                      std::shared_ptr<Link> link);
  /// The same, with the one descriptor that came with the Present of a purpose that has one
  /// (TakesDescriptor). The socket closes it. Such grants implement this instead of Open.
  virtual absl::StatusOr<Answer> OpenWith(const UniqueFd& descriptor, const Peer& peer,
                                          const v1::Present& request, std::shared_ptr<Link> link);
  /// Handles the client's later messages but End. The socket sends errors to the client; they
  /// change nothing.
  virtual absl::StatusOr<Answer> Message(const v1::ClientMessage& request);
  /// Called exactly once for every grant that a ticket was issued for.
  virtual void Ended(GrantEnd why) = 0;
};

/// Whether a client sends a descriptor with each Present of this purpose. With any other message,
/// and for any other purpose, it sends none.
constexpr bool TakesDescriptor(v1::Purpose purpose) {
  return purpose == v1::PURPOSE_IMPORT || purpose == v1::PURPOSE_FILE;
}

/// For whom a ticket is.
struct Holder {
  std::string payer;               // whose share of the tickets it takes; empty = of nobody's
  std::string principal, project;  // who asked for it; empty = not known
  bool looks_only = false;         // what it is for changes nothing: a viewer may ask for it
};

struct FdSocketConfig {
  std::string path;
  std::string group;             // of the socket file; empty = the process'
  uint32_t mode = 0660;          // of the socket file
  double ticket_seconds = 30;    // how long a ticket is valid
  double stranger_seconds = 10;  // longest time that a connection may exist without a grant
  /// Why what was granted to a principal may not go on: its token was revoked, say; empty = it may.
  /// Null: nobody loses anything. Asked for each ticket and, twice a second, each connection.
  std::function<std::string(const Holder&)> why_not;
  /// Told of each refusal. Null: they are counted alone. Both are called by the socket's thread,
  /// and must be short.
  std::function<void(const Peer&, const absl::Status&)> refused;
};

struct Ticket {
  std::string nonce;           // 32 hex digits, 128 random bits; valid once
  std::string path;            // of the socket
  double expires_seconds = 0;  // from when it was issued
};

/// The socket and its one thread. Thread-safe.
class FdSocket {
 public:
  /// Fewer where the process may open few files: an eighth of those, so that commits always have
  /// descriptors.
  static constexpr size_t kMostConnections = 512;
  static constexpr size_t kMostTickets = 4096, kMostTicketsOfOne = kMostTickets / 2;

  /// Listens. Replaces a socket file on which no server answers. AlreadyExists if one does;
  /// FailedPrecondition if the path or the group cannot be used; InvalidArgument if the path is too
  /// long.
  static absl::StatusOr<std::unique_ptr<FdSocket>> Open(FdSocketConfig config, const Clock* clock);
  ~FdSocket();

  /// Issues a ticket that opens `grant`, once. `uid`: only for this user; nothing = for any user
  /// who may connect. ResourceExhausted (TICKETS) if kMostTickets are waiting to be presented, or
  /// kMostTicketsOfOne of the payer; Unavailable after Stop. After an error the socket does not
  /// call Ended.
  absl::StatusOr<Ticket> Issue(std::shared_ptr<Grant> grant, std::optional<uid_t> uid,
                               const Holder& holder = {});
  /// Ends every grant and connection and removes the socket file. The socket makes no calls after
  /// it has returned. Must not be called from a grant's call.
  void Stop();
  const std::string& path() const { return config_.path; }

  struct Counts {
    int64_t connections = 0, grants = 0, waiting = 0;  // now; `waiting`: tickets not yet presented
    std::map<std::string, int64_t> refused;            // since start, by reason
  };
  Counts Count();

 private:
  class Connection;
  class GrantLink;
  struct Waiting {
    std::shared_ptr<Grant> grant;
    std::optional<uid_t> uid;
    int64_t until_ns = 0;
    std::shared_ptr<void> place;  // of the payer's
    Holder holder;
  };
  FdSocket(FdSocketConfig config, const Clock* clock, UniqueFd listener, UniqueFd epoll,
           UniqueFd wake);
  void Run(std::stop_token stop);
  void Accept();
  void Read(int fd);
  /// False if the connection has to end: its first message was refused.
  bool Handle(Connection& connection, Packet& packet);
  absl::StatusOr<Answer> Greet(Connection& connection, const v1::ClientMessage& request);
  absl::StatusOr<Answer> Present(Connection& connection, const v1::Present& request,
                                 const std::vector<UniqueFd>& descriptors, uint64_t* id);
  void End(int fd, GrantEnd why);
  /// Ends the connection that has had no grant for longest, of the user with most connections among
  /// those who have such; if there is one.
  void MakeRoom();
  /// Ends overdue tickets, connections that present none, and those of principals who may not go
  /// on.
  void Sweep();
  void EndRevoked();
  std::string WhyNot(const Holder& holder) const {
    return config_.why_not == nullptr || holder.principal.empty() ? "" : config_.why_not(holder);
  }
  void TellRefusal(const Peer& peer, const absl::Status& refused);
  int64_t NowNs() const { return clock_->Now().monotonic_ns; }

  const FdSocketConfig config_;
  const Clock* const clock_;
  const UniqueFd listener_, epoll_, wake_;
  const size_t most_connections_;
  std::map<int, std::shared_ptr<Connection>> connections_;  // only the thread uses it
  int64_t looked_ns_ = 0;                                   // when EndRevoked looked last
  uint64_t next_grant_ = 1;                                 // only the thread uses it
  uint64_t next_connection_ = 1;                            // only the thread uses it
  DescriptorBin bin_;
  base::PlacesByName places_of_{static_cast<int>(kMostTicketsOfOne)};
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // by nonce
  std::map<std::string, std::pair<Reason, int64_t>> spent_
      ABSL_GUARDED_BY(mutex_);  // nonce → why it is invalid, and how long that is remembered
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

/// 128 random bits as 32 hex digits, from the kernel.
std::string RandomHex128();

}  // namespace octavo::handoff
