#pragma once

#include <cstdint>

#include "gpu/math/prepare.h"
#include "gpu/tomography/preprocess.h"

// The sizes that follow from a configuration, for gpu/tomography/preprocess.cc.
namespace octavo::inline gpu {

struct PreparePlan {
  int64_t angles = 0, rows = 0, columns = 0;  // binned and cropped
  int64_t first_row = 0, first_column = 0;    // the first raw pixel of the processed area
  int64_t
      work_rows = 0,
      work_columns =
          0;  // of the processed area, binned: with phase retrieval the whole frame, else the crop
  int64_t skip_rows = 0, skip_columns = 0;  // of the processed area, before the crop
  math::PhaseFilter phase;                  // for frequencies in cycles per binned pixel
  int64_t pad_rows = 0, pad_columns = 0, padded_rows = 0, padded_columns = 0;
  PreparedShape shape;
};
/// `config` must be valid (CheckPrepare).
PreparePlan PlanPrepare(const PrepareConfig& config);

}  // namespace octavo::inline gpu
