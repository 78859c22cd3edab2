#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "gpu/device/device_span.h"
#include "server/job/job.h"
#include "server/model/projection_spec.h"
#include "server/projection/geometry.h"

namespace octavo::projection {

/// What a job will make. `input`: the description of its input, if that is a volume.
model::VolumeStatus DescribeResult(const model::ProjectionSpec& spec,
                                   const ProjectionGeometry& geometry,
                                   const std::optional<model::VolumeStatus>& input);

/// The volume that a job makes, result 0 of its plan: filled batch by batch, in order, in device
/// memory or on disk. Its MIP grows with the batches; its display levels come from a slice in its
/// middle. Used by the job's thread only.
class ProjectedVolume {
 public:
  ProjectedVolume(job::JobRun& run, const ProjectionGeometry& geometry)
      : run_(run), geometry_(geometry) {}

  /// `batch`: the slices of a batch, whose memory a result on disk takes from the workspace.
  absl::Status Begin(const model::VolumeStatus& volume, int64_t batch, bool on_disk);
  /// Device memory for a batch that begins at slice `first`.
  DeviceSpan<float> MemoryOf(int64_t first, int64_t count) const;
  /// The batch is enqueued on the run's stream, or done.
  absl::Status Add(int64_t first, int64_t count);

 private:
  job::JobRun& run_;
  const ProjectionGeometry& geometry_;
  bool on_disk_ = false;
  float* memory_ = nullptr;  // of the result, or of a batch of one on disk
  void* mip_ = nullptr;
  bool mip_begun_ = false;
};

}  // namespace octavo::projection
