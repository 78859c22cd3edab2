#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/tomography/reconstruct.h"
#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/preview_maker.h"
#include "server/tomography/run.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Slices of a result, and the memory of their sinograms and their images.
struct BatchImages {
  int64_t first = 0, count = 0;
  DeviceSpan<const float> sinograms;
  float* images = nullptr;
};

/// Makes the slices of a batch from its sinograms, with a preview now and then, and reports the
/// iterations. With a single axis, all batches share one plan of the reconstruction, otherwise the
/// plans share their tables. Used by the job's thread only; the stream must have passed its work
/// before it is destroyed.
class SliceMaker {
 public:
  SliceMaker(job::JobRun& run, std::stop_token stop, const TomographyTask& task,
             PreviewMaker& previews, model::TomographyReport& report)
      : run_(run),
        stop_(std::move(stop)),
        task_(task),
        spec_(*task.spec),
        previews_(previews),
        report_(report) {}

  /// Steps of one batch.
  int64_t iterations() const {
    return IsIterative(spec_.reconstruction.algorithm) ? spec_.reconstruction.iterations : 1;
  }
  /// Returns the norm of the batch's residual; NaN if the algorithm has none.
  absl::StatusOr<double> Make(const ScannedObject& object, const BatchImages& batch);
  /// Sets the residual of all batches together, and warns of iterations that were too few.
  void Conclude();
  /// After the last batch, which the stream has passed: gives the memory back.
  void Release();

 private:
  absl::Status PlanFor(const ScannedObject& object, const BatchImages& batch);
  absl::StatusOr<DeviceSpan<const float>> InitialOf(const TomographyLayout& layout, int64_t first,
                                                    int64_t count);
  absl::Status Preview(const ScannedObject& object, const BatchImages& batch, bool made);
  double Tell(const BatchImages& batch, const TomographyResult& result,
              const std::vector<double>& first_norms);
  void TellGaps(const TomographyResult& result);

  job::JobRun& run_;
  const std::stop_token stop_;
  const TomographyTask& task_;
  const model::TomographySpec& spec_;
  PreviewMaker& previews_;
  model::TomographyReport& report_;
  SharedTables tables_;
  std::unique_ptr<Reconstructor> reconstructor_;
  void* initial_ = nullptr;
  PinnedBuffer host_initial_;
  double squares_ = -1, first_squares_ = 0;  // of the residuals; < 0: none
  int64_t tv_slices_ = 0, far_slices_ = 0;   // of total variation; that ended far from the minimum
};

}  // namespace octavo::tomography
