#include "gpu/tomography/row_drift.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/tomography/families.h"

namespace octavo::inline gpu {
namespace {

using Profile = std::vector<double>;

/// The median, which reorders the values; NaN of none.
double MedianOf(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A profile between its rows, by cubic convolution; the outermost rows go on.
struct Place {
  int64_t row = 0;
  double weights[4], slopes[4];
  explicit Place(double at) {
    const double below = std::floor(at);
    row = static_cast<int64_t>(below) - 1;
    const double t = at - below;
    const double t2 = t * t, t3 = t2 * t;  // Keys 1981, a = -1/2
    weights[0] = -0.5 * t3 + t2 - 0.5 * t;
    weights[1] = 1.5 * t3 - 2.5 * t2 + 1;
    weights[2] = -1.5 * t3 + 2 * t2 + 0.5 * t;
    weights[3] = 0.5 * t3 - 0.5 * t2;
    slopes[0] = -1.5 * t2 + 2 * t - 0.5;
    slopes[1] = 4.5 * t2 - 5 * t;
    slopes[2] = -4.5 * t2 + 4 * t + 0.5;
    slopes[3] = 1.5 * t2 - t;
  }
  bool inside(int64_t rows) const { return row >= 0 && row + 3 < rows; }
  double Of(const Profile& profile, const double (&factors)[4]) const {
    double sum = 0;
    for (int k = 0; k < 4; ++k) {
      const auto at = std::clamp<int64_t>(row + k, 0, std::ssize(profile) - 1);
      sum += factors[k] * profile[static_cast<size_t>(at)];
    }
    return sum;
  }
};

/// One profile against the mean profile.
struct Fit {
  double shift = 0, variance = std::numeric_limits<double>::infinity(), left = 0, whole = 0;
};

/// What remains at a shift, without weights: the mean square of the differences less their mean.
double MeanSquare(const Profile& own, const Profile& mean, double shift) {
  double count = 0, sum = 0, squares = 0;
  for (int64_t r = 0; r < std::ssize(own); ++r) {
    const Place place(static_cast<double>(r) - shift);
    const double off = own[static_cast<size_t>(r)] - place.Of(mean, place.weights);
    if (!place.inside(std::ssize(mean)) || !std::isfinite(off)) continue;
    count += 1;
    sum += off;
    squares += off * off;
  }
  constexpr double kLeast = 4;
  return count < kLeast ? std::numeric_limits<double>::infinity()
                        : (squares - sum * sum / count) / count;
}

/// `profiles`: of which the mean is made. `search`: any whole number of rows may be better than the
/// start.
Fit Compare(const Profile& own, const Profile& mean, double profiles, double start, double most,
            bool search) {
  Fit fit{.shift = start};
  double best = MeanSquare(own, mean, start);
  for (double whole = -std::floor(most); search && whole <= most; whole += 1) {
    if (const double tried = MeanSquare(own, mean, whole); tried < best) {
      best = tried;
      fit.shift = whole;
    }
  }
  if (!std::isfinite(best)) return fit;
  constexpr int kMostSteps = 30;
  constexpr double kHuber = 1.345, kToSigma = 1.4826, kClose = 1e-4;
  for (int step = 0; step < kMostSteps; ++step) {
    // Differences, their scatter, and the weights that follow from it.
    std::vector<double> off, slope, value;
    for (int64_t r = 0; r < std::ssize(own); ++r) {
      const Place place(static_cast<double>(r) - fit.shift);
      const double at = place.Of(mean, place.weights),
                   difference = own[static_cast<size_t>(r)] - at;
      if (!place.inside(std::ssize(mean)) || !std::isfinite(difference)) continue;
      off.push_back(difference);
      slope.push_back(-place.Of(mean, place.slopes));  // by the shift
      value.push_back(own[static_cast<size_t>(r)]);
    }
    const double constant = MedianOf(off);
    std::vector<double> sizes;
    for (const double d : off) sizes.push_back(std::abs(d - constant));
    const double limit = kHuber * kToSigma * MedianOf(sizes);
    double w = 0, ws = 0, wo = 0, wss = 0, wso = 0;
    std::vector<double> weights;
    for (size_t i = 0; i < off.size(); ++i) {
      weights.push_back(sizes[i] <= limit || !(limit > 0) ? 1 : limit / sizes[i]);
      w += weights[i];
      ws += weights[i] * slope[i];
      wo += weights[i] * off[i];
      wss += weights[i] * slope[i] * slope[i];
      wso += weights[i] * slope[i] * off[i];
    }
    const double information = wss - ws * ws / w;
    if (!(information > 0)) return fit;
    const double change = (wso - ws * wo / w) / information;
    double left = 0, mean_value = 0, whole = 0;
    for (size_t i = 0; i < off.size(); ++i) {
      const double rest = off[i] - wo / w - change * (slope[i] - ws / w);
      left += weights[i] * rest * rest;
      mean_value += weights[i] * value[i] / w;
    }
    for (size_t i = 0; i < off.size(); ++i)
      whole += weights[i] * (value[i] - mean_value) * (value[i] - mean_value);
    fit.left = left;
    fit.whole = whole;
    // The noise that is left in the mean profile tells nothing of the shift.
    const double noise = left / std::max(w - 2, 1.0), told = information - w * noise / profiles;
    fit.variance = told > 0 ? noise / told : std::numeric_limits<double>::infinity();
    // A step of more than a row leaves the part of the profile that it was made for.
    fit.shift = std::clamp(fit.shift + std::clamp(change, -1.0, 1.0), -most, most);
    if (std::abs(change) < kClose) break;
  }
  return fit;
}

}  // namespace

absl::StatusOr<RowDrift> FindRowDrift(int64_t projections, int64_t rows,
                                      const std::vector<float>& profiles, double most,
                                      const std::vector<double>& reference,
                                      const CancelCheck& goes_on) {
  std::vector<Profile> own;
  for (int64_t a = 0; a < projections; ++a) {
    const auto from = profiles.begin() + a * rows;
    own.emplace_back(from, from + rows);
  }
  std::vector<double> shifts(own.size(), 0.0);
  std::vector<Fit> fits(own.size());
  // What the object's rows have, of the profiles so far.
  Profile sum(static_cast<size_t>(rows), 0.0), count = sum, mean = sum;
  const auto include = [&](size_t a) {
    for (int64_t r = 0; r < rows; ++r) {
      const Place place(static_cast<double>(r) + shifts[a]);
      const double value = place.Of(own[a], place.weights);
      const auto i = static_cast<size_t>(r);
      if (std::isfinite(value)) sum[i] += value, count[i] += 1;
      mean[i] = count[i] > 0 ? sum[i] / count[i] : 0;
    }
  };
  // Does something for all projections, in pieces between which it may be given up. A piece of the
  // first pass is no larger than what is before it, so that its mean is that of half of them.
  constexpr size_t kPiece = 64;
  const auto in_pieces = [&](bool grow, const auto& work) -> absl::Status {
    for (size_t begin = 0, end = 0; begin < own.size(); begin = end) {
      if (goes_on && !goes_on()) return absl::CancelledError("given up when asked");
      const size_t size = grow ? std::clamp<size_t>(begin, 1, kPiece) : kPiece;
      end = std::min(begin + size, own.size());
      work(begin, end);
    }
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(in_pieces(/*grow=*/true, [&](size_t begin, size_t end) {
    if (begin > 0) {
      tbb::parallel_for(begin, end, [&](size_t a) {
        shifts[a] =
            Compare(own[a], mean, static_cast<double>(begin), shifts[begin - 1], most, true).shift;
      });
    }
    for (size_t a = begin; a < end; ++a) include(a);
  }));
  constexpr int kMostRounds = 20;
  constexpr double kClose = 1e-3;
  for (int round = 0; round < kMostRounds; ++round) {
    double middle = 0, far = 0;
    for (const double shift : shifts) middle += shift / static_cast<double>(projections);
    std::fill(sum.begin(), sum.end(), 0.0);
    std::fill(count.begin(), count.end(), 0.0);
    OCTAVO_RETURN_IF_ERROR(in_pieces(/*grow=*/false, [&](size_t begin, size_t end) {
      for (size_t a = begin; a < end; ++a) {
        shifts[a] = std::clamp(shifts[a] - middle, -most, most);
        include(a);
      }
    }));
    OCTAVO_RETURN_IF_ERROR(in_pieces(/*grow=*/false, [&](size_t begin, size_t end) {
      tbb::parallel_for(begin, end, [&](size_t a) {
        fits[a] =
            Compare(own[a], mean, static_cast<double>(projections), shifts[a], most, round == 0);
      });
    }));
    for (size_t a = 0; a < own.size(); ++a) {
      far = std::max(far, std::abs(fits[a].shift - shifts[a]));
      shifts[a] = fits[a].shift;
    }
    if (far < kClose) break;
  }
  if (!reference.empty()) {
    const double away =
        Compare(mean, reference, static_cast<double>(projections), 0, most, true).shift;
    for (double& shift : shifts) shift = std::clamp(shift + away, -most, most);
  }
  RowDrift drift{.shifts = std::move(shifts)};
  drift.profile = std::move(mean);
  std::vector<double> variances, agreements;
  for (size_t a = 0; a < own.size(); ++a) {
    variances.push_back(fits[a].variance);
    agreements.push_back(fits[a].whole > 0 ? 1 - fits[a].left / fits[a].whole : 0);
    constexpr double kAtLimit = 1e-6;
    if (std::abs(drift.shifts[a]) >= most - kAtLimit) ++drift.at_limit;
  }
  drift.uncertainty = std::sqrt(MedianOf(variances));
  drift.agreement = MedianOf(agreements);
  return drift;
}

int64_t RowDriftHostBytes(int64_t projections, int64_t rows) {
  return projections * rows * static_cast<int64_t>(sizeof(float) + sizeof(double));
}

absl::StatusOr<std::vector<float>> RowMeans(StreamRef stream, Device& device,
                                            const PreparedShape& shape,
                                            DeviceSpan<const float> sinograms,
                                            DeviceSpan<float> scratch) {
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  // All columns count as air of the left end.
  const RowsSpec in{.angles = shape.angles,
                    .rows = shape.slices,
                    .columns = shape.detectors,
                    .angle_stride = shape.detectors,
                    .row_stride = shape.angles * shape.detectors};
  OCTAVO_RETURN_IF_ERROR(
      families.prepare.AirLevels(stream, in, shape.detectors, 0, sinograms, scratch));
  const int64_t count = shape.angles * shape.slices, bytes = 2 * count * 4;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, device.AllocatePinned(bytes));
  OCTAVO_RETURN_IF_ERROR(device.CopyToHost(stream, host.data(), scratch.data(), bytes));
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  std::vector<float> means;
  for (int64_t i = 0; i < count; ++i) means.push_back(host.as<float>()[2 * i]);
  return means;
}

}  // namespace octavo::inline gpu
