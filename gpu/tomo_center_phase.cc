// The axis by the shift between two opposite projections (Guizar-Sicairos et al. 2008).

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/ops.h"
#include "gpu/tomo_center_parts.h"

namespace octavo {

absl::StatusOr<CenterResult> CenterFinder::PhaseCorrelation(const CenterInput& input) {
  const ProjectionPair pair = OppositePair(config_.angles_rad);
  const int64_t n = config_.detectors, slices = config_.slices;
  std::vector<ComplexF> rows(static_cast<size_t>(2 * slices * n));
  std::vector<float> row(static_cast<size_t>(n));
  for (int64_t i = 0; i < 2 * slices; ++i) {
    const int64_t slice = i % slices, angle = i < slices ? pair.first : pair.second;
    const int64_t at = input.angle_first ? angle * slices + slice : slice * angles() + angle;
    OCTAVO_RETURN_IF_ERROR(Download(row.data(), input.data + at * n, n * kFloat));
    for (int64_t x = 0; x < n; ++x) {
      const float value = row[static_cast<size_t>(i < slices ? x : n - 1 - x)];
      if (!math::IsFinite(value)) return NotFinite();
      rows[static_cast<size_t>(i * n + x)] = {value, 0.0f};
    }
  }
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data, Upload(rows));
  const FftSpec fft{.n = n, .rows = 2 * slices};
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, device_.arrays().PrepareFft(fft));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer work, device_.Allocate(std::max<int64_t>(bytes, 256)));
  OCTAVO_RETURN_IF_ERROR(device_.arrays().Fft(stream_, fft, data.data(), work.data()));
  OCTAVO_RETURN_IF_ERROR(Download(rows.data(), data.data(), static_cast<int64_t>(rows.size() * sizeof(ComplexF))));
  // Phases of the cross spectrum, summed over the slices before their lengths go.
  Doubles re(static_cast<size_t>(n / 2 + 1)), im(re.size());
  for (int64_t slice = 0; slice < slices; ++slice) {
    for (size_t k = 1; k < re.size(); ++k) {
      const ComplexF &a = rows[static_cast<size_t>(slice * n) + k], &b = rows[static_cast<size_t>((slices + slice) * n) + k];
      re[k] += static_cast<double>(a.re) * static_cast<double>(b.re) + static_cast<double>(a.im) * static_cast<double>(b.im);
      im[k] += static_cast<double>(a.im) * static_cast<double>(b.re) - static_cast<double>(a.re) * static_cast<double>(b.im);
    }
  }
  for (size_t k = 0; k < re.size(); ++k) {
    const double length = std::hypot(re[k], im[k]);
    if (length > 0) re[k] /= length, im[k] /= length;
  }
  // A centre c is a shift of 2 c − (n − 1).
  const auto correlation = [&](double center) {
    const double turn = 2 * std::numbers::pi * (2 * center - static_cast<double>(n - 1)) / static_cast<double>(n);
    double sum = 0;
    for (size_t k = 1; k < re.size(); ++k) {
      sum += re[k] * std::cos(turn * static_cast<double>(k)) - im[k] * std::sin(turn * static_cast<double>(k));
    }
    return sum / static_cast<double>(re.size());
  };
  const auto [least, most] = CenterSearchRange(config_);
  std::vector<std::pair<double, double>> tried;
  const auto best = [&] {
    return std::max_element(tried.begin(), tried.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
  };
  const auto scan = [&](double from, double to, double step) {
    for (double center = from; center <= to + 1e-9; center += step) tried.emplace_back(center, correlation(center));
  };
  scan(least, most, 0.25);
  CenterResult result;
  const double rough = best();
  result.at_edge = tried.size() > 2 && (rough <= least + 1e-9 || rough >= tried.back().first - 1e-9);
  scan(std::max(least, rough - 0.5), std::min(most, rough + 0.5), config_.tolerance);
  result.center = best();
  std::sort(tried.begin(), tried.end());
  for (const auto& [center, score] : tried) {
    result.centers.push_back(center);
    result.scores.push_back(score);
  }
  return result;
}

}  // namespace octavo
