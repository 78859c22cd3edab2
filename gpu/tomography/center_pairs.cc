// The axis from all pairs of opposite projections: for every possible position of the axis, the
// likelihood that the pairs are mirror images.
//
// From the opposite side a projection is mirrored at the axis c: column d appears at 2 c − d. For
// each c the method compares the columns that both sides see, scale by scale, from fine to coarse.
// If the sides are two views of one normally distributed signal with correlation ρ, the log
// likelihood ratio against two independent signals is −½ log(1 − ρ²) for each independent value.
// The ratios are added over the scales: fine scales are precise, and coarse scales help if noise
// dominates the fine ones. A small overlap that fits by chance has few values and so little weight.
// The object need not fit on the detector.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "gpu/base/status.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/internal.h"

namespace octavo::inline gpu {
namespace {

using Doubles = CenterSearch::Doubles;

constexpr double kFirstScale =
    1.5;  // columns, of the finest scale; each scale is twice as coarse as the previous one
constexpr int kScales = 5;
constexpr int64_t kMostNeighbours = 64;  // projections that one view averages
constexpr double kLeastOverlap = 0.1;    // part of the columns that both sides must see
constexpr double kFloor = 1e-3;  // part of the mean power; below it there is only rounding error,
                                 // which does not correlate
constexpr double kCertain = 8;   // lead of the best axis that chance does not explain
constexpr double kOtherEndLead =
    20;  // lead of other angles per slice from which on they are accepted
constexpr double kMismatch =
    0.01;  // part of the power; a smaller mismatch is no evidence for other angles, because views
           // beyond the ends of a scan are not exact

/// One scale: differences of two Gaussian means of the views of each slice.
struct Scale {
  double sigma = 0;
  int64_t neighbours = 0, edge = 0;  // columns at either end that the wider mean affects
  std::vector<OppositeViews> views;
  std::vector<double> re, im;         // Σ Z², Z the spectrum of front + i · behind
  std::vector<double> front, behind;  // Σ of squares of each column
};

/// Three running means, which together approximate a Gaussian mean. The row continues with its end
/// values.
void Smooth(double sigma, Doubles* row, Doubles* scratch) {
  const auto n = static_cast<int64_t>(row->size());
  const auto half = std::max<int64_t>(1, std::lround(0.5 * (std::sqrt(4 * sigma * sigma + 1) - 1)));
  const auto value = [&](int64_t i) {
    return (*row)[static_cast<size_t>(std::clamp<int64_t>(i, 0, n - 1))];
  };
  for (int pass = 0; pass < 3; ++pass) {
    double sum = 0;
    for (int64_t i = -half; i <= half; ++i) sum += value(i);
    scratch->resize(row->size());
    for (int64_t i = 0; i < n; ++i) {
      (*scratch)[static_cast<size_t>(i)] = sum / static_cast<double>(2 * half + 1);
      sum += value(i + half + 1) - value(i - half);
    }
    row->swap(*scratch);
  }
}

std::vector<Scale> ScalesOf(const Directions& directions, int64_t columns, int64_t slices) {
  std::vector<Scale> scales;
  for (int i = 0; i < kScales; ++i) {
    const double sigma = kFirstScale * static_cast<double>(1 << i);
    if (i > 0 && 2 * sigma > static_cast<double>(columns) / 6) break;
    // As many projections as the edge of the object needs to move by the width of this scale.
    const auto neighbours = std::clamp<int64_t>(
        std::lround(4 * sigma / (directions.step() * static_cast<double>(columns))), 2,
        kMostNeighbours);
    scales.push_back({.sigma = sigma,
                      .neighbours = neighbours,
                      .edge = std::min<int64_t>(std::lround(2 * sigma), columns / 4),
                      .views = directions.Opposites(neighbours, OppositeSearch::PairsOf(slices))});
  }
  return scales;
}

/// Log likelihoods of an axis at 0, ½, 1 … columns − 1. `mismatch`: part of the power by which even
/// two views of one signal may differ.
Doubles LogLikelihoods(const std::vector<Scale>& scales, const std::vector<Doubles>& correlations,
                       int64_t columns, int64_t slices, double mismatch) {
  Doubles total(static_cast<size_t>(2 * columns - 1), 0.0), front(static_cast<size_t>(columns + 1)),
      behind(front.size());
  for (size_t s = 0; s < scales.size(); ++s) {
    const Scale& scale = scales[s];
    for (size_t i = 0; i < static_cast<size_t>(columns); ++i) {
      front[i + 1] = front[i] + scale.front[i];
      behind[i + 1] = behind[i] + scale.behind[i];
    }
    const double floor =
        kFloor * 0.5 * (front.back() + behind.back()) / static_cast<double>(columns);
    const double looks =
        static_cast<double>(slices) * std::max(1.0, static_cast<double>(scale.views.size()) /
                                                        static_cast<double>(scale.neighbours));
    for (int64_t twice = 0; twice < 2 * columns - 1; ++twice) {
      const int64_t first = std::max(scale.edge, twice - (columns - 1 - scale.edge)),
                    last = std::min(columns - 1 - scale.edge, twice - scale.edge);
      const auto count = static_cast<double>(last - first + 1);
      if (count < 2 * scale.sigma) continue;
      const auto power = [&](const Doubles& sums) {
        return sums[static_cast<size_t>(last + 1)] - sums[static_cast<size_t>(first)];
      };
      const double both = 0.5 * (power(front) + power(behind)) + floor * count;
      const double correlation = both > 0 ? correlations[s][static_cast<size_t>(twice)] / both : 0;
      if (correlation <= 0) continue;
      const double values = looks * count / (2 * std::sqrt(std::numbers::pi) * scale.sigma);
      total[static_cast<size_t>(twice)] -=
          0.5 * values * std::log(std::max(1e-6, 1 - correlation * correlation) + mismatch);
    }
  }
  for (int64_t twice = 0; twice < 2 * columns - 1; ++twice) {
    const int64_t overlap = std::min(twice, 2 * columns - 2 - twice) + 1;
    if (static_cast<double>(overlap) < kLeastOverlap * static_cast<double>(columns))
      total[static_cast<size_t>(twice)] = 0;
  }
  return total;
}

/// The search over all pairs of opposite projections.
class PairsSearch final : public OppositeSearch {
 public:
  using OppositeSearch::OppositeSearch;
  absl::StatusOr<CenterResult> Run() const;

 private:
  struct PairScores {
    Doubles likelihoods;  // log likelihoods
    Doubles cautious;     // the same, but small differences are no evidence
  };
  /// Of an axis at 0, ½, 1 … detectors − 1.
  absl::StatusOr<PairScores> PairLikelihoods(const std::vector<double>& angles_rad) const;
};

absl::StatusOr<PairsSearch::PairScores> PairsSearch::PairLikelihoods(
    const std::vector<double>& angles_rad) const {
  const int64_t n = config_.detectors, length = PairLength(n);
  const auto size = static_cast<size_t>(n);
  std::vector<Scale> scales = ScalesOf(Directions(angles_rad), n, config_.slices);
  std::vector<const OppositeViews*> all;
  for (Scale& scale : scales) {
    for (const OppositeViews& view : scale.views) all.push_back(&view);
    scale.re.assign(static_cast<size_t>(length), 0.0);
    scale.im.assign(static_cast<size_t>(length), 0.0);
    scale.front.assign(size, 0.0);
    scale.behind.assign(size, 0.0);
  }
  Doubles wide, scratch;
  for (int64_t slice = 0; slice < config_.slices; ++slice) {
    OCTAVO_ASSIGN_OR_RETURN(const SliceRows rows, RowsOf(slice, all));
    for (Scale& scale : scales) {
      std::vector<ComplexF> joined(scale.views.size() * static_cast<size_t>(length));
      for (size_t v = 0; v < scale.views.size(); ++v) {
        const OppositeViews& views = scale.views[v];
        for (const bool behind : {false, true}) {
          Doubles row = rows.Sum(behind ? views.behind : views.front, n);
          wide = row;
          Smooth(scale.sigma, &row, &scratch);
          Smooth(2 * scale.sigma, &wide, &scratch);
          Doubles& power = behind ? scale.behind : scale.front;
          for (auto x = static_cast<size_t>(scale.edge); x < size - static_cast<size_t>(scale.edge);
               ++x) {
            const double value = std::sqrt(views.quality) * (row[x] - wide[x]);
            power[x] += value * value;
            ComplexF& to = joined[v * static_cast<size_t>(length) + x];
            (behind ? to.im : to.re) = static_cast<float>(value);
          }
        }
      }
      OCTAVO_RETURN_IF_ERROR(Transform(length, false, &joined));
      for (size_t i = 0; i < joined.size(); ++i) {
        const double re = static_cast<double>(joined[i].re), im = static_cast<double>(joined[i].im);
        scale.re[i % static_cast<size_t>(length)] += re * re - im * im;
        scale.im[i % static_cast<size_t>(length)] += 2 * re * im;
      }
      OCTAVO_RETURN_IF_ERROR(GoOn());
    }
  }
  // front(k) behind(k) = (Z(k)² − conj Z(−k)²) / 4 i; its transform back is Σ front(d) behind(twice
  // − d).
  std::vector<ComplexF> products;
  for (const Scale& scale : scales) {
    for (size_t k = 0; k < static_cast<size_t>(length); ++k) {
      const size_t other = k == 0 ? 0 : static_cast<size_t>(length) - k;
      products.push_back({static_cast<float>(0.25 * (scale.im[k] + scale.im[other])),
                          static_cast<float>(-0.25 * (scale.re[k] - scale.re[other]))});
    }
  }
  OCTAVO_RETURN_IF_ERROR(Transform(length, true, &products));
  std::vector<Doubles> correlations;
  for (size_t s = 0; s < scales.size(); ++s) {
    Doubles& correlation = correlations.emplace_back();
    for (size_t twice = 0; twice < static_cast<size_t>(2 * n - 1); ++twice) {
      correlation.push_back(
          static_cast<double>(products[s * static_cast<size_t>(length) + twice].re) /
          static_cast<double>(length));
    }
  }
  return PairScores{.likelihoods = LogLikelihoods(scales, correlations, n, config_.slices, 0),
                    .cautious = LogLikelihoods(scales, correlations, n, config_.slices, kMismatch)};
}

absl::StatusOr<CenterResult> PairsSearch::Run() const {
  const auto [least, most] = CenterSearchRange(config_);
  OCTAVO_ASSIGN_OR_RETURN(PairScores as_said, PairLikelihoods(config_.angles_rad));
  const auto first = static_cast<size_t>(std::ceil(2 * least - 1e-9)),
             last = static_cast<size_t>(std::floor(2 * most + 1e-9));
  const auto best_of = [&](const Doubles& of) {
    return static_cast<size_t>(
        std::max_element(of.begin() + static_cast<std::ptrdiff_t>(first),
                         of.begin() + static_cast<std::ptrdiff_t>(last) + 1) -
        of.begin());
  };
  if (first > last) return InvalidField("search_max", "leaves no half column to search");
  CenterResult result;
  Doubles scores = std::move(as_said.likelihoods);
  if (const std::vector<double> other = OtherEnd(config_.angles_rad); !other.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(PairScores with_other, PairLikelihoods(other));
    const auto most_of = [&](const Doubles& of) { return of[best_of(of)]; };
    if (most_of(with_other.cautious) >
        most_of(as_said.cautious) + kOtherEndLead * static_cast<double>(config_.slices)) {
      scores = std::move(with_other.likelihoods);
      const auto [low, high] = std::minmax_element(other.begin(), other.end());
      result.fitting_span_rad = *high - *low;
    }
  }
  const size_t best = best_of(scores);
  for (size_t i = first; i <= last; ++i) {
    result.centers.push_back(0.5 * static_cast<double>(i));
    result.scores.push_back(scores[i]);
  }
  result.center = 0.5 * static_cast<double>(best);
  result.at_edge = last > first + 1 && (best == first || best == last);
  result.uncertainty = 0.5 * (most - least);
  if (best >= 2 && best + 2 < scores.size()) {
    const double bend = scores[best - 2] - 2 * scores[best] +
                        scores[best + 2];  // second difference over one column
    if (bend < 0) result.uncertainty = std::min(result.uncertainty, 1 / std::sqrt(-bend));
    const double finer = scores[best - 1] - 2 * scores[best] + scores[best + 1];
    if (finer < 0) result.center += 0.25 * (scores[best - 1] - scores[best + 1]) / finer;
  }
  double elsewhere = 0;
  for (size_t i = first; i <= last; ++i) {
    if (std::abs(0.5 * static_cast<double>(i) - result.center) >
        std::max(3.0, 3 * result.uncertainty))
      elsewhere = std::max(elsewhere, scores[i]);
  }
  result.determined = scores[best] - elsewhere >= kCertain;
  return result;
}

}  // namespace

absl::StatusOr<CenterResult> SearchByPairs(const CenterRequest& request) {
  return PairsSearch(request).Run();
}

}  // namespace octavo::inline gpu
