#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/source/push_projections.h"
#include "server/tomography/run.h"
#include "server/tomography/scanned_object.h"
#include "server/tomography/value_window.h"

namespace octavo::tomography {

/// What a run will make, as far as its request and its input say it. `input_um`: the pixel size
/// that the input gives; 0 = none.
model::VolumeStatus DescribeResult(const model::TomographySpec& spec,
                                   const TomographyLayout& layout, double input_um);

/// A volume that a run makes, a result of its plan, and after it the next one: described from the
/// request and the input, then filled batch by batch, in device memory or on disk. Batches of
/// another type than f32 are converted as they are added. Its MIP grows with the batches; its
/// display levels come from a slice in its middle. Used by the job's thread only.
class ResultVolume {
 public:
  ResultVolume(job::JobRun& run, const TomographyTask& task) : run_(run), task_(task) {}

  /// Begins result `index`: its shape is that of the object's layout from now on. `window`: of a
  /// result of integers.
  absl::Status Begin(int64_t index, const ScannedObject& object, const ValueWindow& window);
  /// Device memory for the images of a batch that begins at slice `first`.
  float* ImagesOf(int64_t first) const {
    return images_ + (task_.on_disk || converted() ? 0 : first * image_voxels_);
  }
  /// Whether its batches must come in order: it is on disk, or a commit writes it meanwhile.
  bool in_order() const { return task_.on_disk || committed_; }
  /// The images of the batch are enqueued on the run's stream.
  absl::Status Add(int64_t first, int64_t count);
  /// After the last batch: tells what was stored, and how much of it was clipped.
  absl::Status Conclude(model::TomographyReport& report);

 private:
  bool converted() const { return task_.spec->samples.type != DType::kF32; }
  /// The batch as it is stored, in the memory of the result or of a batch of it.
  absl::StatusOr<char*> Stored(int64_t first, int64_t count);
  absl::Status LookAt(const float* image);
  /// Memory beside the results, which they use one after the other.
  absl::Status AllocateScratch(const TomographyLayout& layout);

  job::JobRun& run_;
  const TomographyTask& task_;
  size_t index_ = 0;
  bool committed_ = false;  // while it is made
  int64_t slices_ = 0, image_rows_ = 0, image_columns_ = 0, image_voxels_ = 0;
  ValueWindow window_;
  float* images_ = nullptr;  // of a batch; of the whole result if that is f32 on the device
  char* stored_ = nullptr;   // likewise, of the result's type
  bool has_scratch_ = false;
  void *scratch_images_ = nullptr, *scratch_stored_ = nullptr;  // of a batch; null: not needed
  uint64_t* clipped_ = nullptr;  // device memory [2]; null: the batches are not converted
  char* mip_ = nullptr;          // over the slices
  bool mip_begun_ = false;
  bool told_clipped_ = false;  // once for all volumes of a series
};

}  // namespace octavo::tomography
