#include "gpu/tomography/directions.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"

#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr double kPi = std::numbers::pi, kDegree = kPi / 180;
constexpr double kSame = 1e-9;   // rad: two projections of one direction
constexpr double kApart = 0.75;  // least steps between compared places
constexpr double kReach = 1.6;   // steps from a place to its nearest projection; up to one and a
                                 // half at either end of half a turn

double Turned(double angle, double turn) {
  const double turned = angle - turn * std::floor(angle / turn);
  return turned < turn ? turned : 0;  // a number slightly below 0 rounds up
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The angles of a whole turn in ascending order, beginning after their widest gap.
struct Sorted {
  std::vector<int64_t> rows;
  std::vector<double> angles;  // from the first one, 0 … 2π
  double gap = 0;              // the widest gap, after the last angle
};
Sorted SortTurn(const std::vector<double>& angles_rad) {
  Sorted out;
  out.rows.resize(angles_rad.size());
  std::iota(out.rows.begin(), out.rows.end(), int64_t{0});
  std::vector<double> turned;
  for (const double angle : angles_rad) turned.push_back(Turned(angle, 2 * kPi));
  const auto angle_of = [&](int64_t row) { return turned[static_cast<size_t>(row)]; };
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [&](int64_t a, int64_t b) { return angle_of(a) < angle_of(b); });
  out.gap = angle_of(out.rows.front()) + 2 * kPi - angle_of(out.rows.back());
  std::ptrdiff_t begin = 0;
  for (size_t i = 1; i < out.rows.size(); ++i) {
    const double gap = angle_of(out.rows[i]) - angle_of(out.rows[i - 1]);
    if (gap <= out.gap + kSame) continue;
    out.gap = gap;
    begin = static_cast<std::ptrdiff_t>(i);
  }
  std::rotate(out.rows.begin(), out.rows.begin() + begin, out.rows.end());
  for (const int64_t row : out.rows)
    out.angles.push_back(Turned(angle_of(row) - angle_of(out.rows.front()), 2 * kPi));
  return out;
}

}  // namespace

Directions::Directions(const std::vector<double>& angles_rad) {
  // Each projection also counts from the opposite side, half a turn before and after, so that
  // projections near the ends of 0 … π have neighbours.
  struct Placed {
    double direction;
    int64_t row;
    int half;
  };
  std::vector<Placed> placed;
  for (size_t i = 0; i < angles_rad.size(); ++i) {
    const double angle = Turned(angles_rad[i], 2 * kPi);
    const int half = angle >= kPi ? 1 : 0;
    for (const int turn : {-1, 0, 1}) {
      placed.push_back({.direction = angle - half * kPi + turn * kPi,
                        .row = static_cast<int64_t>(i),
                        .half = turn == 0 ? half : 1 - half});
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.direction < b.direction; });
  std::vector<double> steps;
  for (size_t i = 0; i < placed.size(); ++i) {
    const Placed& look = placed[i];
    if (auto& before = looks_[look.half];
        !before.empty() && look.direction - before.back().direction > kSame) {
      steps.push_back(look.direction - before.back().direction);
    }
    looks_[look.half].push_back({.direction = look.direction, .row = look.row});
    if (i == 0 || placed[i - 1].half == look.half) continue;
    const double between = 0.5 * (placed[i - 1].direction + look.direction);
    if (between >= 0 && between < kPi) between_.push_back(between);
  }
  step_ = steps.empty() ? kPi : Median(std::move(steps));
  // Views at nearly the same place are the same view.
  std::vector<double> apart;
  for (const double place : between_) {
    if (apart.empty() || place - apart.back() >= kApart * step_) apart.push_back(place);
  }
  between_ = std::move(apart);
}

bool Directions::Estimate(int half, double direction, int64_t neighbours, WeightedRows* out) const {
  const std::vector<Look>& looks = looks_[half];
  auto right = std::lower_bound(looks.begin(), looks.end(), direction,
                                [](const Look& look, double at) { return look.direction < at; });
  auto left = right;
  std::vector<double> off;  // in steps
  double mean = 0;
  double ends[2] =
      {};  // ends of the range in use; projections of one direction count as one neighbour
  for (int64_t taken = 0; left != looks.begin() || right != looks.end();) {
    const bool to_right = left == looks.begin() ||
                          (right != looks.end() &&
                           right->direction - direction <= direction - std::prev(left)->direction);
    const Look& next = to_right ? *right : *std::prev(left);
    const double steps = (next.direction - direction) / step_;
    if (std::abs(steps) > kReach + (off.empty() ? 0 : static_cast<double>(neighbours))) break;
    const bool same = !off.empty() && (std::abs(next.direction - ends[0]) <= kSame ||
                                       std::abs(next.direction - ends[1]) <= kSame);
    if (!same && taken++ == neighbours) break;
    if (off.empty()) ends[0] = ends[1] = next.direction;
    ends[to_right ? 1 : 0] = next.direction;
    to_right ? ++right : --left;
    out->rows.push_back(next.row);
    off.push_back(steps);
    mean += steps;
  }
  if (off.empty()) return false;
  mean /= static_cast<double>(off.size());
  double spread = 0;
  for (const double steps : off) spread += (steps - mean) * (steps - mean);
  for (const double steps : off) {
    out->weights.push_back(1 / static_cast<double>(off.size()) -
                           (spread > 1e-6 ? mean * (steps - mean) / spread : 0));
  }
  return true;
}

std::vector<OppositeViews> Directions::Opposites(int64_t neighbours, int64_t most) const {
  std::vector<OppositeViews> out;
  const auto places = static_cast<int64_t>(between_.size()), count = std::min(places, most);
  for (int64_t i = 0; i < count; ++i) {
    const double direction = between_[static_cast<size_t>(i * places / count)];
    OppositeViews views;
    if (!Estimate(0, direction, neighbours, &views.front) ||
        !Estimate(1, direction, neighbours, &views.behind))
      continue;
    double variance = 0;
    for (const WeightedRows* rows : {&views.front, &views.behind}) {
      for (const double weight : rows->weights) variance += weight * weight;
    }
    views.quality = 1 / variance;
    out.push_back(std::move(views));
  }
  return out;
}

absl::StatusOr<HalfTurn> OneHalfTurn(const std::vector<double>& angles_rad) {
  const Sorted sorted = SortTurn(angles_rad);
  HalfTurn out;
  double widest = 0;
  const double allowed_beyond =
      0.25 * kPi /
      static_cast<double>(angles_rad.size());  // the opposite of the first angle, rounded
  for (size_t i = 0; i < sorted.rows.size() && sorted.angles[i] <= kPi + allowed_beyond; ++i) {
    if (i > 0) widest = std::max(widest, sorted.angles[i] - sorted.angles[i - 1]);
    out.rows.push_back(sorted.rows[i]);
    out.angles_rad.push_back(angles_rad[static_cast<size_t>(sorted.rows.front())] +
                             sorted.angles[i]);
  }
  widest = std::max(widest, kPi - (out.angles_rad.back() - out.angles_rad.front()));
  const double allowed =
      std::min(std::max(4 * kPi / static_cast<double>(out.rows.size()), 2 * kDegree), kPi / 2);
  if (out.rows.size() >= 2 && widest <= allowed) return out;
  return InvalidField(
      "angles_rad",
      absl::StrFormat("leaves %.1f° of a half turn without a projection; allowed are %.1f°",
                      widest / kDegree, allowed / kDegree));
}

std::vector<double> OtherEnd(const std::vector<double>& angles_rad) {
  const Sorted sorted = SortTurn(angles_rad);
  const double span = sorted.angles.back(), steps = static_cast<double>(angles_rad.size() - 1);
  if (!(span > 0) || std::abs(span - kPi + 0.5 * span / steps) > span / steps) return {};
  const double other = span > kPi - 0.5 * span / steps ? kPi * steps / (steps + 1) : kPi;
  std::vector<double> out(angles_rad.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[static_cast<size_t>(sorted.rows[i])] = sorted.angles[i] * other / span;
  return out;
}

}  // namespace octavo::inline gpu
