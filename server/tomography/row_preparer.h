#pragma once

#include <memory>
#include <stop_token>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/tomography/preprocess.h"
#include "server/job/job.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/layout.h"

namespace octavo::tomography {

class TomographyLoader;

/// Sinograms of a few rows.
struct PreparedRows {
  float* data = nullptr;  // allocated from the run
  PreparedShape shape;
  PrepareCounts counts;
  DeviceSpan<const float> sinograms() const { return {data, shape.elements()}; }
};

/// Makes sinograms of a few rows at a time, for the search of the axis, for previews and for tried
/// axes. Used by the job's thread only.
class RowPreparer {
 public:
  RowPreparer(job::JobRun& run, std::stop_token stop) : run_(run), stop_(std::move(stop)) {}

  /// Loads and prepares the rows; waits for the stream. The caller frees the data. Frees everything
  /// after an error, because previews are tried again. `for_overlap`: without stitching and rings.
  absl::StatusOr<PreparedRows> Prepare(const TomographyLayout& layout,
                                       std::shared_ptr<storage::ProjectionInput> input,
                                       const BatchRows& rows, bool for_overlap);

 private:
  absl::StatusOr<PreparedRows> PrepareFrom(TomographyLoader& loader, const PrepareConfig& config);

  job::JobRun& run_;
  const std::stop_token stop_;
};

/// Long work on the device goes on until `stop` is requested.
inline CancelCheck Until(std::stop_token stop) {
  return [stop = std::move(stop)] { return !stop.stop_requested(); };
}

}  // namespace octavo::tomography
