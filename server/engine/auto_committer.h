#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "gpu/base/mutex.h"
#include "server/engine/scan_registry.h"
#include "server/job/job_queue.h"
#include "server/operation/operation_table.h"
#include "server/volume/committer.h"

namespace octavo::engine {

/// Begins commits on the server's own initiative, as a scan's retention, a job's specification or
/// an orphan policy demands. A failed commit leaves the volume held, is logged, and becomes a
/// warning of the job or the scan that made it. One that a job's specification demands is an
/// operation of the job's owner, as if that had asked for it; while there are as many operations as
/// may be, it is none.
class AutoCommitter {
 public:
  /// Whether a principal may have something committed to a destination (Components::CheckRoot).
  using CheckRoot = std::function<absl::Status(
      const security::Owner&, const std::string& destination, absl::string_view field)>;
  AutoCommitter(volume::Committer* committer, operation::OperationTable* operations,
                volume::VolumeStore* volumes, ScanRegistry* scans, job::JobQueue* jobs,
                CheckRoot check_root)
      : committer_(committer),
        operations_(operations),
        volumes_(volumes),
        scans_(scans),
        check_root_(std::move(check_root)),
        jobs_(jobs) {}
  /// Begins the commit. `asked`: if set, leases block it (VolumeStore::BeginCommit).
  absl::Status Begin(const std::string& volume, const model::CommitOptions& options,
                     const volume::ClientVerb* asked = nullptr);
  /// Begins the commit of a volume that its job is making (Committer::CommitGrowing). Null: it has
  /// to begin when the volume is held, and what refuses it is told then.
  std::unique_ptr<volume::GrowingCommit> BeginGrowing(const volume::GrowingVolume& volume,
                                                      const model::CommitOptions& options);
  /// Before the jobs are destroyed: the ends of commits that are under way are told to none of them
  /// any more.
  void ForgetJobs();

 private:
  /// Where the volume would really go: template fields are filled in only now, and the roots that
  /// its owner may not name must not be reached by them.
  absl::Status CheckDestination(const std::string& volume, const model::CommitOptions& options);
  /// Null: it is none.
  std::shared_ptr<operation::OperationRun> BeginOperation(const model::VolumeStatus& volume);
  /// How its work reports. A request of a client has a digest; here nobody has made one, by which
  /// the history tells the commits of jobs (CommitOfJobIn).
  static model::WorkControl ControlOf(const std::shared_ptr<operation::OperationRun>& run);
  /// What the end of a commit calls. `run` may be null.
  volume::Committer::Done Ending(const std::string& volume, const std::string& job,
                                 std::shared_ptr<operation::OperationRun> run);
  void Warn(const std::string& volume, const absl::Status& status);
  void TellJob(const std::function<void(job::JobQueue&)>& tell);

  volume::Committer* const committer_;
  operation::OperationTable* const operations_;
  volume::VolumeStore* const volumes_;
  ScanRegistry* const scans_;
  const CheckRoot check_root_;
  /// Held while the queue is told, so that after ForgetJobs nobody tells it.
  Mutex notify_mutex_;
  job::JobQueue* jobs_ ABSL_GUARDED_BY(notify_mutex_);
};

}  // namespace octavo::engine
