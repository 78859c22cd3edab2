#pragma once

#include <atomic>
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
#include "server/base/worker_pool.h"
#include "server/memory/device_set.h"
#include "server/model/scan_spec.h"
#include "server/model/stats.h"
#include "server/model/status_types.h"
#include "server/model/work_progress.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/spill/spill_folder.h"
#include "server/volume/commit_observer.h"
#include "server/volume/growing_commit.h"
#include "server/volume/volume_commit.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {

/// Replaces {scan} {index} {index:05} {title} {date}. Refuses other braces and empty results
/// (InvalidArgument, "options.destination"). Characters of the title that are not allowed in file
/// names become '_'. {date}: UTC time of acquisition, 20261121T093000Z.
absl::StatusOr<std::string> ExpandDestination(const std::string& destination,
                                              const model::VolumeStatus& volume);

/// Writes held volumes and other arrays to storage. Volumes: device → page-locked slabs → encoders
/// → disk, the copy of a slab overlaps the writing of the previous one. Several commits may run at
/// once. Commits of volumes that are still being made have threads of their own, because they wait.
/// Thread-safe.
class Committer {
 public:
  struct Context {
    storage::CommitStore* storage = nullptr;
    VolumeStore* volumes = nullptr;
    const Clock* clock = nullptr;
    memory::DeviceSet devices;
    /// The metadata that the file must carry for the volume.
    std::function<storage::VolumeMeta(const model::VolumeStatus&)> meta_of;
    CommitObserver* observer = nullptr;  // null: nobody is told
  };
  Committer(Context context, int threads);
  ~Committer();

  using Done = std::function<void(absl::StatusOr<storage::CommitOutcome>)>;
  /// An array that is no volume. Its commit does not change it.
  struct Array {
    std::string name;          // buffers/<id>
    std::string commit_id;     // for the names of temporary files: letters, digits, '-'
    storage::VolumeMeta meta;  // what the file says of it, with three axes
    int device = 0;            // its page-locked memory holds the slabs
    /// Writes the next bytes of the array, in C order, to `to`. Called from a thread of the
    /// committer, from the first byte to the last.
    std::function<absl::Status(int64_t bytes, void* to)> read;
  };
  /// Begins a commit. Errors known at once are returned, and nothing has changed; otherwise `done`
  /// is called once, from a thread of the committer. `control`: a requested stop ends the commit
  /// before its files are published (COMMIT_CANCELLED). `asked`: set if a client asks
  /// (VolumeStore::BeginCommit).
  absl::Status Commit(const std::string& name, const model::CommitOptions& options,
                      model::WorkControl control, Done done, const ClientVerb* asked = nullptr);
  /// Begins the commit of a volume that is still being made: its voxels are written to the
  /// temporary folder as they are made, and the rest is as of a commit once the volume is held.
  /// Begins none, and nothing has changed, where the volume has to be held first: a format that
  /// needs all metadata before the first voxel, as many such commits as there may be
  /// (FailedPrecondition), and errors of Commit. `done`: as of Commit; also if the volume is never
  /// held (COMMIT_CANCELLED). What is returned must end before the committer.
  absl::StatusOr<std::unique_ptr<GrowingCommit>> CommitGrowing(GrowingVolume volume,
                                                               const model::CommitOptions& options,
                                                               model::WorkControl control,
                                                               Done done);
  /// The same for another array; `options.destination` has no template fields any more. A
  /// destination that is taken is an error known at once. Destroys `array.read` before `done`.
  absl::Status CommitArray(Array array, const model::CommitOptions& options,
                           model::WorkControl control, Done done);
  /// Whether a commit with these options would be refused because of its destination. `volume`:
  /// empty = not known yet; then a destination with template fields is not checked for existence.
  /// A refusal because of what is at the destination counts as a failed commit.
  absl::Status Check(const model::CommitOptions& options, const std::string& volume = "");
  int Pending() { return pool_.Pending() + growing_pool_.Pending(); }
  /// Whether any commit has something to do: one whose volume is being made has not, while it
  /// waits.
  bool Busy() { return Pending() > waiting_; }
  bool PendingOf(const std::string& scan);
  void CancelAll();
  void AddTo(model::Stats* stats);

 private:
  struct Job;
  class Growing;
  /// What a commit of `volume` is to do. Begins nothing.
  absl::StatusOr<std::shared_ptr<Job>> Prepare(const model::VolumeStatus& volume,
                                               const model::CommitOptions& options,
                                               model::WorkControl control, Done done);
  /// Adds a job to those that are under way, unless there are as many of growing volumes as may be.
  bool Enlist(const std::shared_ptr<Job>& job);
  void RunGrowing(const std::shared_ptr<Job>& job);
  void Run(const std::shared_ptr<Job>& job, VolumeCommit commit);
  void TellBegun(const Job& job);
  /// Takes an ended job off the list, and counts it.
  void Record(const Job& job, const absl::StatusOr<storage::CommitOutcome>& outcome);
  void RunArray(const std::shared_ptr<Job>& job);
  /// Counts the end of a job, and tells the log and the one that asked of it.
  void End(const Job& job, const absl::StatusOr<storage::CommitOutcome>& outcome);
  absl::StatusOr<storage::CommitOutcome> Write(const Job& job, const VolumeHold& hold);
  /// `wait` waits for the volume of a job to grow. Adds the time to `waited_ns`.
  absl::Status WaitForGrowth(int64_t* waited_ns, const std::function<absl::Status()>& wait);
  absl::StatusOr<storage::CommitOutcome> WriteArray(const Job& job);

  const Context context_;
  Mutex mutex_;
  std::list<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);  // until done
  model::Histogram seconds_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> errors_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> waiting_{0};  // commits that wait for their volumes to be made
  base::WorkerPool pool_;        // last, with the next: their threads use the rest
  base::WorkerPool growing_pool_;
};

}  // namespace octavo::volume
