#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/device/host/fft_plan.h"
#include "gpu/tomography/reconstruct_kernels.h"

// The filter of projections on the host: by transforms, because a convolution of N detectors takes
// N² products a row. Two rows of a slice are the real and the imaginary part of one transform; the
// filter is even, so its transform is real and the rows stay apart. A slice's rows are paired in
// the same way whatever is computed beside them: the result does not depend on the batch.
namespace octavo::inline gpu::host {

/// A filter as the transforms need it. Immutable.
struct FilterPlan {
  FftPlan fft;                  // of a fast length that has room for a convolution
  std::vector<float> response;  // [length / 2 + 1] of the filter, / length
};
/// `taps` as in RowFilter.
FilterPlan MakeFilterPlan(const float* taps, int64_t detectors);

/// The plan of the latest taps. Any thread may call it.
class LatestFilterPlan {
 public:
  std::shared_ptr<const FilterPlan> Of(const float* taps, int64_t detectors);

 private:
  std::mutex mutex_;
  std::vector<float> taps_;
  std::shared_ptr<const FilterPlan> plan_;
};

/// Rows that FilterStrip filters together.
int64_t FilterStripRows(const RayView& view);
/// Floats of scratch of FilterStrip, aligned to 64 bytes.
int64_t FilterScratch(const FilterPlan& plan);
/// Filters the rows from `first` on, at most FilterStripRows, in front of `end`. Rows are counted
/// from the beginning of `in` and `out`; `first` is even within its slice.
void FilterStrip(const RayView& view, const RowFilter& filter, const FilterPlan& plan,
                 int64_t first, int64_t end, const float* in, float* out, float* scratch);

}  // namespace octavo::inline gpu::host
