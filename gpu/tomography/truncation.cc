#include "gpu/tomography/truncation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace octavo::inline gpu {
namespace {

constexpr int64_t kDirections =
    32;                        // directions per slice: the mean projection of each has less noise
constexpr int64_t kOuter = 2;  // columns at an end of the detector
constexpr double kNextPart = 0.03;  // part of the columns, next to the outer ones, because the end
                                    // itself may be dead or overexposed
constexpr double kStretchPart = 0.05;  // part of the columns over which a projection is flat in air
constexpr double kFlat = 0.04;         // part of the contrast; a smaller change counts as flat
constexpr double kReaches =
    0.2;  // part of the direction's own contrast, at an end that the object reaches
constexpr double kLeastOwn =
    0.2;  // part of the whole contrast; directions with less contrast are ignored
constexpr double kLeastPart = 0.1;  // part of the directions
constexpr double kMostAir = 0.6;    // part of a direction's maximum; a disc that is a quarter wider
                                    // than the detector has more at its ends
constexpr double kNearlyAll = 0.9;  // part of the directions
constexpr double kSignificant = 5;  // standard deviations of noise

constexpr double kNarrowest =
    1.05;  // the least width assumed for an object wider than the detector

using Doubles = std::vector<double>;

double Quantile(Doubles values, double part) {
  if (values.empty()) return 0;
  const auto nth = values.begin() + std::lround(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

/// One end of the mean projection of neighbouring angles.
struct End {
  double level = 0;  // value at the end
  double step = 0;   // between the two halves of the stretch next to the end
};

struct Direction {
  End ends[2];  // left, right
  double top = 0;
};

End EndOf(const Doubles& row, bool right) {
  const auto n = std::ssize(row);
  const auto mean = [&](int64_t first, int64_t count) {
    double sum = 0;
    for (int64_t i = first; i < first + count; ++i)
      sum += row[static_cast<size_t>(right ? n - 1 - i : i)];
    return sum / static_cast<double>(count);
  };
  const int64_t outer = std::min(kOuter, n / 4 + 1);
  const int64_t next =
      std::min(std::max<int64_t>(2, std::lround(kNextPart * static_cast<double>(n))), n - outer);
  const int64_t half =
      std::min(std::max<int64_t>(2, std::lround(0.5 * kStretchPart * static_cast<double>(n))),
               (n - outer) / 2);
  return {.level = std::min(mean(0, outer), mean(outer, next)),
          .step = mean(outer + half, half) - mean(outer, half)};
}

/// The distance from the axis up to which a projection is seen: on both sides, or, over a full
/// turn, on one side.
double ReachOf(const TruncationConfig& c, double center) {
  const double left = center, right = static_cast<double>(c.detectors - 1) - center;
  return c.left && c.right ? std::min(left, right) : std::max(left, right);
}

/// Fits the squared mean projection with that of a disc, b (R² − s²), where s is the distance from
/// the axis. Returns the ratio of R to the farthest s that is seen on both sides, or, over a full
/// turn, on one side.
double WidthOf(const TruncationConfig& c, const Doubles& mean, double center) {
  const double reach = ReachOf(c, center);
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (int64_t d = 0; d < c.detectors; ++d) {
    const double s = static_cast<double>(d) - center;
    if (std::abs(s) > reach) continue;
    const double a = s * s / (reach * reach),
                 b = mean[static_cast<size_t>(d)] * mean[static_cast<size_t>(d)];
    ++count, x += a, y += b, xx += a * a, xy += a * b;
  }
  const double spread = count * xx - x * x;
  const double bend = spread > 0 ? -(count * xy - x * y) / spread : 0;
  if (bend <= 0) return kWidestObject;  // the object does not get thinner towards the ends
  return std::clamp(std::sqrt(std::max(0.0, (y + bend * x) / count / bend)), kNarrowest,
                    kWidestObject);
}

/// The columns [first, second) of the detector that light reached. The other columns lie at its
/// ends (slits, a beam that is narrower than the camera). Most of their values are the largest
/// possible one, the logarithm of the floor.
std::pair<int64_t, int64_t> LitColumns(const TruncationConfig& c,
                                       const std::vector<float>& sinograms) {
  const int64_t n = c.detectors, rows = std::ssize(sinograms) / n;
  const float highest = *std::max_element(sinograms.begin(), sinograms.end());
  const auto unlit = [&](int64_t d) {
    int64_t floored = 0;
    for (int64_t i = 0; i < rows; ++i)
      floored += sinograms[static_cast<size_t>(i * n + d)] == highest ? 1 : 0;
    return 2 * floored > rows;
  };
  int64_t first = 0, end = n;
  while (first < n && unlit(first)) ++first;
  while (end > first && unlit(end - 1)) --end;
  return {first, end};
}

}  // namespace

Truncation FindTruncation(const TruncationConfig& c, const std::vector<float>& sinograms) {
  const auto angles = std::ssize(c.angles_rad);
  const int64_t n = c.detectors, directions = std::min(angles, kDirections);
  Truncation out;
  if (n < 8 || angles < 1) return out;
  if (const auto [first, end] = LitColumns(c, sinograms); end - first < n) {
    if (end - first < 8) return out;
    TruncationConfig lit = c;
    lit.detectors = end - first;
    std::vector<float> seen;
    seen.reserve(static_cast<size_t>(c.slices * angles * lit.detectors));
    for (int64_t i = 0; i < c.slices * angles; ++i)
      seen.insert(seen.end(), &sinograms[static_cast<size_t>(i * n + first)],
                  &sinograms[static_cast<size_t>(i * n)] + end);
    for (double& center : lit.centers) center -= static_cast<double>(first);
    out = FindTruncation(lit, seen);
    if (!out.found) return out;
    // Relative to the field of view of the whole detector.
    out.width = std::clamp(out.width * ReachOf(lit, lit.centers[0]) / ReachOf(c, c.centers[0]), 1.0,
                           kWidestObject);
    out.found = out.width > 1;
    return out;
  }
  std::vector<int64_t> order(static_cast<size_t>(angles));
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto turned = [&](int64_t i) {
    const double turns = c.angles_rad[static_cast<size_t>(i)] / (2 * std::numbers::pi);
    return turns - std::floor(turns);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return turned(a) < turned(b); });

  std::vector<Direction> all;  // [slice, direction]
  Doubles row, tops, levels, differences;
  for (int64_t slice = 0; slice < c.slices; ++slice) {
    for (int64_t k = 0; k < directions; ++k) {
      const int64_t begin = k * angles / directions, end = (k + 1) * angles / directions;
      row.assign(static_cast<size_t>(n), 0.0);
      for (int64_t i = begin; i < end; ++i) {
        const float* const from =
            sinograms.data() + (slice * angles + order[static_cast<size_t>(i)]) * n;
        for (int64_t d = 0; d < n; ++d)
          row[static_cast<size_t>(d)] +=
              static_cast<double>(from[d]) / static_cast<double>(end - begin);
      }
      for (size_t d = 2; d < row.size(); ++d)
        differences.push_back(std::abs(row[d] - 2 * row[d - 1] + row[d - 2]));
      all.push_back({.ends = {EndOf(row, false), EndOf(row, true)}, .top = Quantile(row, 0.95)});
      tops.push_back(all.back().top);
      for (const End& e : all.back().ends) levels.push_back(e.level);
    }
  }
  const double noise =
      0.605 *
      Quantile(differences,
               0.5);  // noise of a column: the median of |a − 2 b + c| is 1.652 standard deviations
  const double top = Quantile(tops, 0.9), usual = Quantile(tops, 0.5),
               least = Quantile(levels, 0.25);
  // Air may not be at 0, because of darker flat fields or a beam that became weaker. Then nearly
  // all directions are flat at one end or both.
  double base = std::numeric_limits<double>::infinity();
  for (const size_t end : {size_t{0}, size_t{1}}) {
    Doubles there;
    for (const Direction& direction : all) there.push_back(direction.ends[end].level);
    const double level = Quantile(there, 0.5), contrast = kFlat * (usual - level),
                 half = std::max(2.0, 0.5 * kStretchPart * static_cast<double>(n));
    double staying = 0, steps = 0;
    for (const Direction& direction : all) {
      const End& e = direction.ends[end];
      const bool alike = std::abs(e.level - level) <= contrast + 3 * noise / std::sqrt(kOuter);
      if (alike && std::abs(e.step) <= contrast + 3 * noise * std::sqrt(2 / half)) ++staying;
      steps += e.step;
    }
    const auto count = static_cast<double>(all.size());
    if (level <= kMostAir * usual && staying >= kNearlyAll * count &&
        std::abs(steps) <= contrast * count)
      base = std::min(base, level);
  }
  if (!std::isfinite(base)) base = 0;
  if (top - base <= 2 * kSignificant * noise || top - least <= 4 * noise) return out;  // only noise
  double wide = 0, widths = 0;
  for (int64_t slice = 0; slice < c.slices; ++slice) {
    double most = 0;
    for (const bool right : {false, true}) {
      if (right ? !c.right : !c.left) continue;
      int64_t reached = 0;
      for (int64_t k = 0; k < directions; ++k) {
        const Direction& direction = all[static_cast<size_t>(slice * directions + k)];
        const double own = direction.top - base, there = direction.ends[right ? 1 : 0].level - base;
        if (own > kLeastOwn * (top - base) && there > kReaches * own &&
            there > kSignificant / std::sqrt(kOuter) * noise)
          ++reached;
      }
      const double part = static_cast<double>(reached) / static_cast<double>(directions);
      (right ? out.right : out.left) = std::max(right ? out.right : out.left, part);
      most = std::max(most, part);
    }
    if (most < kLeastPart) continue;
    row.assign(static_cast<size_t>(n), -base);
    for (int64_t i = 0; i < angles; ++i) {
      const float* const from = sinograms.data() + (slice * angles + i) * n;
      for (int64_t d = 0; d < n; ++d)
        row[static_cast<size_t>(d)] += static_cast<double>(from[d]) / static_cast<double>(angles);
    }
    widths += WidthOf(c, row, c.centers[c.centers.size() == 1 ? 0 : static_cast<size_t>(slice)]);
    ++wide;
  }
  out.found = wide > 0;
  if (out.found) out.width = widths / wide;
  return out;
}

}  // namespace octavo::inline gpu
