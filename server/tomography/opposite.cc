#include "server/tomography/opposite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

namespace octavo::tomography {
namespace {

constexpr double kPi = std::numbers::pi, kDegrees = 180 / kPi;
constexpr double kFarthest = 10 / kDegrees;
constexpr double kSame = 1e-4;  // radians: as near as another pair

double InTurn(double angle) {
  const double turned = angle - 2 * kPi * std::floor(angle / (2 * kPi));
  return turned < 2 * kPi ? turned : 0;  // rounded up
}

}  // namespace

std::optional<model::OppositeProjections> OppositeOf(const model::IndexRange& used,
                                                     const std::vector<double>& angles_rad) {
  std::vector<std::pair<double, int64_t>> directions;  // in order, with their projections
  for (int64_t i = used.begin; i < used.end; i += used.step)
    directions.emplace_back(InTurn(angles_rad[static_cast<size_t>(i)]), i);
  std::sort(directions.begin(), directions.end());
  std::optional<model::OppositeProjections> nearest;
  double least = kFarthest;
  for (int64_t i = used.begin; i < used.end; i += used.step) {
    const double angle = angles_rad[static_cast<size_t>(i)], wanted = InTurn(angle + kPi);
    const auto after = std::lower_bound(directions.begin(), directions.end(),
                                        std::pair<double, int64_t>(wanted, 0));
    // The next ones on both sides; the first direction follows the last one.
    for (const auto& [direction, index] :
         {after == directions.end() ? directions.front() : *after,
          after == directions.begin() ? directions.back() : *(after - 1)}) {
      const double off = std::remainder(direction - angle - kPi, 2 * kPi);
      if (std::abs(off) > least - (nearest.has_value() ? kSame : 0)) continue;
      least = std::abs(off);
      nearest = {.first = i, .second = index, .degrees = (kPi + off) * kDegrees};
    }
  }
  return nearest;
}

}  // namespace octavo::tomography
