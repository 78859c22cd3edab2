#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/base/callback_handle.h"
#include "server/base/worker_pool.h"
#include "server/memory/device_set.h"
#include "server/model/scan_spec.h"
#include "server/model/stats.h"
#include "server/model/status_types.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/spill/spill_folder.h"
#include "server/volume/commit_callbacks.h"
#include "server/volume/volume_commit.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {

/// Replaces {scan} {index} {index:05} {title} {date}. Refuses other braces and empty results
/// (InvalidArgument, "options.destination"). Characters of the title that are not allowed in file
/// names become '_'. {date}: UTC time of acquisition, 20261121T093000Z.
absl::StatusOr<std::string> ExpandDestination(const std::string& destination,
                                              const model::VolumeStatus& volume);

/// Writes held volumes to storage: device → page-locked slabs → encoders → disk, the copy of a slab
/// overlaps the writing of the previous one. Several commits may run at once. Thread-safe.
class Committer {
 public:
  struct Context {
    storage::CommitStore* storage = nullptr;
    VolumeStore* volumes = nullptr;
    const Clock* clock = nullptr;
    memory::DeviceSet devices;
    /// The metadata that the file must carry for the volume.
    std::function<storage::VolumeMeta(const model::VolumeStatus&)> meta_of;
  };
  Committer(Context context, int threads);
  ~Committer();

  /// As Volumes::Commit; `asked`: set if a client asks (VolumeStore::BeginCommit).
  absl::StatusOr<std::shared_ptr<base::Handle>> Commit(const std::string& name,
                                                       const model::CommitOptions& options,
                                                       const std::string& request_id,
                                                       CommitCallbacks callbacks,
                                                       const ClientVerb* asked = nullptr);
  absl::Status Check(const model::CommitOptions& options) const;  // as Volumes::CheckCommit
  int Pending() { return pool_.Pending(); }
  bool PendingOf(const std::string& scan);
  void CancelAll();
  void AddTo(model::Stats* stats);

 private:
  struct Job;
  class JobHandle;
  /// Returns the job, running or ended, that this request began earlier, or null if there is none;
  /// in that case lists `otherwise` if it is not null. AlreadyExists (IDEMPOTENCY_MISMATCH) if the
  /// request was about another volume.
  absl::StatusOr<std::shared_ptr<Job>> Earlier(const std::string& name,
                                               const std::string& request_id,
                                               const std::shared_ptr<Job>& otherwise);
  std::shared_ptr<base::Handle> Join(const std::shared_ptr<Job>& job, CommitCallbacks callbacks);
  void Run(const std::shared_ptr<Job>& job, VolumeCommit commit);
  /// Takes an ended job off the list, counts it, and remembers its outcome for retries.
  void Record(const Job& job, const absl::StatusOr<storage::CommitOutcome>& outcome);
  absl::StatusOr<storage::CommitOutcome> Write(Job& job, const VolumeHold& hold);

  const Context context_;
  Mutex mutex_;
  std::list<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);  // until done
  struct Done {
    std::string volume;
    storage::CommitOutcome outcome;
    int64_t at_ns = 0;
  };
  std::map<std::string, Done> done_ ABSL_GUARDED_BY(mutex_);  // by request_id, for ten minutes
  model::Histogram seconds_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> errors_ ABSL_GUARDED_BY(mutex_);
  base::WorkerPool pool_;  // last: its threads use the rest
};

}  // namespace octavo::volume
