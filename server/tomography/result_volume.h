#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/source/push_projections.h"
#include "server/tomography/run.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// The volume that a run makes, result 0 of its plan: described from the request and the input,
/// then filled batch by batch, in device memory or on disk. Its MIP grows with the batches; its
/// levels come from a slice in its middle. Used by the job's thread only.
class ResultVolume {
 public:
  ResultVolume(job::JobRun& run, const TomographyTask& task) : run_(run), task_(task) {}

  /// Begins the result: its shape is that of the object's layout from now on.
  absl::Status Begin(const ScannedObject& object);
  /// Device memory for the images of a batch that begins at slice `first`.
  float* ImagesOf(int64_t first) const {
    return images_ + (task_.on_disk ? 0 : first * image_size_ * image_size_);
  }
  /// The images of the batch are enqueued on the run's stream. A result on disk takes its batches
  /// in order.
  absl::Status Add(int64_t first, int64_t count);

 private:
  absl::Status LookAt(const float* image);

  job::JobRun& run_;
  const TomographyTask& task_;
  int64_t slices_ = 0, image_size_ = 0;
  float* images_ = nullptr;
  char* mip_ = nullptr;  // over the slices
  bool mip_begun_ = false;
};

}  // namespace octavo::tomography
