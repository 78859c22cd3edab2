// The axis by the double wedge (Vo et al. 2014), from half a turn of the scan, which together with
// its mirror image makes a whole turn.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/internal.h"

namespace octavo::inline gpu {
namespace {

using Doubles = CenterSearch::Doubles;

constexpr int64_t kLarge =
    4'000'000;  // pixels; in larger sinograms the coarse search bins columns in fours

/// Gaussian filter as in scipy.ndimage: up to 4 σ, edges mirrored.
Doubles Smoothed(const Doubles& in, int64_t rows, int64_t columns, double sigma_rows,
                 double sigma_columns) {
  const auto along = [&](const Doubles& from, double sigma, int64_t lines, int64_t n,
                         int64_t line_stride, int64_t stride) {
    const auto radius = static_cast<int64_t>(std::lround(4 * sigma));
    Doubles weights, to(from.size());
    for (int64_t k = -radius; k <= radius; ++k)
      weights.push_back(std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)));
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t k = -radius; k <= radius; ++k) {
          sum += weights[static_cast<size_t>(k + radius)] *
                 from[static_cast<size_t>(line * line_stride + math::Mirrored(i + k, n) * stride)];
        }
        to[static_cast<size_t>(line * line_stride + i * stride)] = sum / total;
      }
    }
    return to;
  };
  return along(along(in, sigma_rows, columns, rows, 1, columns), sigma_columns, rows, columns,
               columns, 1);
}

/// Cubic B-spline coefficients, mirrored at the end samples (Unser 1999).
void SplineCoefficients(Doubles& c) {
  const double z = std::sqrt(3.0) - 2;
  const auto n = static_cast<int64_t>(c.size());
  const auto at = [&](int64_t i) -> double& { return c[static_cast<size_t>(i)]; };
  double first = 0, power = 1;
  for (int64_t k = 0; k < 40; ++k, power *= z) {
    const int64_t period = 2 * (n - 1), i = k % period;
    first += power * at(i < n ? i : period - i);
  }
  at(0) = first;
  for (int64_t i = 1; i < n; ++i) at(i) += z * at(i - 1);
  at(n - 1) = z / (z * z - 1) * (at(n - 1) + z * at(n - 2));
  for (int64_t i = n - 2; i >= 0; --i) at(i) = z * (at(i + 1) - at(i));
  for (double& value : c) value *= 6;
}

std::vector<float> Mirror(const Doubles& in, int64_t columns, bool spline) {
  std::vector<float> out(in.size());
  Doubles row(static_cast<size_t>(columns));
  for (size_t start = 0; start < in.size(); start += row.size()) {
    std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(start), row.size(), row.rbegin());
    if (spline) SplineCoefficients(row);
    for (size_t i = 0; i < row.size(); ++i) out[start + i] = static_cast<float>(row[i]);
  }
  return out;
}

/// The search by the double wedge.
class VoSearch final : public CenterSearch {
 public:
  using CenterSearch::CenterSearch;

  static int64_t JoinsAtOnce(int64_t angles, int64_t detectors) {
    return std::clamp<int64_t>(kWorkBytes / (2 * JoinedBytes(angles, detectors)), 1, 32);
  }
  static int64_t JoinedBytes(int64_t angles, int64_t detectors) {
    return 2 * angles * detectors * static_cast<int64_t>(sizeof(ComplexF));
  }

  absl::StatusOr<CenterResult> Run() const;

 private:
  /// The mean outside the double wedge for each of the shifts first + k · step.
  absl::StatusOr<Doubles> WedgeScores(const Doubles& sinogram, int64_t columns, bool whole,
                                      double first, double step, int64_t count) const;
};

absl::StatusOr<Doubles> VoSearch::WedgeScores(const Doubles& sinogram, int64_t columns, bool whole,
                                              double first, double step, int64_t count) const {
  const int64_t angles = std::ssize(sinogram) / columns, rows = 2 * angles,
                batch = std::min(count, JoinsAtOnce(angles, columns));
  SinogramOps& ops = families_.sinograms;
  ArrayOps& arrays = families_.arrays;
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data,
                          Upload(std::vector<float>(sinogram.begin(), sinogram.end())));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer mirror, Upload(Mirror(sinogram, columns, !whole)));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer joined,
                          device_.Allocate(batch * JoinedBytes(angles, columns)));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer turned,
                          device_.Allocate(batch * JoinedBytes(angles, columns)));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer sums, device_.Allocate(batch * kWedgeParts * 8));
  const FftSpec along_rows{.n = columns, .rows = batch * rows},
      along_columns{.n = rows, .rows = batch * columns};
  OCTAVO_ASSIGN_OR_RETURN(const int64_t row_bytes, arrays.PrepareFft(along_rows));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t column_bytes, arrays.PrepareFft(along_columns));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer work,
                          device_.Allocate(std::max<int64_t>({row_bytes, column_bytes, 256})));
  const double radius = 0.5 * config_.object_ratio * static_cast<double>(columns);
  const double slope = static_cast<double>(rows - 1) /
                       (static_cast<double>(rows) * 2 * std::numbers::pi) / radius *
                       static_cast<double>(columns);
  const int64_t drop = std::min<int64_t>(
      config_.drop, static_cast<int64_t>(std::ceil(0.1 * static_cast<double>(rows))));
  Doubles scores, parts(static_cast<size_t>(batch * kWedgeParts));
  for (int64_t begin = 0; begin < count; begin += batch) {
    const JoinSpec join{.count = batch,
                        .angles = angles,
                        .detectors = columns,
                        .first_shift = first + static_cast<double>(begin) * step,
                        .shift_step = step,
                        .whole = whole};
    OCTAVO_RETURN_IF_ERROR(
        ops.Join(stream_, join, data.span<float>(), mirror.span<float>(), joined.span<ComplexF>()));
    OCTAVO_RETURN_IF_ERROR(arrays.Fft(stream_, along_rows, joined.data(), work.data()));
    OCTAVO_RETURN_IF_ERROR(GoOn());
    OCTAVO_RETURN_IF_ERROR(ops.Transpose(stream_, batch, rows, columns, joined.span<ComplexF>(),
                                         turned.span<ComplexF>()));
    OCTAVO_RETURN_IF_ERROR(arrays.Fft(stream_, along_columns, turned.data(), work.data()));
    OCTAVO_RETURN_IF_ERROR(GoOn());
    OCTAVO_RETURN_IF_ERROR(ops.WedgeSums(stream_, batch, rows, columns, slope, drop,
                                         turned.span<ComplexF>(), sums.span<double>()));
    OCTAVO_RETURN_IF_ERROR(Download(HostSpan<double>(parts.data(), batch * kWedgeParts),
                                    sums.span<double>().First(batch * kWedgeParts)));
    for (int64_t k = 0; k < std::min(batch, count - begin); ++k) {
      const auto part = parts.begin() + k * kWedgeParts;
      scores.push_back(std::accumulate(part, part + kWedgeParts, 0.0) /
                       static_cast<double>(rows * columns));
    }
  }
  return scores;
}

absl::StatusOr<CenterResult> VoSearch::Run() const {
  OCTAVO_ASSIGN_OR_RETURN(const Doubles sinogram, MeanSinogram());
  const auto [least, most] = CenterSearchRange(config_);
  OCTAVO_ASSIGN_OR_RETURN(const HalfTurn turn, OneHalfTurn(config_.angles_rad));
  const int64_t n = config_.detectors, angles = std::ssize(turn.rows);
  Doubles half;
  for (const int64_t row : turn.rows)
    half.insert(half.end(), sinogram.begin() + row * n, sinogram.begin() + (row + 1) * n);
  const double middle = 0.5 * static_cast<double>(n - 1);
  // Coarse: whole shifts of the mirrored half, each of which moves the centre by half a column.
  Doubles coarse = Smoothed(half, angles, n, 3, 1);
  int64_t columns = n, group = 1;
  if (angles * n > kLarge) {
    group = 4;
    columns = n / group;
    Doubles grouped(static_cast<size_t>(angles * columns));
    for (int64_t i = 0; i < angles * columns; ++i) {
      for (int64_t k = 0; k < group; ++k)
        grouped[static_cast<size_t>(i)] +=
            coarse[static_cast<size_t>(i / columns * n + i % columns * group + k)];
    }
    coarse = std::move(grouped);
  }
  const auto in_groups = [&](double center) {
    return (center - 0.5 * static_cast<double>(group - 1)) / static_cast<double>(group);
  };
  const double group_middle = 0.5 * static_cast<double>(columns - 1);
  const double first = std::round(2 * (in_groups(least) - group_middle)),
               last = std::round(2 * (in_groups(most) - group_middle));
  OCTAVO_ASSIGN_OR_RETURN(const Doubles rough, WedgeScores(coarse, columns, true, first, 1,
                                                           static_cast<int64_t>(last - first) + 1));
  const auto at = std::min_element(rough.begin(), rough.end()) - rough.begin();
  const double found = group_middle + 0.5 * (first + static_cast<double>(at));
  CenterResult result;
  result.at_edge =
      rough.size() > 2 && (at == 0 || at + 1 == static_cast<std::ptrdiff_t>(rough.size()));
  // Fine: fractions of a column.
  const double from = std::clamp(found * static_cast<double>(group) +
                                     0.5 * static_cast<double>(group - 1) - config_.fine_radius,
                                 0.0, static_cast<double>(n - 1));
  const double to = std::min(from + 2 * config_.fine_radius, static_cast<double>(n - 1));
  const auto count = static_cast<int64_t>(std::floor((to - from) / config_.fine_step + 1e-9)) + 1;
  const Doubles fine = Smoothed(half, angles, n, 2, 2);
  OCTAVO_ASSIGN_OR_RETURN(result.scores, WedgeScores(fine, n, false, 2 * (from - middle),
                                                     2 * config_.fine_step, count));
  for (int64_t k = 0; k < count; ++k)
    result.centers.push_back(from + static_cast<double>(k) * config_.fine_step);
  result.center = result.centers[static_cast<size_t>(
      std::min_element(result.scores.begin(), result.scores.end()) - result.scores.begin())];
  return result;
}

}  // namespace

absl::StatusOr<CenterResult> SearchByVo(const CenterRequest& request) {
  return VoSearch(request).Run();
}

absl::StatusOr<int64_t> VoBytes(const CenterConfig& c, ArrayOps& arrays) {
  OCTAVO_ASSIGN_OR_RETURN(const HalfTurn turn, OneHalfTurn(c.angles_rad));
  const auto angles = static_cast<int64_t>(turn.rows.size());
  // The fine search needs most memory; transforms of its size may need as much again.
  const int64_t batch = VoSearch::JoinsAtOnce(angles, c.detectors), rows = 2 * angles;
  OCTAVO_ASSIGN_OR_RETURN(const int64_t a,
                          arrays.PrepareFft({.n = c.detectors, .rows = batch * rows}));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t b,
                          arrays.PrepareFft({.n = rows, .rows = batch * c.detectors}));
  return 2 * angles * c.detectors * CenterSearch::kFloat +
         2 * batch * VoSearch::JoinedBytes(angles, c.detectors) + batch * kWedgeParts * 8 +
         std::max<int64_t>({a, b, 256});
}

}  // namespace octavo::inline gpu
