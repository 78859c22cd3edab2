// The axis from the shift between opposite projections (Guizar-Sicairos et al. 2008), for all pairs
// together.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/internal.h"

namespace octavo::inline gpu {
namespace {

constexpr double kFinest = 3;   // columns; the phases of finer structure are noise
constexpr double kTaper = 0.1;  // part of the columns, at either end, over which rows fade to zero,
                                // because opposite rows do not end alike
constexpr int64_t kNeighbours = 2;  // projections that a view averages
constexpr int64_t kSpread = 4;      // frequencies on either side over which the power is averaged

/// The row minus the line through its ends, faded at both ends.
void Fade(CenterSearch::Doubles* row) {
  const size_t n = row->size(), end = std::max<size_t>(1, n / 50);
  double left = 0, right = 0;
  for (size_t i = 0; i < end; ++i) {
    left += (*row)[i] / static_cast<double>(end);
    right += (*row)[n - 1 - i] / static_cast<double>(end);
  }
  for (size_t i = 0; i < n; ++i) {
    const double at = (static_cast<double>(i) + 0.5) / static_cast<double>(n);
    const double weight =
        0.5 - 0.5 * std::cos(std::numbers::pi * std::min(1.0, std::min(at, 1 - at) / kTaper));
    (*row)[i] = weight * ((*row)[i] - left -
                          (right - left) * static_cast<double>(i) / static_cast<double>(n - 1));
  }
}

class PhaseSearch final : public OppositeSearch {
 public:
  using OppositeSearch::OppositeSearch;
  absl::StatusOr<CenterResult> Run() const;
};

absl::StatusOr<CenterResult> PhaseSearch::Run() const {
  const int64_t n = config_.detectors, length = PairLength(n);
  const auto size = static_cast<size_t>(length);
  const std::vector<OppositeViews> views =
      Directions(config_.angles_rad).Opposites(kNeighbours, PairsOf(config_.slices));
  std::vector<const OppositeViews*> all;
  for (const OppositeViews& view : views) all.push_back(&view);
  // With Z the spectrum of front + i · behind: Σ Z², and the powers of both.
  Doubles re(size, 0.0), im(size, 0.0), front(size, 0.0), behind(size, 0.0);
  for (int64_t slice = 0; slice < config_.slices; ++slice) {
    OCTAVO_ASSIGN_OR_RETURN(const SliceRows rows, RowsOf(slice, all));
    std::vector<ComplexF> joined(views.size() * size);
    for (size_t v = 0; v < views.size(); ++v) {
      Doubles row = rows.Sum(views[v].front, n), other = rows.Sum(views[v].behind, n);
      Fade(&row);
      Fade(&other);
      const double weight = std::sqrt(views[v].quality);
      for (size_t x = 0; x < row.size(); ++x)
        joined[v * size + x] = {static_cast<float>(weight * row[x]),
                                static_cast<float>(weight * other[x])};
    }
    OCTAVO_RETURN_IF_ERROR(Transform(length, false, &joined));
    for (size_t v = 0; v < views.size(); ++v) {
      for (size_t k = 0; k < size; ++k) {
        const ComplexF &z = joined[v * size + k], &o = joined[v * size + (size - k) % size];
        const double a = static_cast<double>(z.re), b = static_cast<double>(z.im),
                     c = static_cast<double>(o.re), d = static_cast<double>(o.im);
        re[k] += a * a - b * b;
        im[k] += 2 * a * b;
        front[k] += 0.25 * ((a + c) * (a + c) + (b - d) * (b - d));
        behind[k] += 0.25 * ((a - c) * (a - c) + (b + d) * (b + d));
      }
    }
    OCTAVO_RETURN_IF_ERROR(GoOn());
  }
  // Phases of the cross spectrum; coarser frequencies weigh more.
  const size_t frequencies = size / 2;
  Doubles cross_re(frequencies, 0.0), cross_im(frequencies, 0.0);
  for (size_t k = 1; k < frequencies; ++k) {
    double power = 0;
    for (int64_t off = -kSpread; off <= kSpread; ++off) {
      const auto at = static_cast<size_t>(std::abs(static_cast<int64_t>(k) + off)) % size;
      power += std::sqrt(front[at] * behind[at]) / static_cast<double>(2 * kSpread + 1);
    }
    const double waves =
        kFinest * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
    const double weight = power > 0 ? std::exp(-2 * waves * waves) / power : 0;
    cross_re[k] = 0.25 * weight * (im[k] + im[size - k]);
    cross_im[k] = -0.25 * weight * (re[k] - re[size - k]);
  }
  const auto correlation = [&](double center) {
    const double turn = 4 * std::numbers::pi * center / static_cast<double>(length);
    double sum = 0;
    for (size_t k = 1; k < frequencies; ++k) {
      sum += cross_re[k] * std::cos(turn * static_cast<double>(k)) -
             cross_im[k] * std::sin(turn * static_cast<double>(k));
    }
    return sum / static_cast<double>(frequencies);
  };
  const auto [least, most] = CenterSearchRange(config_);
  std::vector<std::pair<double, double>> tried;
  const auto best = [&] {
    return std::max_element(tried.begin(), tried.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  };
  const auto scan = [&](double from, double to, double step) {
    for (double center = from; center <= to + 1e-9; center += step)
      tried.emplace_back(center, correlation(center));
  };
  scan(least, most, 0.25);
  CenterResult result;
  const double rough = best();
  result.at_edge =
      tried.size() > 2 && (rough <= least + 1e-9 || rough >= tried.back().first - 1e-9);
  scan(std::max(least, rough - 0.5), std::min(most, rough + 0.5), config_.tolerance);
  result.center = best();
  std::sort(tried.begin(), tried.end());
  for (const auto& [center, score] : tried) {
    result.centers.push_back(center);
    result.scores.push_back(score);
  }
  return result;
}

}  // namespace

absl::StatusOr<CenterResult> SearchByPhase(const CenterRequest& request) {
  return PhaseSearch(request).Run();
}

}  // namespace octavo::inline gpu
