#include "server/derive/missing_ascans.h"

#include <algorithm>
#include <iterator>

#include "gpu/math/gather_ascans.h"
#include "server/pattern/plan.h"

namespace octavo::derive {
namespace {

bool IsMissing(const AscanRanges& missing, int64_t ascan) {
  auto it = std::upper_bound(missing.begin(), missing.end(), ascan,
                             [](int64_t a, const auto& range) { return a < range.first; });
  return it != missing.begin() && ascan < std::prev(it)->first + std::prev(it)->second;
}

// Neighbouring A-scans as ranges.
void AddAscan(int64_t ascan, AscanRanges* ranges) {
  if (!ranges->empty() && ranges->back().first + ranges->back().second == ascan) {
    ++ranges->back().second;
  } else {
    ranges->emplace_back(ascan, 1);
  }
}

}  // namespace

std::vector<int32_t> RepeatOrder(const pattern::Pattern& pattern) {
  std::vector<int32_t> order;
  for (int64_t b = 0; b < pattern.bscans_per_volume; ++b) {
    for (int64_t r = 0; r < pattern.repeat_count; ++r)
      order.push_back(static_cast<int32_t>(pattern::RepeatRow(pattern, b, r)));
  }
  return order;
}

AscanRanges MissingOverRepeats(const pattern::Pattern& pattern, const std::vector<int32_t>& order,
                               int64_t columns, const AscanRanges& missing) {
  AscanRanges out;
  for (int64_t a = 0; a < pattern.bscans_per_volume * columns; ++a) {
    bool lacks = false;
    for (int64_t r = 0; r < pattern.repeat_count; ++r) {
      lacks |= IsMissing(
          missing, order[static_cast<size_t>(a / columns * pattern.repeat_count + r)] * columns +
                       a % columns);
    }
    if (lacks) AddAscan(a, &out);
  }
  return out;
}

AscanRanges MissingOverAscans(int64_t rows, int64_t columns, const AscanRanges& missing) {
  AscanRanges out;
  for (int64_t a = 0; a < rows * columns; ++a) {
    const int64_t from = a / columns * (columns + 1) + a % columns;
    if (IsMissing(missing, from) || IsMissing(missing, from + 1)) AddAscan(a, &out);
  }
  return out;
}

AscanRanges MissingOfGrid(const pattern::Pattern& pattern, const pattern::CartesianGrid& grid,
                          const pattern::CartesianTaps& taps) {
  const pattern::CartesianTaps whole = pattern::MakeCartesianTaps(pattern, grid, {});
  const auto sum = [](const pattern::CartesianTaps& of, int64_t a) {
    float weights = 0;
    for (int64_t t = 0; t < of.taps; ++t)
      weights += of.weight[static_cast<size_t>(a * of.taps + t)];
    return weights;
  };
  AscanRanges out;
  for (int64_t a = 0; a < grid.rows * grid.columns; ++a) {
    if (sum(taps, a) < math::kLeastWeight && sum(whole, a) >= math::kLeastWeight) AddAscan(a, &out);
  }
  return out;
}

}  // namespace octavo::derive
