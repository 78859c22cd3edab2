#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_entry.h"
#include "server/job/job_pictures.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/volume/growing_commit.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/spiller.h"

namespace octavo::job {

/// The volumes that a running job makes, from their memory to held volumes: allocated by Begin,
/// described and filled by the job, completed and handed out one by one by Complete, or the rest
/// together by Finish and Close, which fails them if the job has failed. Used by the job's thread
/// only.
class JobResults {
 public:
  /// `job` runs on its device already. All but `job` must outlive the results.
  JobResults(const JobServices& services, JobTable& table, JobPictures& pictures, JobPtr job,
             StreamRef stream);

  /// Allocates the memory of all results of the plan. From then on the slots own their charges.
  absl::Status Begin();

  /// As those of JobRun.
  absl::StatusOr<void*> Result(size_t index, model::VolumeStatus volume);
  absl::Status BeginStored(size_t index, model::VolumeStatus volume);
  absl::Status Store(size_t index, const void* data, int64_t bytes);
  bool MakesInOrder(size_t index);
  absl::Status MadeTo(size_t index, int64_t bytes);
  void SetDisplay(size_t index, double lo, double hi);
  void SetClipped(size_t index, int64_t below, int64_t above);
  void* ResultMip(size_t index, bool made);

  /// As that of JobRun.
  absl::Status Complete(size_t index);

  /// Computes projections and digests of the results that are not complete; waits for them.
  absl::Status Finish();
  /// Publishes the results that are not complete as held volumes, or fails them with `status`; the
  /// job then has only those that are held.
  void Close(bool held, const absl::Status& status);

 private:
  struct Made {
    std::shared_ptr<memory::VolumeSlot> slot;
    model::VolumeStatus volume;  // name empty: not begun
    bool has_mip = false;
    std::unique_ptr<volume::Spiller::Storing> storing;    // on disk, while it is made
    std::shared_ptr<const volume::SpilledVolume> stored;  // and when it is whole
    std::unique_ptr<volume::GrowingCommit> commit;        // that writes it while it is made
    bool complete = false;  // it is held, or was; all but `complete` and `volume` is gone

    bool open() const { return !volume.name.empty() && !complete; }
  };
  /// Computes projection and digest of an open result; waits for them.
  absl::Status Finish(Made& made);
  /// An open result, which is finished, becomes a held volume.
  void Hold(Made& made);
  absl::Status Describe(size_t index, model::VolumeStatus* volume);
  absl::Status FitMemory(size_t index);
  /// The volume, which is held now, goes to the tier that the job wants it in. Where that does not
  /// begin, it stays where it is, and the job warns.
  void Move(const model::VolumeStatus& volume);
  /// The volume, which is held now, is committed if the job wants that, and no commit has written
  /// it while it was made.
  void Commit(Made& made);
  /// As JobTable::AddVolume, and tells the observer.
  void List(const model::VolumeStatus& volume);

  const JobServices& services_;
  JobTable& table_;
  JobPictures& pictures_;
  const JobPtr job_;
  Device& device_;
  const StreamRef stream_;
  const JobPlan& plan_;
  std::vector<Made> made_;
};

}  // namespace octavo::job
