#pragma once

#include <cstdint>

#include "gpu/tomography/preprocess.h"

// What gpu/tomography/preprocess.cc works with: sizes that follow from a configuration.
namespace octavo::inline gpu {

struct PreparePlan {
  int64_t angles = 0, rows = 0, columns = 0;  // binned and cropped
  int64_t first_row = 0, first_column = 0;    // raw pixel where the worked on area begins
  int64_t work_rows = 0,
          work_columns = 0;  // binned; with phase retrieval all there is, else what is kept
  int64_t skip_rows = 0, skip_columns = 0;  // of the worked on area, before what is kept
  double phase_scale_rows = 0, phase_scale_columns = 0;  // of squares of cycles per binned pixel
  int64_t pad_rows = 0, pad_columns = 0, padded_rows = 0, padded_columns = 0;
  PreparedShape shape;
};
/// Of a configuration that CheckPrepare takes.
PreparePlan PlanPrepare(const PrepareConfig& config);

/// sqrt(δ/β λ d / 4π) in raw pixels: the length over which phase retrieval's kernel falls by e.
double PhaseLengthPixels(const PhaseRetrieval& phase);

}  // namespace octavo::inline gpu
