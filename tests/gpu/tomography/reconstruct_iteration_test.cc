// The iterations against a model in double precision with a dense matrix.

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"

#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo {
namespace {

using math::RayInterpolation;
using testing::DenseProjector;
using testing::Doubles;

constexpr double kIterationTolerance = 1e-4;  // relative to the largest value

/// Total variation in double precision with a dense matrix; one slice without padding.
class TvModel {
 public:
  TvModel(const TomographyConfig& c, double center)
      : config_(c),
        n_(PlanTomography(c).grid_size),
        dense_{n_,
               c.detectors,
               c.angles_rad,
               center,
               c.pixel_size,
               c.mask_ratio == 0 ? 0 : 0.5 * c.mask_ratio * static_cast<double>(n_),
               c.interpolation},
        rows_(dense_.Forward(Doubles(static_cast<size_t>(n_ * n_), 1.0))),
        columns_(dense_.Back(Doubles(rows_.size(), 1.0))) {}
  int64_t size() const { return n_; }
  bool Counts(int64_t i) const {
    return columns_[static_cast<size_t>(i)] > 1e-3 * config_.pixel_size;
  }

  /// ½ ‖A x − b‖² + w N p² Σ |∇x|
  double Objective(const Doubles& x, const Doubles& b) const {
    const Doubles ax = dense_.Forward(x);
    double sum = 0, slopes = 0;
    for (size_t i = 0; i < ax.size(); ++i) sum += 0.5 * (ax[i] - b[i]) * (ax[i] - b[i]);
    for (int64_t i = 0; i < n_ * n_; ++i) slopes += std::hypot(Right(x, i), Down(x, i));
    return sum + config_.tv_weight * static_cast<double>(config_.angles_rad.size()) *
                     config_.pixel_size * config_.pixel_size * slopes;
  }

  /// Of the last iteration, as IterationReport has them.
  struct Gap {
    double variation = 0, objective = 0;
  };
  Gap Run(const Doubles& b, int64_t iterations, Doubles* x) const {
    Gap gap;
    const double strength =
                     0.25 * static_cast<double>(config_.angles_rad.size()) * config_.pixel_size,
                 limit = 4 * config_.tv_weight * config_.pixel_size,
                 safety = config_.interpolation == RayInterpolation::kCubic ? 0.75 : 1;
    Doubles bar = *x, dual(b.size(), 0.0), right(x->size(), 0.0), down(x->size(), 0.0);
    for (int64_t k = 0; k < iterations; ++k) {
      const Doubles ax = dense_.Forward(bar);
      for (size_t i = 0; i < ax.size(); ++i) {
        const double step =
            rows_[i] > 1e-3 * config_.pixel_size ? safety * config_.pixel_size / rows_[i] : 0;
        dual[i] = (dual[i] + step * (ax[i] - b[i])) / (1 + step);
      }
      for (int64_t i = 0; i < n_ * n_; ++i) {
        double& r = right[static_cast<size_t>(i)];
        double& d = down[static_cast<size_t>(i)];
        r += 0.5 * config_.pixel_size * Right(bar, i);
        d += 0.5 * config_.pixel_size * Down(bar, i);
        const double length = std::hypot(r, d);
        if (length > limit) r *= limit / length, d *= limit / length;
      }
      if (k + 1 == iterations) gap = GapOf(b, *x, bar, right, down);
      const Doubles back = dense_.Back(dual);
      for (int64_t i = 0; i < n_ * n_; ++i) {
        if (!Counts(i)) continue;
        const auto at = static_cast<size_t>(i);
        const double turned = (i % n_ > 0 ? right[at - 1] : 0) - right[at] +
                              (i >= n_ ? down[at - static_cast<size_t>(n_)] : 0) - down[at],
                     step = 1 / (config_.pixel_size * (columns_[at] / safety + 4 * strength)),
                     before = (*x)[at];
        double now = before - step * (back[at] + strength * turned);
        if (config_.has_min) now = std::max(now, config_.min_value);
        if (config_.has_max) now = std::min(now, config_.max_value);
        (*x)[at] = now;
        bar[at] = 2 * now - before;
      }
    }
    return gap;
  }

 private:
  Gap GapOf(const Doubles& b, const Doubles& x, const Doubles& bar, const Doubles& right,
            const Doubles& down) const {
    const double strength =
                     0.25 * static_cast<double>(config_.angles_rad.size()) * config_.pixel_size,
                 limit = 4 * config_.tv_weight * config_.pixel_size;
    Gap gap;
    const Doubles ax = dense_.Forward(x);
    for (size_t i = 0; i < ax.size(); ++i) gap.objective += 0.5 * (ax[i] - b[i]) * (ax[i] - b[i]);
    for (int64_t i = 0; i < n_ * n_; ++i) {
      const auto at = static_cast<size_t>(i);
      const double length = std::hypot(Right(bar, i), Down(bar, i));
      gap.objective += strength * limit * length;
      gap.variation +=
          strength * (limit * length - right[at] * Right(bar, i) - down[at] * Down(bar, i));
    }
    return gap;
  }
  double Right(const Doubles& x, int64_t i) const {
    return Counts(i) && i % n_ + 1 < n_ && Counts(i + 1)
               ? x[static_cast<size_t>(i + 1)] - x[static_cast<size_t>(i)]
               : 0;
  }
  double Down(const Doubles& x, int64_t i) const {
    return Counts(i) && i / n_ + 1 < n_ && Counts(i + n_)
               ? x[static_cast<size_t>(i + n_)] - x[static_cast<size_t>(i)]
               : 0;
  }

  const TomographyConfig config_;
  const int64_t n_;
  const DenseProjector dense_;
  const Doubles rows_, columns_;
};

Doubles TvReference(const TomographyConfig& c, const Doubles& b, const Doubles& initial,
                    double center) {
  const TomographyPlan plan = PlanTomography(c);
  const TvModel model(c, center);
  const int64_t n = model.size(), border = (n - plan.image_size) / 2;
  const double radius = c.mask_ratio == 0 ? 0 : 0.5 * c.mask_ratio * static_cast<double>(n),
               middle = static_cast<double>(n - 1) / 2;
  Doubles x(static_cast<size_t>(n * n), 0.0);
  const auto given = [&](int64_t r, int64_t k) -> bool {
    return r >= border && r < border + plan.image_size && k >= border &&
           k < border + plan.image_size;
  };
  for (int64_t i = 0; i < n * n && !initial.empty(); ++i) {
    const int64_t r = i / n, k = i % n;
    const bool inside = radius == 0 || std::hypot(static_cast<double>(r) - middle,
                                                  static_cast<double>(k) - middle) <= radius;
    if (given(r, k) && inside)
      x[static_cast<size_t>(i)] =
          initial[static_cast<size_t>((r - border) * plan.image_size + k - border)];
  }
  model.Run(b, c.iterations, &x);
  Doubles out;
  for (int64_t i = 0; i < n * n; ++i) {
    if (given(i / n, i % n)) out.push_back(x[static_cast<size_t>(i)]);
  }
  return out;
}

// SIRT, MLEM and CGLS in double precision with a dense matrix; one slice.
Doubles Reference(const TomographyConfig& c, const Doubles& b, const Doubles& initial,
                  double center) {
  const TomographyPlan plan = PlanTomography(c);
  const int64_t n = plan.grid_size, rays = c.detectors;
  const double radius = c.mask_ratio == 0 ? 0 : 0.5 * c.mask_ratio * static_cast<double>(n);
  const bool mlem = c.algorithm == TomographyAlgorithm::kMlem;
  const auto inside = [&](size_t i) {
    const double x = static_cast<double>(static_cast<int64_t>(i) % n) -
                     static_cast<double>(n - 1) / 2,
                 y = static_cast<double>(static_cast<int64_t>(i) / n) -
                     static_cast<double>(n - 1) / 2;
    return radius == 0 || x * x + y * y <= radius * radius;
  };
  if (c.algorithm == TomographyAlgorithm::kTv) return TvReference(c, b, initial, center);
  const int64_t border = (n - plan.image_size) / 2;
  Doubles x(static_cast<size_t>(n * n), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t r = static_cast<int64_t>(i) / n - border,
                  k = static_cast<int64_t>(i) % n - border;
    const bool given = r >= 0 && r < plan.image_size && k >= 0 && k < plan.image_size;
    if (inside(i))
      x[i] = initial.empty() ? (mlem ? 1 : 0)
             : given         ? initial[static_cast<size_t>(r * plan.image_size + k)]
                             : 0;
  }
  if (c.algorithm == TomographyAlgorithm::kCgls) {
    const DenseProjector all{n, rays, c.angles_rad, center, c.pixel_size, radius, c.interpolation};
    Doubles r = all.Forward(x);
    for (size_t i = 0; i < r.size(); ++i) r[i] = b[i] - r[i];
    Doubles s = all.Back(r), p = s;
    const auto square = [](const Doubles& v) {
      double sum = 0;
      for (const double e : v) sum += e * e;
      return sum;
    };
    double gamma = square(s);
    for (int64_t it = 0; it < c.iterations; ++it) {
      const Doubles q = all.Forward(p);
      const double alpha = gamma / square(q);
      for (size_t i = 0; i < x.size(); ++i) x[i] += alpha * p[i];
      for (size_t i = 0; i < r.size(); ++i) r[i] -= alpha * q[i];
      s = all.Back(r);
      const double now = square(s), beta = now / gamma;
      gamma = now;
      for (size_t i = 0; i < p.size(); ++i) p[i] = s[i] + beta * p[i];
    }
  } else {
    for (int64_t it = 0; it < c.iterations; ++it) {
      for (const AngleRange& range : plan.subsets) {
        std::vector<double> angles;
        Doubles measured;
        for (int64_t a = range.begin; a < range.end; ++a) {
          const auto source = static_cast<size_t>(plan.order[static_cast<size_t>(a)]);
          angles.push_back(c.angles_rad[source]);
          measured.insert(measured.end(), b.begin() + static_cast<int64_t>(source) * rays,
                          b.begin() + static_cast<int64_t>(source + 1) * rays);
        }
        const DenseProjector dense{n, rays, angles, center, c.pixel_size, radius, c.interpolation};
        const Doubles rows = dense.Forward(Doubles(x.size(), 1.0)),
                      columns = dense.Back(Doubles(measured.size(), 1.0));
        Doubles ax = dense.Forward(x);
        for (size_t i = 0; i < ax.size(); ++i) {
          ax[i] = mlem                            ? measured[i] / std::max(ax[i], c.ratio_floor)
                  : rows[i] > 1e-3 * c.pixel_size ? (measured[i] - ax[i]) / rows[i]
                                                  : 0;
        }
        const Doubles back = dense.Back(ax);
        for (size_t i = 0; i < x.size(); ++i) {
          if (columns[i] <= 1e-3 * c.pixel_size) continue;
          x[i] = mlem ? x[i] * back[i] / columns[i] : x[i] + c.relaxation * back[i] / columns[i];
          if (c.has_min) x[i] = std::max(x[i], c.min_value);
          if (c.has_max) x[i] = std::min(x[i], c.max_value);
        }
      }
    }
  }
  Doubles out;
  for (int64_t r = 0; r < plan.image_size; ++r) {
    for (int64_t k = 0; k < plan.image_size; ++k)
      out.push_back(x[static_cast<size_t>((r + border) * n + k + border)]);
  }
  return out;
}

class TomographyIterationTest : public testing::TomographyFixture {
 protected:
  void Check(const TomographyConfig& c, bool warm) {
    const int64_t n = PlanTomography(c).image_size,
                  rays = static_cast<int64_t>(c.angles_rad.size()) * c.detectors;
    // Projections of images, with 20 % of noise. Arbitrary numbers would not do: mlem divides them
    // by the weights of rays that graze the object, which would only magnify rounding.
    const TomographyPlan plan = PlanTomography(c);
    std::vector<float> b;
    for (int64_t slice = 0; slice < c.slices; ++slice) {
      const auto image = Random(plan.grid_size * plan.grid_size, 0.5f, 2.0f),
                 noise = Random(rays, 0.8f, 1.2f);
      const DenseProjector dense{
          plan.grid_size,
          c.detectors,
          c.angles_rad,
          c.centers[c.centers.size() == 1 ? 0 : static_cast<size_t>(slice)],
          c.pixel_size,
          c.mask_ratio == 0 ? 0 : 0.5 * c.mask_ratio * static_cast<double>(plan.grid_size),
          c.interpolation};
      const Doubles exact = dense.Forward({image.begin(), image.end()});
      for (size_t i = 0; i < exact.size(); ++i)
        b.push_back(static_cast<float>(exact[i]) * noise[i]);
    }
    const auto initial = warm ? Random(c.slices * n * n, 0.2f, 0.4f) : std::vector<float>{};
    ASSERT_OK_AND_ASSIGN(const auto got, Reconstruct(c, b, initial));
    for (const int64_t slice : {int64_t{0}, c.slices - 1}) {
      const Doubles start =
          warm ? Doubles(initial.begin() + slice * n * n, initial.begin() + (slice + 1) * n * n)
               : Doubles{};
      const double center =
          c.centers.size() == 1 ? c.centers[0] : c.centers[static_cast<size_t>(slice)];
      const Doubles want = Reference(
          c, Doubles(b.begin() + slice * rays, b.begin() + (slice + 1) * rays), start, center);
      const std::vector<float> mine(got.begin() + slice * n * n, got.begin() + (slice + 1) * n * n);
      EXPECT_LT(testing::LargestDifference(mine, want),
                kIterationTolerance * testing::Largest(want))
          << "slice " << slice;
    }
  }
};

TEST_P(TomographyIterationTest, AgreesWithDoublePrecision) {
  for (const auto algorithm : {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem,
                               TomographyAlgorithm::kCgls, TomographyAlgorithm::kTv}) {
    for (const int64_t slices : {1, 6}) {
      SCOPED_TRACE(static_cast<int>(algorithm));
      Check(testing::Small(algorithm, slices), false);
      Check(testing::Small(algorithm, slices), true);
    }
  }
}

TEST_P(TomographyIterationTest, EveryOptionAgreesWithDoublePrecision) {
  TomographyConfig c = testing::Small(TomographyAlgorithm::kSirt, 5);
  c.relaxation = 1.6;
  c.subsets = 4;
  c.has_min = c.has_max = true;
  c.min_value = 0.8;
  c.max_value = 1.4;
  c.interpolation = RayInterpolation::kCubic;
  Check(c, true);
  c.mask_ratio = 0;
  c.padding = 3;
  Check(c, false);
  c = testing::Small(TomographyAlgorithm::kMlem, 5);
  c.subsets = 3;
  c.mask_ratio = 0.8;
  Check(c, false);
  c.centers = {16, 15.5, 17.25, 14, 18};  // a tilted axis
  Check(c, false);
  c = testing::Small(TomographyAlgorithm::kSirt, 5);
  c.centers = {16, 15.5, 17.25, 14, 18};
  Check(c, true);
}

TEST_P(TomographyIterationTest, EveryOptionOfTotalVariationAgreesWithDoublePrecision) {
  TomographyConfig c = testing::Small(TomographyAlgorithm::kTv, 6);
  c.iterations = 11;
  for (const auto how :
       {RayInterpolation::kNearest, RayInterpolation::kLinear, RayInterpolation::kCubic}) {
    c.interpolation = how;
    // For nearest: no angle at which pixels are ties.
    for (double& angle : c.angles_rad) angle += how == RayInterpolation::kNearest ? 0.013 : 0;
    for (const double weight : {0.001, 0.05, 3.0}) {
      SCOPED_TRACE(weight);
      c.tv_weight = weight;
      Check(c, false);
    }
  }
  c.interpolation = RayInterpolation::kLinear;
  c.tv_weight = 0.03;
  c.has_min = c.has_max = true;
  c.min_value = 0.8;
  c.max_value = 1.4;
  Check(c, true);
  c.mask_ratio = 0;
  c.padding = 3;
  Check(c, false);
  c = testing::Small(TomographyAlgorithm::kTv, 5);
  c.centers = {16, 15.5, 17.25, 14, 18};
  c.mask_ratio = 0.8;
  c.iterations = 9;
  Check(c, true);
}

// However the iterations go, they end at the minimum.
TEST_P(TomographyIterationTest, TotalVariationReachesTheMinimum) {
  TomographyConfig c;
  c.algorithm = TomographyAlgorithm::kTv;
  c.angles_rad = testing::HalfTurn(9);
  c.detectors = 19;
  c.image_size = 16;
  c.padding = 0;
  c.slices = 1;
  c.centers = {9.2};
  c.pixel_size = 2;
  c.tv_weight = 0.02;
  c.iterations = 600;
  const TvModel model(c, c.centers[0]);
  const auto noise = Random(static_cast<int64_t>(c.angles_rad.size()) * c.detectors, -0.3f, 0.3f);
  Doubles truth(static_cast<size_t>(model.size() * model.size()), 0.0);
  for (int64_t i = 0; i < std::ssize(truth); ++i)
    truth[static_cast<size_t>(i)] =
        model.Counts(i) ? (i % 16 > 7 ? 0.4 : 0) + (i / 16 > 5 && i / 16 < 11 ? 0.3 : 0) : 0;
  const DenseProjector dense{16, c.detectors, c.angles_rad, c.centers[0], 2, 8, c.interpolation};
  Doubles b = dense.Forward(truth);
  for (size_t i = 0; i < b.size(); ++i) b[i] += static_cast<double>(noise[i]);
  std::vector<double> residuals;
  TomographyResult result;
  ASSERT_OK_AND_ASSIGN(const auto got, Reconstruct(c, testing::Floats(b), {}, {}, &result));
  Doubles best(truth.size(), 0.0);
  model.Run(b, 20000, &best);
  const double least = model.Objective(best, b),
               mine = model.Objective({got.begin(), got.end()}, b);
  EXPECT_LT(mine, least * 1.001);
  EXPECT_GT(mine, least * 0.999);
  EXPECT_LT(mine, 0.5 * model.Objective(Doubles(truth.size(), 0.0), b));
  EXPECT_LT(testing::LargestDifference(got, best), 0.01);
  // The residual that is told is that of the image.
  const Doubles ax = dense.Forward({got.begin(), got.end()});
  double squares = 0;
  for (size_t i = 0; i < ax.size(); ++i) squares += (ax[i] - b[i]) * (ax[i] - b[i]);
  EXPECT_NEAR(result.last.residual_norms[0], std::sqrt(squares), 1e-3 * std::sqrt(squares));
}

// The gap is that of the model, slice by slice, and tells how far the image is from the minimum.
TEST_P(TomographyIterationTest, TotalVariationTellsItsGap) {
  TomographyConfig c = testing::Small(TomographyAlgorithm::kTv, 1);
  c.mask_ratio = 0;
  c.padding = 0;
  c.pixel_size = 0.7;
  for (const int64_t slices : {1, 6}) {
    c.slices = slices;
    const int64_t rays = static_cast<int64_t>(c.angles_rad.size()) * c.detectors;
    const int64_t n = c.image_size;
    const DenseProjector dense{n, c.detectors,    c.angles_rad, c.centers[0], c.pixel_size,
                               0, c.interpolation};
    std::vector<float> b;
    for (int64_t slice = 0; slice < slices; ++slice) {
      const auto image = Random(n * n, 0.5f, 1 + static_cast<float>(slice)),
                 noise = Random(rays, 0.9f, 1.1f);
      const Doubles exact = dense.Forward({image.begin(), image.end()});
      for (size_t i = 0; i < exact.size(); ++i)
        b.push_back(static_cast<float>(exact[i]) * noise[i]);
    }
    for (const double weight : {0.002, 0.05, 3.0}) {
      c.tv_weight = weight;
      double part = 0;
      for (const int64_t iterations : {4, 60}) {
        SCOPED_TRACE(
            absl::StrCat(slices, " slices, weight ", weight, ", ", iterations, " iterations"));
        c.iterations = iterations;
        TomographyResult result;
        ASSERT_OK_AND_ASSIGN(const auto got, Reconstruct(c, b, {}, {}, &result));
        ASSERT_EQ(std::ssize(result.last.variation_gaps), slices);
        ASSERT_EQ(std::ssize(result.last.objectives), slices);
        for (const int64_t slice : {int64_t{0}, slices - 1}) {
          const TvModel model(c, c.centers[0]);
          Doubles x(static_cast<size_t>(model.size() * model.size()), 0.0);
          const auto gap = model.Run(
              Doubles(b.begin() + slice * rays, b.begin() + (slice + 1) * rays), iterations, &x);
          const auto at = static_cast<size_t>(slice);
          EXPECT_NEAR(result.last.objectives[at], gap.objective, 1e-3 * gap.objective);
          EXPECT_NEAR(result.last.variation_gaps[at], gap.variation, 1e-3 * gap.objective);
        }
        part = result.last.variation_gaps[0] / result.last.objectives[0];
        EXPECT_GE(part, 0);
      }
      if (weight == 3.0) EXPECT_GT(part, 0.4) << "far from the minimum";
      if (weight == 0.002) EXPECT_LT(part, 0.02);
    }
  }
  // It vanishes at the minimum, however strong the weight is.
  const size_t one = c.angles_rad.size() * static_cast<size_t>(c.detectors);
  const auto data = Random(static_cast<int64_t>(one), 3, 6);
  c.slices = 1;
  for (const double weight : {0.05, 3.0}) {
    c.tv_weight = weight;
    double few = 0;
    for (const int64_t iterations : {30, 20000}) {
      c.iterations = iterations;
      TomographyResult result;
      ASSERT_OK_AND_ASSIGN(const auto got, Reconstruct(c, data, {}, {}, &result));
      const double part = result.last.variation_gaps[0] / result.last.objectives[0];
      if (iterations == 30)
        few = part;
      else
        EXPECT_LT(part, std::max(0.02 * few, 1e-4));
    }
  }
  c.algorithm = TomographyAlgorithm::kSirt;
  c.iterations = 3;
  c.tv_weight = 0;
  TomographyResult result;
  ASSERT_OK_AND_ASSIGN(
      const auto sirt,
      Reconstruct(c, Random(static_cast<int64_t>(c.angles_rad.size()) * c.detectors, 0.5f, 2.0f),
                  {}, {}, &result));
  EXPECT_TRUE(result.last.variation_gaps.empty());
}

// The unit of length changes the numbers, and nothing else.
TEST_P(TomographyIterationTest, TotalVariationDoesNotDependOnTheUnitOfLength) {
  TomographyConfig c = testing::Small(TomographyAlgorithm::kTv, 1);
  c.iterations = 40;
  c.pixel_size = 1;
  const auto b = Random(static_cast<int64_t>(c.angles_rad.size()) * c.detectors, 0.5f, 2.0f);
  ASSERT_OK_AND_ASSIGN(const auto usual, Reconstruct(c, b));
  for (const double pixel : {1.3e-4, 0.65, 6.5, 4000.0}) {
    c.pixel_size = pixel;
    c.tv_weight = 0.02 / pixel;
    ASSERT_OK_AND_ASSIGN(auto got, Reconstruct(c, b));
    for (float& value : got) value *= static_cast<float>(pixel);
    EXPECT_LT(testing::LargestDifference(got, Doubles(usual.begin(), usual.end())),
              2e-4 * testing::Largest({usual.begin(), usual.end()}))
        << pixel;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TomographyIterationTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
