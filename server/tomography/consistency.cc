#include "server/tomography/consistency.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

namespace octavo::tomography {
namespace {

constexpr double kMostAtEnds = 0.05;  // of the highest value of a projection: air
constexpr double kLeastMass = 0.1;    // of the heaviest slice: others hardly show the object

/// The moments of the projections of one slice.
struct SliceMoments {
  std::vector<double> mass, center;  // of each projection
  double mean_mass = 0, width = 0;   // the standard deviation of columns, weighted by the values
  double ends = 1;                   // at the ends of the detector, relative to the highest value
  double center_noise = 0;           // of a centre
};

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The higher mean of the two ends, relative to the highest value.
double AtEnds(const float* row, int64_t columns) {
  const int64_t rim = std::max<int64_t>(1, columns / 50);
  double highest = 0, left = 0, right = 0;
  for (int64_t c = 0; c < columns; ++c) highest = std::max(highest, static_cast<double>(row[c]));
  for (int64_t c = 0; c < rim; ++c) {
    left += static_cast<double>(row[c]);
    right += static_cast<double>(row[columns - 1 - c]);
  }
  if (highest <= 0) return 1;
  return std::max(std::abs(left), std::abs(right)) / static_cast<double>(rim) / highest;
}

/// The standard deviation of a centre of mass by the noise of the columns. That of a column is the
/// median of |a - 2 b + c| of it and its neighbours, which is 1.652 standard deviations, because
/// an object is smooth next to its noise in most projections.
double CenterNoiseOf(const float* sinogram, int64_t angles, int64_t columns, double mean_mass) {
  constexpr int64_t kMostAngles = 256;
  const int64_t step = (angles + kMostAngles - 1) / kMostAngles;
  const double middle = 0.5 * static_cast<double>(columns - 1);
  double square = 0;
  for (int64_t c = 1; c + 1 < columns; ++c) {
    std::vector<double> differences;
    for (int64_t a = 0; a < angles; a += step) {
      const float* const at = sinogram + a * columns + c;
      differences.push_back(std::abs(static_cast<double>(at[-1]) - 2 * static_cast<double>(at[0]) +
                                     static_cast<double>(at[1])));
    }
    const double lever = (static_cast<double>(c) - middle) * MedianOf(std::move(differences));
    square += lever * lever;
  }
  return std::sqrt(square) / 1.652 / mean_mass;
}

SliceMoments MomentsOf(const float* sinogram, int64_t angles, int64_t columns) {
  SliceMoments out;
  std::vector<double> ends;
  double squares = 0, total = 0;
  for (int64_t a = 0; a < angles; ++a) {
    const float* const row = sinogram + a * columns;
    double mass = 0, first = 0;
    for (int64_t c = 0; c < columns; ++c) {
      mass += static_cast<double>(row[c]);
      first += static_cast<double>(row[c]) * static_cast<double>(c);
    }
    const double center = mass != 0 ? first / mass : 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double off = static_cast<double>(c) - center;
      squares += static_cast<double>(row[c]) * off * off;
    }
    total += mass;
    out.mass.push_back(mass);
    out.center.push_back(center);
    ends.push_back(AtEnds(row, columns));
  }
  out.mean_mass = total / static_cast<double>(angles);
  out.width = total > 0 && squares > 0 ? std::sqrt(squares / total) : 0;
  out.ends = MedianOf(std::move(ends));
  if (out.mean_mass > 0) out.center_noise = CenterNoiseOf(sinogram, angles, columns, out.mean_mass);
  return out;
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

std::optional<Consistency> ConsistencyOf(const std::vector<float>& sinograms,
                                         const std::vector<double>& angles_rad, int64_t columns,
                                         const std::vector<double>& axes) {
  const int64_t angles = std::ssize(angles_rad), slices = std::ssize(sinograms) / angles / columns;
  std::vector<SliceMoments> all;
  double heaviest = 0;
  for (int64_t i = 0; i < slices; ++i) {
    all.push_back(MomentsOf(sinograms.data() + i * angles * columns, angles, columns));
    heaviest = std::max(heaviest, all.back().mean_mass);
  }
  double weights = 0, mass = 0, center = 0, both = 0, distance = 0, noise = 0, width = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const SliceMoments& slice = all[i];
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
