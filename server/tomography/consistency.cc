#include "server/tomography/consistency.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "tbb/parallel_for.h"

namespace octavo::tomography {
namespace {

constexpr double kMostAtEnds = 0.05;  // of the highest value of a projection: air
constexpr double kLeastMass = 0.1;    // of the heaviest slice: others hardly show the object

/// Reorders them.
double MedianOf(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Sums of one projection, d the distance of a column from the middle of the detector.
struct RowSums {
  double values = 0, first = 0, second = 0;  // of v, v d and v d^2
  float highest = 0;
};

RowSums SumsOf(const float* row, int64_t columns) {
  constexpr int64_t kLanes = 8;  // sums that do not wait for one another
  const double middle = 0.5 * static_cast<double>(columns - 1);
  double values[kLanes] = {}, first[kLanes] = {}, second[kLanes] = {};
  float highest[kLanes] = {};
  for (int64_t begin = 0; begin < columns; begin += kLanes) {
    const int64_t count = std::min(kLanes, columns - begin);
    for (int64_t k = 0; k < count; ++k) {
      const double value = static_cast<double>(row[begin + k]),
                   d = static_cast<double>(begin + k) - middle;
      values[k] += value;
      first[k] += value * d;
      second[k] += value * d * d;
      highest[k] = std::max(highest[k], row[begin + k]);
    }
  }
  RowSums out;
  for (int64_t k = 0; k < kLanes; ++k) {
    out.values += values[k], out.first += first[k], out.second += second[k];
    out.highest = std::max(out.highest, highest[k]);
  }
  return out;
}

/// The higher mean of the two ends, relative to the highest value.
double AtEnds(const float* row, int64_t columns, float highest) {
  const int64_t rim = std::max<int64_t>(1, columns / 50);
  double left = 0, right = 0;
  for (int64_t c = 0; c < rim; ++c) {
    left += static_cast<double>(row[c]);
    right += static_cast<double>(row[columns - 1 - c]);
  }
  if (highest <= 0) return 1;
  return std::max(std::abs(left), std::abs(right)) / static_cast<double>(rim) /
         static_cast<double>(highest);
}

/// The standard deviation of a centre of mass by the noise of the columns. That of a column is the
/// median of |a - 2 b + c| of it and its neighbours, which is 1.652 standard deviations, because
/// an object is smooth next to its noise in most projections.
double CenterNoiseOf(const float* sinogram, int64_t angles, int64_t columns, double mean_mass) {
  constexpr int64_t kMostAngles = 256, kTogether = 32;  // columns that lie in few cache lines
  const int64_t step = (angles + kMostAngles - 1) / kMostAngles, inner = columns - 2;
  const double middle = 0.5 * static_cast<double>(columns - 1);
  if (inner <= 0) return 0;
  std::vector<double> squares(static_cast<size_t>(inner));
  tbb::parallel_for(int64_t{0}, (inner + kTogether - 1) / kTogether, [&](int64_t block) {
    const int64_t begin = 1 + block * kTogether, count = std::min(kTogether, 1 + inner - begin);
    std::vector<std::vector<double>> differences(static_cast<size_t>(count));
    for (int64_t a = 0; a < angles; a += step) {
      const float* const at = sinogram + a * columns + begin;
      for (int64_t k = 0; k < count; ++k) {
        differences[static_cast<size_t>(k)].push_back(std::abs(static_cast<double>(at[k - 1]) -
                                                               2 * static_cast<double>(at[k]) +
                                                               static_cast<double>(at[k + 1])));
      }
    }
    for (int64_t k = 0; k < count; ++k) {
      const double lever =
          (static_cast<double>(begin + k) - middle) * MedianOf(differences[static_cast<size_t>(k)]);
      squares[static_cast<size_t>(begin + k - 1)] = lever * lever;
    }
  });
  // In their order, so that the sum does not depend on the threads.
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0)) / 1.652 / mean_mass;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Takes the part along `direction`, of length 1, from `values`.
void Remove(const std::vector<double>& direction, std::vector<double>* values) {
  const double part = Dot(*values, direction);
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] -= part * direction[i];
}

// The mean square of the distance of `centers` from the curve c + a cos t + b sin t that fits best,
// with the axis as c if it is given. Least squares by Gram and Schmidt, because over half a turn
// the three terms are far from orthogonal.
double SquareOffCurve(std::vector<double> centers, const std::vector<double>& angles_rad,
                      std::optional<double> axis) {
  const size_t n = centers.size();
  std::vector<std::vector<double>> terms(2, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    terms[0][i] = std::cos(angles_rad[i]);
    terms[1][i] = std::sin(angles_rad[i]);
    if (axis.has_value()) centers[i] -= *axis;
  }
  if (!axis.has_value()) terms.emplace_back(n, 1.0);
  std::vector<std::vector<double>> basis;
  for (std::vector<double>& term : terms) {
    for (const std::vector<double>& direction : basis) Remove(direction, &term);
    const double length = std::sqrt(Dot(term, term));
    if (length < 1e-6 * std::sqrt(static_cast<double>(n))) continue;  // depends on the others
    for (double& value : term) value /= length;
    basis.push_back(std::move(term));
  }
  for (const std::vector<double>& direction : basis) Remove(direction, &centers);
  return Dot(centers, centers) / static_cast<double>(n);
}

double SquareOffMean(const SliceMoments& slice) {
  double squares = 0;
  for (const double mass : slice.mass) {
    const double off = mass / slice.mean_mass - 1;
    squares += off * off;
  }
  return squares / static_cast<double>(slice.mass.size());
}

}  // namespace

bool Consistency::off_path(bool axis_seen) const {
  // Of the distance: false angles leave more. Of the width: less may be a beam that changes, or
  // values that are no exact integrals. Standard deviations of the noise, in a mean over all
  // projections.
  const double of_distance = axis_seen ? 0.4 : 0.3, of_width = axis_seen ? 0.025 : 0.015,
               of_noise = axis_seen ? 5 : 3;
  return center_deviation > of_distance * center_distance && center_deviation > of_width * width &&
         center_deviation > of_noise * center_noise;
}

SliceMoments MomentsOf(const float* sinogram, int64_t angles, int64_t columns) {
  const auto n = static_cast<size_t>(angles);
  SliceMoments out{.mass = std::vector<double>(n), .center = std::vector<double>(n)};
  std::vector<double> ends(n), squares(n);
  tbb::parallel_for(size_t{0}, n, [&](size_t a) {
    const float* const row = sinogram + static_cast<int64_t>(a) * columns;
    const RowSums sums = SumsOf(row, columns);
    const double off = sums.values != 0 ? sums.first / sums.values : 0;  // from the middle
    out.mass[a] = sums.values;
    out.center[a] = sums.values != 0 ? off + 0.5 * static_cast<double>(columns - 1) : 0;
    squares[a] = sums.second - off * sums.first;
    ends[a] = AtEnds(row, columns, sums.highest);
  });
  const double total = std::accumulate(out.mass.begin(), out.mass.end(), 0.0),
               square = std::accumulate(squares.begin(), squares.end(), 0.0);
  out.mean_mass = total / static_cast<double>(angles);
  out.width = total > 0 && square > 0 ? std::sqrt(square / total) : 0;
  out.ends = MedianOf(ends);
  if (out.mean_mass > 0) out.center_noise = CenterNoiseOf(sinogram, angles, columns, out.mean_mass);
  return out;
}

std::optional<Consistency> ConsistencyOf(const std::vector<SliceMoments>& slices,
                                         const std::vector<double>& angles_rad,
                                         const std::vector<double>& axes) {
  double heaviest = 0;
  for (const SliceMoments& slice : slices) heaviest = std::max(heaviest, slice.mean_mass);
  double weights = 0, mass = 0, center = 0, both = 0, distance = 0, noise = 0, width = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const SliceMoments& slice = slices[i];
    if (!(slice.mean_mass > kLeastMass * heaviest) || slice.width <= 0) continue;
    if (slice.ends > kMostAtEnds) return std::nullopt;
    const double mass_square = SquareOffMean(slice),
                 center_square =
                     SquareOffCurve(slice.center, angles_rad,
                                    axes.empty() ? std::nullopt : std::optional<double>(axes[i])),
                 weight = slice.mean_mass * slice.mean_mass;
    weights += weight;
    mass += weight * mass_square;
    center += weight * center_square;
    both += weight * (mass_square + center_square / (slice.width * slice.width));
    const double from = axes.empty()
                            ? Dot(slice.center, std::vector<double>(slice.center.size(), 1.0)) /
                                  static_cast<double>(slice.center.size())
                            : axes[i];
    double square = 0;
    for (const double at : slice.center) square += (at - from) * (at - from);
    distance += weight * square / static_cast<double>(slice.center.size());
    noise += weight * slice.center_noise * slice.center_noise;
    width += weight * slice.width;
  }
  // Sums of noise alone differ by more than their mean.
  if (weights <= 0 || !(mass < weights) || !std::isfinite(both)) return std::nullopt;
  return Consistency{.mass_deviation = std::sqrt(mass / weights),
                     .center_deviation = std::sqrt(center / weights),
                     .score = std::sqrt(both / weights),
                     .center_distance = std::sqrt(distance / weights),
                     .center_noise = std::sqrt(noise / weights),
                     .width = width / weights};
}

}  // namespace octavo::tomography
