#include <algorithm>
#include <cmath>
#include <numbers>

#include "gpu/tomography/gridding.h"
#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {
namespace {

// Projections of each half turn for each bin. With few of them the errors of both are streaks, and
// of some scans over 360° FBP's are up to 0.3 dB smaller.
double DensityOf(const TomographyConfig& c) {
  const auto [least, most] = std::minmax_element(c.angles_rad.begin(), c.angles_rad.end());
  const double half_turns = std::max(1.0, std::round((*most - *least) / std::numbers::pi));
  return static_cast<double>(c.angles_rad.size()) / (half_turns * static_cast<double>(c.detectors));
}

}  // namespace

TomographyAlgorithm ChooseAlgorithm(const TomographyConfig& c, Device& device) {
  if (c.algorithm != TomographyAlgorithm::kAuto) return c.algorithm;
  constexpr double kLeastDensity = 0.6;
  if (c.interpolation != math::RayInterpolation::kLinear || DensityOf(c) < kLeastDensity)
    return TomographyAlgorithm::kFbp;
  const absl::StatusOr<GriddingOps*> ops = FindOperators<GriddingOps>(device);
  if (!ops.ok()) return TomographyAlgorithm::kFbp;
  const GriddingShape g = ShapeGridding(c, PlanTomography(c));
  const auto lines = static_cast<double>(g.lines), detectors = static_cast<double>(g.detectors),
             pixels = static_cast<double>(g.image_size * g.image_size),
             points = static_cast<double>(g.grid_size * g.grid_size),
             samples = lines * static_cast<double>(g.length);
  // Grid, the columns of the image and the samples of one pair of slices.
  const double bytes = sizeof(ComplexF) * (1.5 * points + 2 * samples);
  if (bytes > 0.25 * static_cast<double>(device.info().total_bytes))
    return TomographyAlgorithm::kFbp;
  const DirectCosts costs = (*ops)->Costs();
  const double fbp = lines * (costs.back * pixels + costs.filter * detectors * detectors);
  // A pair of slices: a transform of the rows (three, with a cut), and one and a half of the grid.
  const double levels = (g.cut ? 3 : 1) * samples * std::log2(static_cast<double>(g.length)) +
                        1.5 * points * std::log2(static_cast<double>(g.grid_size));
  const double fourier = costs.start + 0.5 * (costs.sample * samples + costs.transform * levels);
  return fourier < fbp ? TomographyAlgorithm::kFourier : TomographyAlgorithm::kFbp;
}

}  // namespace octavo::inline gpu
