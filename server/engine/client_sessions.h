#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"

namespace octavo::engine {

/// All fields as in octavo.v1.ClientSession.
struct SessionStatus {
  std::string name, client;
  bool alive = true;
  TimePoint opened, seen;
  double expires_seconds = 0;
  int64_t volumes = 0, leases = 0, bytes = 0;  // filled in by the engine
};

struct SessionConfig {
  double heartbeat_seconds = 10;  // what clients are told
  double expiry_seconds = 60;     // without a sign of life
};

/// Clients that the server notices the end of. Expired sessions are remembered for a day: whoever has the secret revives them.
/// Thread-safe; no callbacks: the housekeeping asks Expire.
class ClientSessions {
 public:
  ClientSessions(const Clock* clock, SessionConfig config, std::string server_id)
      : clock_(clock), config_(config), server_id_(std::move(server_id)) {}

  struct Opened {
    SessionStatus session;
    std::string secret;  // 32 hex digits
  };
  Opened Open(const std::string& client);
  /// A sign of life. `revived`: it had expired. NotFound (NO_SESSION).
  struct Alive {
    SessionStatus session;
    bool revived = false;
  };
  absl::StatusOr<Alive> KeepAlive(const std::string& secret);
  /// Ends it now, as if it had expired. NotFound (NO_SESSION).
  absl::StatusOr<SessionStatus> Close(const std::string& secret);
  /// The live session of a secret; counts as a sign of life. NotFound (NO_SESSION), also for one that has expired and was not revived.
  absl::StatusOr<SessionStatus> Find(const std::string& secret);
  std::vector<SessionStatus> List();  // oldest first
  /// Whether a session has expired, or is not known any more.
  bool Gone(const std::string& name);
  /// Names of the sessions that have ended since the last call.
  std::vector<std::string> Expire();
  const SessionConfig& config() const { return config_; }
  struct Counts {
    int64_t alive = 0, expired = 0;  // now; ever
  };
  Counts Count();

 private:
  struct Session {
    SessionStatus status;
    std::string secret;
    int64_t ended_ns = 0;  // 0 = alive
    bool told = false;     // by Expire
  };
  SessionStatus StatusOf(const Session& session) const;
  void EndOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Session*> FindLocked(const std::string& secret) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const SessionConfig config_;
  const std::string server_id_;
  Mutex mutex_;
  std::map<std::string, Session> sessions_ ABSL_GUARDED_BY(mutex_);     // by name
  std::map<std::string, std::string> name_of_ ABSL_GUARDED_BY(mutex_);  // by secret
  int64_t expired_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace octavo::engine
