#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/base/places_by_name.h"
#include "server/security/owner.h"
#include "server/security/principal.h"
#include "server/security/shares.h"

namespace octavo::session {

/// All fields as in octavo.v1.ClientSession.
struct SessionStatus {
  std::string name, client;
  security::Owner owner;  // who opened it
  uint64_t number = 0;    // in the order they were opened
  bool alive = true;
  TimePoint opened, seen;
  double expires_seconds = 0;
  TimePoint expires;  // the same moment; of an ended session: when it ended
  int64_t volumes = 0, leases = 0, bytes = 0;  // filled in by the engine
};

struct SessionConfig {
  double heartbeat_seconds = 10;  // intervals announced to clients
  double expiry_seconds = 60;     // longest time without a sign of life
  int64_t most = 10'000;          // live sessions at once; as many ended ones are remembered
};

/// Client sessions, which expire when a client gives no sign of life. Expired sessions are
/// remembered for a day, the newest config.most of them: a client with the secret can revive them.
/// Thread-safe; no callbacks: the housekeeping calls Expire. Every call but List takes time that
/// does not grow with the number of sessions. The secret of a session serves those alone who may
/// change it: PermissionDenied (NOT_OWNER) for other callers (null: the server itself).
class ClientSessions {
 public:
  ClientSessions(const Clock* clock, SessionConfig config, std::string server_id)
      : clock_(clock),
        config_(config),
        server_id_(std::move(server_id)),
        places_of_(security::HalfOf(config.most)) {}

  struct Opened {
    SessionStatus session;
    std::string secret;  // 32 hex digits
  };
  /// ResourceExhausted (SESSIONS) while config.most are alive, or half as many of one principal
  /// that is no admin.
  absl::StatusOr<Opened> Open(const std::string& client, const security::Owner& owner = {});
  /// A sign of life. `revived`: the session had expired. NotFound (NO_SESSION); ResourceExhausted
  /// (SESSIONS) if it is to be revived, as in Open.
  struct Alive {
    SessionStatus session;
    bool revived = false;
  };
  absl::StatusOr<Alive> KeepAlive(const std::string& secret,
                                  const security::Principal* caller = nullptr);
  /// Ends the session now, as if it had expired. NotFound (NO_SESSION).
  absl::StatusOr<SessionStatus> Close(const std::string& secret,
                                      const security::Principal* caller = nullptr);
  /// The live session of a secret; the call counts as a sign of life. NotFound (NO_SESSION), also
  /// if the session has expired and was not revived.
  absl::StatusOr<SessionStatus> Find(const std::string& secret,
                                     const security::Principal* caller = nullptr);
  /// Up to `most` sessions with a greater number than `after`, oldest first.
  std::vector<SessionStatus> List(uint64_t after = 0,
                                  size_t most = std::numeric_limits<size_t>::max());
  /// Whether a session has expired, or is not known any more.
  bool Gone(const std::string& name);
  /// Names of the sessions that have ended since the last call.
  std::vector<std::string> Expire();
  const SessionConfig& config() const { return config_; }
  struct Counts {
    int64_t alive = 0, expired = 0;  // now; since the start
  };
  Counts Count();

 private:
  struct Session {
    SessionStatus status;
    std::string secret;
    int64_t ended_ns = 0;         // 0 = alive
    TimePoint closed;             // by Close; else it ended when it had been silent for too long
    bool told = false;            // Expire has reported it
    std::shared_ptr<void> place;  // while it is alive: of its owner's half
  };
  // A session is in one of three lists: alive, least recently seen first; ended but not yet
  // reported by Expire; ended and reported, in the order of their ends.
  using Sessions = std::list<Session>;
  SessionStatus StatusOf(const Session& session) const;
  void EndOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// A place of the owner's half; null for those who have no limit.
  absl::StatusOr<std::shared_ptr<void>> TakePlace(const security::Owner& owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Touch(Sessions::iterator session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Sessions::iterator> FindLocked(const std::string& secret,
                                                const security::Principal* caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const SessionConfig config_;
  const std::string server_id_;
  base::PlacesByName places_of_;
  Mutex mutex_;
  Sessions alive_ ABSL_GUARDED_BY(mutex_), ended_ ABSL_GUARDED_BY(mutex_),
      told_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Sessions::iterator> by_number_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Sessions::iterator> by_name_ ABSL_GUARDED_BY(mutex_), by_secret_
      ABSL_GUARDED_BY(mutex_);
  uint64_t opened_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t expired_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace octavo::session
