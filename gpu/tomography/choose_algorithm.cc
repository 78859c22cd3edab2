#include <algorithm>
#include <cmath>

#include "gpu/tomography/gridding.h"
#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {

TomographyAlgorithm ChooseAlgorithm(const TomographyConfig& c, Device& device) {
  if (c.algorithm != TomographyAlgorithm::kAuto) return c.algorithm;
  // FOURIER is made to be as good as FBP with linear interpolation (gridding.h).
  if (c.interpolation != math::RayInterpolation::kLinear) return TomographyAlgorithm::kFbp;
  const absl::StatusOr<GriddingOps*> ops = FindOperators<GriddingOps>(device);
  if (!ops.ok()) return TomographyAlgorithm::kFbp;
  const GriddingShape g = ShapeGridding(c, PlanGrid(c), (*ops)->Choice());
  const auto lines = static_cast<double>(g.lines), detectors = static_cast<double>(g.detectors),
             pixels = static_cast<double>(g.image_size * g.image_size),
             points = static_cast<double>(g.grid_size * g.grid_size),
             values = lines * static_cast<double>(g.length),
             samples = lines * static_cast<double>(g.samples());
  const GriddingMemory memory = (*ops)->Memory(g);  // of one pair of slices
  const double bytes =
      sizeof(ComplexF) * (points + static_cast<double>(memory.samples + memory.work));
  const double quarter = 0.25 * static_cast<double>(device.info().total_bytes);
  if (bytes > (c.auto_bytes > 0 ? std::min(quarter, static_cast<double>(c.auto_bytes)) : quarter))
    return TomographyAlgorithm::kFbp;
  const DirectCosts costs = (*ops)->Costs();
  const double filter =
      detectors * (costs.filter * detectors + costs.filter_level * std::log2(2 * detectors));
  const double fbp = lines * (costs.back * pixels + filter);
  // A pair of slices: a transform of the rows (three, with a cut), and one and a half of the grid.
  const double levels = (g.cut ? 3 : 1) * values * std::log2(static_cast<double>(g.length)) +
                        1.5 * points * std::log2(static_cast<double>(g.grid_size));
  const double fourier = costs.start + 0.5 * (costs.sample * samples + costs.transform * levels);
  return fourier < fbp ? TomographyAlgorithm::kFourier : TomographyAlgorithm::kFbp;
}

}  // namespace octavo::inline gpu
