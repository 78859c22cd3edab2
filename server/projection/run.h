#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/model/projection_spec.h"
#include "server/projection/geometry.h"
#include "server/projection/input_slices.h"

namespace octavo::projection {

/// The device memory of a run with batches of some slices.
struct ProjectionMemory {
  int64_t slices_per_batch = 1;
  int64_t input = 0;  // 0: the input is on the device
  int64_t projector = 0;
  int64_t result = 0;  // of a batch of a result on disk
  int64_t workspace() const { return input + projector + result; }
};

/// A planned projection job on one device.
struct ProjectionTask {
  const model::ProjectionSpec* spec = nullptr;
  const ProjectionGeometry* geometry = nullptr;
  const InputSlices* input = nullptr;
  ProjectionMemory memory;
  bool on_disk = false;
};

/// Makes result 0 of the plan batch by batch. Cancelled between pieces of work.
absl::Status RunProjection(job::JobRun& run, std::stop_token stop, const ProjectionTask& task);

}  // namespace octavo::projection
