#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/motion_contrast.h"
#include "server/model/status_types.h"
#include "server/pattern/cartesian.h"

namespace octavo::model {

/// An operation on the voxels of a volume as an array [y, x, z].
struct OpSpec {
  Op op;
  double begin_um = 0,
         end_um = 0;  // slabs: if end_um > 0, the range by the volume's spacing instead of samples
  bool filter_um = false;  // filters: sigma or size are in um; surfaces: thickness
};

/// All fields as in octavo.v1.Angiography.
struct AngiographyOperation {
  MotionContrast method = MotionContrast::kAmplitudeDecorrelation;
};
enum class DopplerBetween : uint8_t { kDefault = 0, kRepeats = 1, kAscans = 2 };
/// All fields as in octavo.v1.Doppler.
struct DopplerOperation {
  DopplerBetween between = DopplerBetween::kDefault;
  int64_t half_window = 0;
};
/// As octavo.v1.VolumeOperation: a step from a volume to a new one.
using VolumeOperation =
    std::variant<pattern::CartesianGrid, AngiographyOperation, DopplerOperation, OpSpec>;

/// Plans `operation` on a volume described by `*state`, and changes that to the description of the
/// result: shape (always three axes), dtype, axes, spacing, levels, quantity, the operation in
/// words. InvalidArgument names fields below `at`.
absl::StatusOr<std::shared_ptr<const ArrayChain>> PlanVolumeOperation(const OpSpec& operation,
                                                                      const std::string& at,
                                                                      VolumeStatus* state);

/// Operations on every volume of a scan as it completes.
struct DerivedVolumeRecipe {
  std::string name;
  std::vector<OpSpec> operations;
};
struct DerivedVolumeRecipes {
  std::vector<DerivedVolumeRecipe> chains;
  std::vector<std::string> encoded;  // as received, for answers
};

}  // namespace octavo::model
