#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/base/callback_handle.h"
#include "server/engine/ring_ticket.h"
#include "server/engine/scan_watch.h"
#include "server/handoff/fd_socket.h"
#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/job/job_observer.h"
#include "server/source/push_projections.h"

namespace octavo::engine {

struct Components;

/// Jobs of every kind (job_kinds.cc lists them): the engine's part for JobService.
class Jobs final : public job::JobObserver {
 public:
  explicit Jobs(Components* components);
  ~Jobs() override;

  /// If memory is short, `report` (may be null) receives the reason.
  absl::StatusOr<job::JobStatus> Submit(const model::JobSpec& spec, model::AdmissionReport* report);
  absl::StatusOr<model::AdmissionReport> Plan(const model::JobSpec& spec, job::JobPlan* plan);
  /// Also of an earlier daemon, as List and Watch.
  absl::StatusOr<job::JobStatus> Get(const std::string& name);
  /// As JobTable::List; then those of earlier daemons.
  std::vector<job::JobStatus> List(uint64_t before = std::numeric_limits<uint64_t>::max(),
                                   size_t most = std::numeric_limits<size_t>::max());
  /// Calls `callback` from an engine thread with the job's status: now, on each change (at most 20
  /// a second) and about twice a second, until its final state. If the job is forgotten before
  /// that, calls once with NotFound.
  absl::StatusOr<std::unique_ptr<base::Handle>> Watch(
      const std::string& name, std::function<void(const absl::StatusOr<job::JobStatus>&)> callback);
  /// PermissionDenied (NOT_OWNER) if the caller may not change the job.
  absl::StatusOr<job::JobStatus> Cancel(const std::string& name,
                                        const security::Principal& caller = {});
  /// The port for a client that pushes projections of a job. FailedPrecondition (NOT_PUSH,
  /// JOB_STATE), PermissionDenied (NOT_OWNER).
  absl::StatusOr<std::shared_ptr<source::ProjectionPort>> OpenProjectionPush(
      const std::string& job, const security::Principal& caller = {});
  /// Issues a ticket for the memory through which a process on this host pushes projections, made
  /// now if there is none; that takes the time to get the memory. As Scans::OpenRing, with NOT_PUSH
  /// and JOB_STATE; also errors of ProjectionPort::OpenRing.
  absl::StatusOr<RingTicket> OpenRing(const std::string& job, int64_t slots,
                                      std::optional<uint32_t> uid,
                                      const security::Principal& caller = {});

  /// A ticket for a file that the user `uid` (nothing = anyone) hands over for an import, asked for
  /// on this `connection`. FailedPrecondition (HANDOFF_DISABLED), and errors of FileDeposits::Open.
  absl::StatusOr<handoff::Ticket> OpenDeposit(const std::string& name,
                                              const std::string& connection,
                                              std::optional<uint32_t> uid,
                                              const security::Principal& caller);

  /// Wakes the watchers' threads.
  void OnJobsChanged() override;
  void OnCommitWanted(const std::string& volume, const model::CommitOptions& options) override;
  std::unique_ptr<volume::GrowingCommit> OnGrowingCommitWanted(
      const volume::GrowingVolume& volume, const model::CommitOptions& options) override;
  /// Stops all calls to watchers.
  void StopWatching() { watches_.Stop(); }

 private:
  /// For a job of the principal: files below the roots that it may name.
  job::JobEnvironment Environment(const security::Owner& who);
  /// PermissionDenied (OUTSIDE_ROOTS) if the job names a file below another replay root.
  absl::Status CheckRoots(const model::JobSpec& spec);
  absl::StatusOr<job::JobStatus> SubmitNew(const model::JobSpec& spec,
                                           model::AdmissionReport* report);
  absl::Status CheckOrphan(const model::JobSpec& spec);
  /// InvalidArgument if the job makes no volume that could go to the tier `results`, or be
  /// committed, or if both are asked for; FailedPrecondition (SPILL_OFF).
  absl::Status CheckResults(const model::JobSpec& spec);
  /// The job, made of its specification and checked as a whole.
  absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec& spec);
  /// The destination and the options of JobSpec.commit, before hours of work: as CommitVolume, with
  /// the fields commit.*.
  absl::Status CheckCommit(const model::JobSpec& spec, const job::JobWork& work);
  /// What an earlier daemon did with the request; nothing for a new one. AlreadyExists
  /// (IDEMPOTENCY_MISMATCH), DataLoss (LOST).
  absl::StatusOr<std::optional<job::JobStatus>> EarlierAnswer(const model::JobSpec& spec);

  Components& components_;
  Mutex submit_mutex_;
  std::set<std::string> submitted_
      ABSL_GUARDED_BY(submit_mutex_);  // request ids of jobs being made
  JobWatches watches_;                 // last: its thread uses the rest
};

}  // namespace octavo::engine
