#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/buffer_types.h"
#include "server/session/client_sessions.h"
#include "server/session/lease.h"

namespace octavo::engine {

struct Components;

/// Sessions of clients, their holdings and their leases: the engine's part for SessionService.
/// `caller`: who asks; PermissionDenied (NOT_OWNER) for one who may not use the session.
class Clients {
 public:
  explicit Clients(Components* components) : components_(*components) {}

  /// ResourceExhausted (SESSIONS).
  absl::StatusOr<session::ClientSessions::Opened> Open(const std::string& client,
                                                       const security::Owner& owner = {});
  /// A sign of life; revives an expired session. NotFound (NO_SESSION).
  absl::StatusOr<session::SessionStatus> KeepAlive(const std::string& secret,
                                                   const security::Principal& caller = {});
  absl::StatusOr<session::SessionStatus> Close(const std::string& secret,
                                               const security::Principal& caller = {});
  /// The live session of a secret; counts as a sign of life. NotFound (NO_SESSION).
  absl::StatusOr<session::SessionStatus> Find(const std::string& secret,
                                              const security::Principal& caller = {});
  /// As ClientSessions::List, with what they hold.
  std::vector<session::SessionStatus> List(uint64_t after = 0,
                                           size_t most = std::numeric_limits<size_t>::max());
  const session::SessionConfig& config() const;

  /// The leases of volumes and client buffers. Scans never ask for any.
  session::LeaseTable& leases();
  /// Ends the lease with this fencing number, for whom may change the lease, or the volume or
  /// buffer of which it is. Neither's owner changes, and no number comes again, so that no lock is
  /// needed from the question to the end. Errors of LeaseTable::OfFence and Release;
  /// PermissionDenied (NOT_OWNER).
  absl::Status EndLease(uint64_t fence, const model::Caller& caller);
  /// A lease of a volume or a buffer, granted under the lock of the store that owns it. As
  /// LeaseTable::Acquire; NotFound and FailedPrecondition (VOLUME_STATE) if it cannot be leased.
  uint64_t AcquireLease(const session::LeaseRequest& request, const model::Caller& caller,
                        std::function<void(absl::StatusOr<session::Lease>)> done);

 private:
  std::vector<session::SessionStatus> WithHoldings(std::vector<session::SessionStatus> sessions);

  Components& components_;
};

}  // namespace octavo::engine
