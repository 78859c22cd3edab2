#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "server/base/callback_handle.h"
#include "server/job/job.h"
#include "server/memory/quota.h"
#include "server/operation/operation.h"
#include "server/security/rights.h"

namespace octavo::engine {

struct Components;

/// A job as an operation; both have the same id.
operation::OperationStatus OperationOf(const job::JobStatus& job, const TimePoint& now);
/// "jobs/<id>" → "operations/<id>".
std::string OperationNameOf(const std::string& job);
/// The operation of this name, of a job too. NotFound (NO_OPERATION).
absl::StatusOr<operation::OperationStatus> FindOperation(Components& components,
                                                         const std::string& name);

/// A place among those that wait for operations, charged to the waiter until its wait is over.
struct WaitPlace {
  std::shared_ptr<void> place;
  std::shared_ptr<memory::QuotaCharge> charge;
};

/// Long work that clients have begun, jobs included: the engine's part for OperationService.
class Operations {
 public:
  using Status = operation::OperationStatus;
  explicit Operations(Components* components) : components_(*components) {}

  /// NotFound (NO_OPERATION).
  absl::StatusOr<Status> Get(const std::string& name);
  std::vector<Status> List();  // newest first
  /// `done` is called once: with the operation when it has ended, or as it is at `until` (nothing =
  /// no limit), or with NotFound (NO_OPERATION). At once if that is known, else from an engine
  /// thread. `over` (must be short) says that the waiter has gone; `done` need not be called then.
  /// `place`: of TakePlace.
  void Wait(const std::string& name, std::optional<std::chrono::steady_clock::time_point> until,
            std::function<void(const absl::StatusOr<Status>&)> done, std::function<bool()> over,
            WaitPlace place = {});
  /// A place for a Wait until `until`, taken before the work begins; empty if that waits for
  /// nothing. ResourceExhausted (BUSY; QUOTA: the waiter has as many watches and waits as it may).
  absl::StatusOr<WaitPlace> TakePlace(std::optional<std::chrono::steady_clock::time_point> until,
                                      const security::Owner& waiter);
  /// Calls `callback` from an engine thread with the operation: now, on each change (at most 20 a
  /// second, changes of state at once) and about twice a second, until its final state. If it is
  /// forgotten before that, calls once with NotFound. NotFound (NO_OPERATION).
  absl::StatusOr<std::unique_ptr<base::Handle>> Watch(
      const std::string& name, std::function<void(const absl::StatusOr<Status>&)> callback);
  /// Requests the end. The operation as it is then. NotFound (NO_OPERATION), PermissionDenied
  /// (NOT_OWNER).
  absl::StatusOr<Status> Cancel(const std::string& name, const security::Principal& caller = {});

 private:
  Components& components_;
};

}  // namespace octavo::engine
