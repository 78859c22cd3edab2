// The tomopy form against the expected results in TomoPy's own tests, and against rotation in
// double precision.

#include <cmath>
#include <numbers>

#include "tests/gpu/tomography/data.h"
#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo {
namespace {

using testing::Doubles;
using testing::IsError;
using testing::IsOk;

Doubles Fixture(const std::string& name) { return testing::LoadTomoNpy("tomopy_fixtures/" + name); }

class TomopyFormTest : public testing::TomographyFixture {};

TEST_P(TomopyFormTest, NearestMeetsTomopysFixtures) {
  constexpr int64_t kAngles = 16, kSlices = 8, kN = 48;
  const Doubles proj = Fixture("proj.npy"), angle = Fixture("angle.npy");
  if (proj.empty()) GTEST_SKIP() << "no data in " << testing::TomoData() << " (OCTAVO_TEST_DATA)";
  ASSERT_EQ(proj.size(), static_cast<size_t>(kAngles * kSlices * kN));
  for (const char* name : {"sirt_accel.npy", "mlem_accel.npy"}) {
    const Doubles want = Fixture(name);
    ASSERT_EQ(want.size(), static_cast<size_t>(kSlices * kN * kN));
    TomographyConfig c;
    c.form = TomographyForm::kTomopy;
    c.algorithm = name[0] == 's' ? TomographyAlgorithm::kSirt : TomographyAlgorithm::kMlem;
    c.angles_rad = angle;
    c.detectors = kN;
    c.slices = kSlices;
    c.interpolation = math::RayInterpolation::kNearest;
    c.iterations = 4;
    ASSERT_OK_AND_ASSIGN(auto form, Reconstructor::Create(c, device_));
    const DeviceBuffer in = Upload(testing::Floats(proj)), out = Poisoned(kSlices * kN * kN * 4);
    ASSERT_THAT(
        form->Run(stream_.ref(), {.data = in.span<float>(), .angle_first = true, .slices = kSlices},
                  nullptr, out.span<float>(), {}),
        IsOk());
    const auto got = Download<float>(out, want.size());
    size_t off = 0;
    for (size_t i = 0; i < want.size(); ++i)
      off += std::abs(static_cast<double>(got[i]) - want[i]) > 0.01 * std::abs(want[i]) + 1e-7;
    EXPECT_LT(static_cast<double>(off), 0.005 * static_cast<double>(want.size()))
        << name << ": pixels off by more than 1 %";
    RecordProperty(name, static_cast<int>(off));
  }
}

// The accelerated algorithm, with plain bilinear rotation in double precision.
Doubles Rotated(const Doubles& in, int64_t n, double radians) {
  const auto center = static_cast<double>(n / 2);  // (n − 1)/2 for odd n
  Doubles out(in.size(), 0.0);
  for (int64_t y = 0; y < n; ++y) {
    for (int64_t x = 0; x < n; ++x) {
      const double dx = static_cast<double>(x) - center, dy = static_cast<double>(y) - center;
      const double sx = std::cos(radians) * dx - std::sin(radians) * dy + center,
                   sy = std::sin(radians) * dx + std::cos(radians) * dy + center;
      const auto ix = static_cast<int64_t>(std::floor(sx)),
                 iy = static_cast<int64_t>(std::floor(sy));
      const double fx = sx - static_cast<double>(ix), fy = sy - static_cast<double>(iy);
      const auto at = [&](int64_t c, int64_t r) {
        return c >= 0 && c < n && r >= 0 && r < n ? in[static_cast<size_t>(r * n + c)] : 0.0;
      };
      out[static_cast<size_t>(y * n + x)] =
          (1 - fy) * ((1 - fx) * at(ix, iy) + fx * at(ix + 1, iy)) +
          fy * ((1 - fx) * at(ix, iy + 1) + fx * at(ix + 1, iy + 1));
    }
  }
  return out;
}

TEST_P(TomopyFormTest, LinearAgreesWithRotationInDoublePrecision) {
  for (const int64_t n : {32, 33}) {
    for (const auto algorithm : {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem}) {
      TomographyConfig c;
      c.form = TomographyForm::kTomopy;
      c.algorithm = algorithm;
      c.angles_rad = testing::HalfTurn(12);
      for (double& a : c.angles_rad) a += 0.05;
      c.detectors = n;
      c.slices = 1;
      c.iterations = 3;
      const Doubles phantom = testing::Phantom(n),
                    b = testing::ExactProjections(phantom, n, c.angles_rad, n,
                                                  static_cast<double>(n / 2));
      ASSERT_OK_AND_ASSIGN(const auto got, Reconstruct(c, testing::Floats(b)));
      Doubles x(phantom.size(), 1e-6), cover(phantom.size(), 0.0);
      for (const double a : c.angles_rad) {
        const Doubles ones = Rotated(Doubles(phantom.size(), 1.0), n, -(a + std::numbers::pi / 2));
        for (size_t i = 0; i < cover.size(); ++i) cover[i] += ones[i] >= 0.5;  // nearest
      }
      for (int64_t it = 0; it < c.iterations; ++it) {
        Doubles update(x.size(), 0.0);
        for (size_t a = 0; a < c.angles_rad.size(); ++a) {
          Doubles r = Rotated(x, n, -(c.angles_rad[a] + std::numbers::pi / 2));
          for (int64_t d = 0; d < n; ++d) {
            double sum = 0;
            for (int64_t i = 0; i < n; ++i) sum += r[static_cast<size_t>(d * n + i)];
            const double measured = b[a * static_cast<size_t>(n) + static_cast<size_t>(d)];
            for (int64_t i = 0; i < n; ++i)
              r[static_cast<size_t>(d * n + i)] +=
                  algorithm == TomographyAlgorithm::kSirt ? measured - sum : measured / sum;
          }
          const Doubles t = Rotated(r, n, c.angles_rad[a] + std::numbers::pi / 2);
          for (size_t i = 0; i < t.size(); ++i) update[i] += t[i];
        }
        for (size_t i = 0; i < x.size(); ++i) {
          if (cover[i] == 0) continue;
          const double u = update[i] / cover[i] / static_cast<double>(n);
          x[i] = algorithm == TomographyAlgorithm::kSirt ? x[i] + u : x[i] * u;
        }
      }
      // The rim of the circle differs, because "covered" has another meaning there; the test
      // compares the inside.
      double sum = 0, most = 0, peak = 0;
      int64_t count = 0;
      for (int64_t i = 0; i < n * n; ++i) {
        if (std::hypot(static_cast<double>(i % n - n / 2), static_cast<double>(i / n - n / 2)) >
            static_cast<double>(n) / 2 - 3)
          continue;
        const double off =
            std::abs(static_cast<double>(got[static_cast<size_t>(i)]) - x[static_cast<size_t>(i)]);
        sum += off * off, ++count;
        most = std::max(most, off);
        peak = std::max(peak, std::abs(x[static_cast<size_t>(i)]));
      }
      EXPECT_LT(most, 0.02 * peak) << n;
      EXPECT_LT(std::sqrt(sum / static_cast<double>(count)), 0.002 * peak) << n;
    }
  }
}

TEST_P(TomopyFormTest, CubicStaysNearLinear) {
  TomographyConfig c;
  c.form = TomographyForm::kTomopy;
  c.angles_rad = testing::HalfTurn(24);
  c.detectors = 48;
  c.slices = 1;
  c.iterations = 5;
  const Doubles phantom = testing::Phantom(48);
  const auto b = testing::Floats(testing::ExactProjections(phantom, 48, c.angles_rad, 48, 24));
  ASSERT_OK_AND_ASSIGN(const auto linear, Reconstruct(c, b));
  c.interpolation = math::RayInterpolation::kCubic;
  ASSERT_OK_AND_ASSIGN(const auto cubic, Reconstruct(c, b));
  const double peak = testing::Largest({linear.begin(), linear.end()});
  EXPECT_GT(testing::LargestDifference(linear, cubic), 1e-3 * peak) << "cubic is not linear";
  double sum = 0;
  for (size_t i = 0; i < linear.size(); ++i)
    sum += std::pow(static_cast<double>(linear[i]) - static_cast<double>(cubic[i]), 2);
  EXPECT_LT(std::sqrt(sum / static_cast<double>(linear.size())), 0.06 * peak);
}

TEST_P(TomopyFormTest, HasNoOptionsOfTheCorrectedForm) {
  TomographyConfig c;
  c.form = TomographyForm::kTomopy;
  c.angles_rad = testing::HalfTurn(4);
  c.detectors = 16;
  c.slices = 1;
  c.subsets = 2;
  EXPECT_THAT(
      Reconstructor::Create(c, device_),
      IsError(absl::StatusCode::kInvalidArgument, "subsets: is 2; the tomopy form allows 1 only"));
  c.subsets = 1;
  c.stop_change = 0.1;
  EXPECT_THAT(Reconstructor::Create(c, device_),
              IsError(absl::StatusCode::kInvalidArgument, "stop_change"));
  c.stop_change = 0;
  c.algorithm = TomographyAlgorithm::kFbp;
  EXPECT_THAT(Reconstructor::Create(c, device_),
              IsError(absl::StatusCode::kInvalidArgument,
                      "algorithm: the tomopy form has sirt and mlem only"));
}

INSTANTIATE_TEST_SUITE_P(Backends, TomopyFormTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
