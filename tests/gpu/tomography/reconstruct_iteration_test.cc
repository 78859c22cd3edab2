// The iterations against a model in double precision with a dense matrix.

#include <cmath>

#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo {
namespace {

using math::RayInterpolation;
using testing::DenseProjector;
using testing::Doubles;

constexpr double kIterationTolerance = 1e-4;  // relative to the largest value

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
  for (const auto algorithm :
       {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem, TomographyAlgorithm::kCgls}) {
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

INSTANTIATE_TEST_SUITE_P(Backends, TomographyIterationTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
