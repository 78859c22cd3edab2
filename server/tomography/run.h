#pragma once

#include <memory>
#include <stop_token>

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/source/push_projections.h"
#include "server/tomography/layout.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

class BufferStore;

/// A planned tomography job on one device.
struct TomographyTask {
  const TomographySpec* spec = nullptr;
  const TomographyLayout* layout = nullptr;
  std::shared_ptr<storage::ProjectionInput> input;  // null: what `port` will have
  ProjectionPort* port = nullptr;
  BufferStore* initial = nullptr;  // has the volume or buffer to start from; null: none
  int64_t slices_per_batch = 1;
  TomographyMemory memory;  // as planned
  bool on_disk = false;
};

/// Waits for pushed projections, finds the axis, and makes result 0 of the plan batch by batch.
absl::Status RunTomography(JobRun& run, std::stop_token stop, const TomographyTask& task);

}  // namespace octavo::engine
