#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/layout.h"
#include "server/tomography/mosaic_input.h"

namespace octavo::buffer {
class ArrayInput;
}  // namespace octavo::buffer

namespace octavo::source {
class ProjectionPort;
}  // namespace octavo::source

namespace octavo::tomography {

/// A planned tomography job on one device.
struct TomographyTask {
  const model::TomographySpec* spec = nullptr;
  const TomographyLayout* layout = nullptr;                     // of a series: of its first volume
  std::shared_ptr<storage::ProjectionInput> input;              // null: the frames of `port`
  const MosaicInput* mosaic = nullptr;                          // the input, if it is one
  const std::vector<model::MosaicTileReport>* tiles = nullptr;  // of a mosaic
  source::ProjectionPort* port = nullptr;
  const buffer::ArrayInput* initial = nullptr;  // the initial slices; null: none
  std::vector<model::IndexRange>
      half_turns;  // HalfTurnsOf, of an input that is there; may be empty
  int64_t slices_per_batch = 1;
  TomographyMemory memory;  // as planned
  bool on_disk = false;
};

/// Waits for pushed projections, finds the axis, and makes result 0 of the plan batch by batch; of
/// a series (TomographySpec::series) one result after the other, each as soon as its projections
/// are there.
absl::Status RunTomography(job::JobRun& run, std::stop_token stop, const TomographyTask& task);

}  // namespace octavo::tomography
