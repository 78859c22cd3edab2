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
//
// The whole detector is searched at half columns. Around the best one the likelihood is evaluated
// at any position, because the correlation between the columns follows from its spectrum.
//
// The uncertainty has two parts. One is the width of the likelihood at its peak, from its second
// derivative. It takes the views for independent, and knows nothing of a sample that moves or of
// angles that are wrong. So the evidence is also cut into parts of neighbouring directions (or of
// neighbouring slices, if the directions are few); each part is left out in turn, and the scatter
// of the centres that the others find is the second part (delete-one jackknife).

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "tbb/parallel_for.h"

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

constexpr size_t kParts = 8;       // parts of the evidence that are left out in turn
constexpr double kLeastParts = 4;  // fewer do not tell an uncertainty
constexpr int kSteps = 16;         // steps over the two columns around the best half column
constexpr double kFinest = 1e-4;   // columns; the search for the peak ends there

/// One scale: differences of two Gaussian means of the views of each slice.
struct Scale {
  double sigma = 0;
  int64_t neighbours = 0, edge = 0;  // columns at either end that the wider mean affects
  std::vector<OppositeViews> views;
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

/// What pairs of views of one scale tell of the axis. The axis is given as twice its column: column
/// d of the front is column twice − d behind.
class Evidence {
 public:
  Evidence(int64_t columns, int64_t length)
      : re_(static_cast<size_t>(length), 0.0),
        im_(re_),
        power_(static_cast<size_t>(columns), 0.0) {}

  /// `row`: front + i · behind of each column.
  void AddRow(const ComplexF* row) {
    for (size_t x = 0; x < power_.size(); ++x) {
      const auto front = static_cast<double>(row[x].re), behind = static_cast<double>(row[x].im);
      power_[x] += 0.5 * (front * front + behind * behind);
    }
    ++views_;
  }
  /// `spectrum`: of the row.
  void AddSpectrum(const ComplexF* spectrum) {
    for (size_t k = 0; k < re_.size(); ++k) {
      const auto re = static_cast<double>(spectrum[k].re), im = static_cast<double>(spectrum[k].im);
      re_[k] += re * re - im * im;
      im_[k] += 2 * re * im;
    }
  }
  void Add(const Evidence& other) { Combine(other, 1); }
  void Subtract(const Evidence& other) { Combine(other, -1); }

  int64_t views() const { return views_; }
  const Doubles& power() const { return power_; }
  /// front(k) behind(k) = (Z(k)² − conj Z(−k)²) / 4 i. Its transform back is Σ front(d)
  /// behind(twice − d).
  std::pair<double, double> Product(size_t k) const {
    const size_t other = k == 0 ? 0 : re_.size() - k;
    return {0.25 * (im_[k] + im_[other]), -0.25 * (re_[k] - re_[other])};
  }
  size_t length() const { return re_.size(); }

 private:
  void Combine(const Evidence& other, int sign) {
    for (size_t k = 0; k < re_.size(); ++k) {
      re_[k] += sign * other.re_[k];
      im_[k] += sign * other.im_[k];
    }
    for (size_t x = 0; x < power_.size(); ++x) power_[x] += sign * other.power_[x];
    views_ += sign * other.views_;
  }

  Doubles re_, im_;  // Σ Z²
  Doubles power_;    // Σ (front² + behind²) / 2 of each column
  int64_t views_ = 0;
};

/// The log likelihood of an axis by one scale, at any position.
class ScaleLikelihood {
 public:
  ScaleLikelihood(const Scale& scale, const Evidence& evidence)
      : sigma_(scale.sigma),
        edge_(static_cast<double>(scale.edge)),
        last_(static_cast<double>(evidence.power().size()) - 1),
        // Views that have no projection in common.
        looks_(static_cast<double>(evidence.views()) /
               static_cast<double>(std::max<int64_t>(
                   1, std::min<int64_t>(scale.neighbours, std::ssize(scale.views))))),
        sums_(evidence.power().size() + 1, 0.0) {
    for (size_t x = 0; x < evidence.power().size(); ++x)
      sums_[x + 1] = sums_[x] + evidence.power()[x];
    floor_ = kFloor * sums_.back() / (last_ + 1);
    const size_t length = evidence.length();
    for (size_t k = 0; k < length / 2; ++k) {
      const auto [re, im] = evidence.Product(k);
      const double times = (k == 0 ? 1.0 : 2.0) / static_cast<double>(length);
      re_.push_back(times * re);
      im_.push_back(times * im);
    }
    step_ = 2 * std::numbers::pi / static_cast<double>(length);
  }

  /// Σ front(d) behind(twice − d), between the columns as band-limited signals are.
  double Correlation(double twice) const {
    constexpr size_t kExactly = 256;  // frequencies from one exact phase to the next; those between
                                      // are products
    const double turn_re = std::cos(step_ * twice), turn_im = std::sin(step_ * twice);
    double sum = 0, phase_re = 1, phase_im = 0;
    for (size_t k = 0; k < re_.size(); ++k) {
      if (k % kExactly == 0) {
        phase_re = std::cos(step_ * twice * static_cast<double>(k));
        phase_im = std::sin(step_ * twice * static_cast<double>(k));
      }
      sum += re_[k] * phase_re - im_[k] * phase_im;
      const double next = phase_re * turn_re - phase_im * turn_im;
      phase_im = phase_re * turn_im + phase_im * turn_re;
      phase_re = next;
    }
    return sum;
  }

  /// `mismatch`: part of the power by which even two views of one signal may differ.
  double At(double twice, double correlation, double mismatch) const {
    const double first = std::max(edge_, twice - (last_ - edge_)),
                 last = std::min(last_ - edge_, twice - edge_), count = last - first + 1;
    if (count < 2 * sigma_) return 0;
    const double both = SumBefore(last + 1) - SumBefore(first) + floor_ * count;
    const double ratio = both > 0 ? correlation / both : 0;
    if (ratio <= 0) return 0;
    const double values = looks_ * count / (2 * std::sqrt(std::numbers::pi) * sigma_);
    return -0.5 * values * std::log(std::max(1e-6, 1 - ratio * ratio) + mismatch);
  }

 private:
  /// Of the columns before `place`; a column counts by the part that lies before it.
  double SumBefore(double place) const {
    const auto whole = std::min(static_cast<size_t>(place), sums_.size() - 2);
    return sums_[whole] + (place - static_cast<double>(whole)) * (sums_[whole + 1] - sums_[whole]);
  }

  double sigma_, edge_, last_, looks_, floor_ = 0, step_ = 0;
  Doubles sums_, re_, im_;
};

/// The evidence of all scales for one set of angles.
class PairEvidence {
 public:
  PairEvidence(std::vector<Scale> scales, std::vector<std::vector<Evidence>> parts)
      : scales_(std::move(scales)), parts_(std::move(parts)) {
    for (const std::vector<Evidence>& parts_of : parts_) {
      Evidence& whole = whole_.emplace_back(parts_of.front());
      for (size_t part = 1; part < parts_of.size(); ++part) whole.Add(parts_of[part]);
    }
    likelihoods_ = LikelihoodsOf(whole_);
  }

  const std::vector<Evidence>& whole() const { return whole_; }

  /// Log likelihoods of an axis at 0, ½, 1 … columns − 1, given the correlations there of every
  /// scale.
  Doubles OfHalfColumns(const std::vector<Doubles>& correlations, int64_t columns,
                        double mismatch) const {
    Doubles total(static_cast<size_t>(2 * columns - 1), 0.0);
    for (size_t s = 0; s < likelihoods_.size(); ++s) {
      for (size_t twice = 0; twice < total.size(); ++twice)
        total[twice] +=
            likelihoods_[s].At(static_cast<double>(twice), correlations[s][twice], mismatch);
    }
    for (int64_t twice = 0; twice < 2 * columns - 1; ++twice) {
      const int64_t overlap = std::min(twice, 2 * columns - 2 - twice) + 1;
      if (static_cast<double>(overlap) < kLeastOverlap * static_cast<double>(columns))
        total[static_cast<size_t>(twice)] = 0;
    }
    return total;
  }

  /// The most likely axis from `least` to `most`.
  double Finest(double least, double most) const { return Finest(likelihoods_, least, most); }

  /// The standard deviation of the axis, from how it moves if each part of the evidence in turn is
  /// left out (jackknife, Tukey 1958). It includes whatever makes the parts disagree: noise, angles
  /// that differ, columns of some width. 0 if there are too few parts.
  double Deviation(double least, double most) const {
    std::vector<size_t> used;
    for (size_t part = 0; part < parts_.front().size(); ++part) {
      if (parts_.front()[part].views() > 0) used.push_back(part);
    }
    Doubles without(used.size());
    tbb::parallel_for(size_t{0}, used.size(), [&](size_t i) {
      std::vector<Evidence> rest = whole_;
      for (size_t s = 0; s < rest.size(); ++s) rest[s].Subtract(parts_[s][used[i]]);
      without[i] = Finest(LikelihoodsOf(rest), least, most);
    });
    const auto count = static_cast<double>(without.size());
    if (count < kLeastParts) return 0;
    double mean = 0, spread = 0;
    for (const double axis : without) mean += axis / count;
    for (const double axis : without) spread += (axis - mean) * (axis - mean);
    return std::sqrt((count - 1) / count * spread);
  }

 private:
  std::vector<ScaleLikelihood> LikelihoodsOf(const std::vector<Evidence>& evidence) const {
    std::vector<ScaleLikelihood> out;
    for (size_t s = 0; s < scales_.size(); ++s) out.emplace_back(scales_[s], evidence[s]);
    return out;
  }
  static double At(const std::vector<ScaleLikelihood>& likelihoods, double axis) {
    double sum = 0;
    for (const ScaleLikelihood& of : likelihoods)
      sum += of.At(2 * axis, of.Correlation(2 * axis), 0);
    return sum;
  }
  /// The peak is the narrower, the more alike the views are. A parabola through the half columns
  /// pulls it to the nearest one by up to 0.09 columns, so the likelihood itself is searched: first
  /// in steps, then by the golden section.
  static double Finest(const std::vector<ScaleLikelihood>& likelihoods, double least, double most) {
    double best = least, highest = -std::numeric_limits<double>::infinity();
    const double step = (most - least) / kSteps;
    for (int i = 0; i <= kSteps; ++i) {
      const double axis = least + i * step, value = At(likelihoods, axis);
      if (value > highest) highest = value, best = axis;
    }
    double low = std::max(least, best - step), high = std::min(most, best + step);
    const double golden = 0.5 * (std::sqrt(5.0) - 1);
    double left = high - golden * (high - low), right = low + golden * (high - low),
           at_left = At(likelihoods, left), at_right = At(likelihoods, right);
    while (high - low > kFinest) {
      if (at_left > at_right) {
        high = right, right = left, at_right = at_left;
        at_left = At(likelihoods, left = high - golden * (high - low));
      } else {
        low = left, left = right, at_left = at_right;
        at_right = At(likelihoods, right = low + golden * (high - low));
      }
    }
    return 0.5 * (low + high);
  }

  std::vector<Scale> scales_;
  std::vector<std::vector<Evidence>> parts_;  // of each scale
  std::vector<Evidence> whole_;
  std::vector<ScaleLikelihood> likelihoods_;
};

/// The search over all pairs of opposite projections.
class PairsSearch final : public OppositeSearch {
 public:
  using OppositeSearch::OppositeSearch;
  absl::StatusOr<CenterResult> Run() const;

 private:
  struct PairScores {
    PairEvidence evidence;
    Doubles likelihoods;  // log likelihoods
    Doubles cautious;     // the same, but small differences are no evidence
  };
  /// Of an axis at 0, ½, 1 … detectors − 1.
  absl::StatusOr<PairScores> PairLikelihoods(const std::vector<double>& angles_rad) const;
  /// Adds the views of a slice to the parts of their evidence.
  absl::Status AddSlice(int64_t slice, const SliceRows& rows, const Scale& scale,
                        std::vector<Evidence>* parts) const;
};

absl::Status PairsSearch::AddSlice(int64_t slice, const SliceRows& rows, const Scale& scale,
                                   std::vector<Evidence>* parts) const {
  const int64_t n = config_.detectors;
  const auto length = static_cast<size_t>(PairLength(n)), edge = static_cast<size_t>(scale.edge),
             size = static_cast<size_t>(n);
  // Neighbouring directions have projections in common, so a part has directions that lie together.
  // If the directions are few, a part has slices that lie together.
  const auto part_of = [&](size_t view) -> Evidence& {
    return (*parts)[scale.views.size() >= kParts ? view * kParts / scale.views.size()
                                                 : static_cast<size_t>(slice) * kParts /
                                                       static_cast<size_t>(config_.slices)];
  };
  std::vector<ComplexF> joined(scale.views.size() * length);
  tbb::parallel_for(size_t{0}, scale.views.size(), [&](size_t v) {
    const OppositeViews& views = scale.views[v];
    for (const bool behind : {false, true}) {
      Doubles row = rows.Sum(behind ? views.behind : views.front, n), wide = row, scratch;
      Smooth(scale.sigma, &row, &scratch);
      Smooth(2 * scale.sigma, &wide, &scratch);
      for (size_t x = edge; x < size - edge; ++x) {
        ComplexF& to = joined[v * length + x];
        (behind ? to.im : to.re) =
            static_cast<float>(std::sqrt(views.quality) * (row[x] - wide[x]));
      }
    }
  });
  for (size_t v = 0; v < scale.views.size(); ++v) part_of(v).AddRow(joined.data() + v * length);
  OCTAVO_RETURN_IF_ERROR(Transform(static_cast<int64_t>(length), false, &joined));
  for (size_t v = 0; v < scale.views.size(); ++v)
    part_of(v).AddSpectrum(joined.data() + v * length);
  return GoOn();
}

absl::StatusOr<PairsSearch::PairScores> PairsSearch::PairLikelihoods(
    const std::vector<double>& angles_rad) const {
  const int64_t n = config_.detectors, length = PairLength(n);
  std::vector<Scale> scales = ScalesOf(Directions(angles_rad), n, config_.slices);
  std::vector<const OppositeViews*> all;
  for (const Scale& scale : scales) {
    for (const OppositeViews& view : scale.views) all.push_back(&view);
  }
  std::vector<std::vector<Evidence>> parts(scales.size(),
                                           std::vector<Evidence>(kParts, Evidence(n, length)));
  for (int64_t slice = 0; slice < config_.slices; ++slice) {
    OCTAVO_ASSIGN_OR_RETURN(const SliceRows rows, RowsOf(slice, all));
    for (size_t s = 0; s < scales.size(); ++s)
      OCTAVO_RETURN_IF_ERROR(AddSlice(slice, rows, scales[s], &parts[s]));
  }
  PairEvidence evidence(std::move(scales), std::move(parts));
  std::vector<ComplexF> products;
  for (const Evidence& of : evidence.whole()) {
    for (size_t k = 0; k < of.length(); ++k) {
      const auto [re, im] = of.Product(k);
      products.push_back({static_cast<float>(re), static_cast<float>(im)});
    }
  }
  OCTAVO_RETURN_IF_ERROR(Transform(length, true, &products));
  std::vector<Doubles> correlations;
  for (size_t s = 0; s < evidence.whole().size(); ++s) {
    Doubles& correlation = correlations.emplace_back();
    for (size_t twice = 0; twice < static_cast<size_t>(2 * n - 1); ++twice) {
      correlation.push_back(
          static_cast<double>(products[s * static_cast<size_t>(length) + twice].re) /
          static_cast<double>(length));
    }
  }
  Doubles likelihoods = evidence.OfHalfColumns(correlations, n, 0),
          cautious = evidence.OfHalfColumns(correlations, n, kMismatch);
  return PairScores{.evidence = std::move(evidence),
                    .likelihoods = std::move(likelihoods),
                    .cautious = std::move(cautious)};
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
  PairEvidence evidence = std::move(as_said.evidence);
  if (const std::vector<double> other = OtherEnd(config_.angles_rad); !other.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(PairScores with_other, PairLikelihoods(other));
    const auto most_of = [&](const Doubles& of) { return of[best_of(of)]; };
    if (most_of(with_other.cautious) >
        most_of(as_said.cautious) + kOtherEndLead * static_cast<double>(config_.slices)) {
      scores = std::move(with_other.likelihoods);
      evidence = std::move(with_other.evidence);
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
  }
  if (scores[best] > 0) {
    // How narrow the peak is, and how far the parts of the evidence agree on it.
    const double low = std::max(least, result.center - 1), high = std::min(most, result.center + 1);
    result.center = evidence.Finest(low, high);
    result.uncertainty = std::hypot(result.uncertainty, evidence.Deviation(low, high));
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
