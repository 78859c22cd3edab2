// Searches for the axis: phantoms with known axis, and real scans.

#include "gpu/tomography/center.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

#include "gpu/tomography/axis.h"
#include "gpu/tomography/preprocess.h"
#include "tests/gpu/tomography/data.h"
#include "tests/gpu/tomography/phantoms.h"
#include "tests/gpu/tomography/reconstruct_model.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::As;
using testing::Doubles;
using testing::IsError;
using testing::IsOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr CenterMethod kMethods[] = {CenterMethod::kVo, CenterMethod::kEntropy,
                                     CenterMethod::kPhaseCorrelation, CenterMethod::kPairs};

class TomoCenterTest : public testing::BackendTest {
 protected:
  absl::StatusOr<CenterResult> Find(const CenterConfig& c, const std::vector<float>& data,
                                    bool angle_first = false) {
    const DeviceBuffer in = Upload(data);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindCenterBytes(c, device_));
    EXPECT_GT(bytes, 0);
    return FindCenter(stream_.ref(), c, {.data = in.span<float>(), .angle_first = angle_first},
                      device_);
  }
  /// The axis over the whole detector, by the method that is chosen automatically.
  absl::StatusOr<AxisResult> Automatic(std::vector<double> angles, int64_t detectors,
                                       const std::vector<float>& data) {
    AxisConfig c{.automatic = true};
    c.search.slices = std::ssize(data) / (std::ssize(angles) * detectors);
    c.search.angles_rad = std::move(angles);
    c.search.detectors = detectors;
    c.search.search_max = 0.5 * static_cast<double>(detectors - 1);
    c.search.search_min = -c.search.search_max;
    const DeviceBuffer in = Upload(data);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindAxisBytes(c, device_));
    EXPECT_GT(bytes, 0);
    return FindAxis(stream_.ref(), c, {.data = in.span<float>()}, device_);
  }
  /// Real projections, corrected for flat and dark fields, minus logarithm, [slice, angle,
  /// detector].
  std::vector<float> Tooth() {
    PrepareConfig c;
    c.dtype = c.field_dtype = DType::kF32;
    c.angles = 181;
    c.rows = 2;
    c.columns = 640;
    c.flats = c.darks = 10;
    const DeviceBuffer raw = Upload(As<float>(testing::LoadTomoNpy("tooth_proj.npy"))),
                       white = Upload(As<float>(testing::LoadTomoNpy("tooth_white.npy"))),
                       dark = Upload(As<float>(testing::LoadTomoNpy("tooth_dark.npy"))),
                       out = Poisoned(2 * 181 * 640 * 4);
    if (raw.bytes() == 0) return {};
    const auto preparer = Preparer::Create(c, device_);
    EXPECT_THAT(preparer, IsOk());
    EXPECT_THAT(
        (*preparer)->Run(stream_.ref(),
                         {.projections = raw.data(), .flats = white.data(), .darks = dark.data()},
                         out.span<float>()),
        IsOk());
    return Download<float>(out, 2 * 181 * 640);
  }
  /// Angles with both ends included.
  static std::vector<double> FullTurn(int64_t count) {
    std::vector<double> angles;
    for (int64_t i = 0; i < count; ++i)
      angles.push_back(2 * std::numbers::pi * static_cast<double>(i) /
                       static_cast<double>(count - 1));
    return angles;
  }
  static std::vector<double> ToothAngles() {
    std::vector<double> angles = testing::LoadTomoNpy("tooth_theta_deg.npy");
    for (double& a : angles) a *= std::numbers::pi / 180;
    return angles;
  }
};

TEST_P(TomoCenterTest, FindsThePhantomsAxis) {
  constexpr int64_t kN = 127, kDetectors = 160;
  std::vector<double> angles = testing::HalfTurn(120);
  angles.push_back(std::numbers::pi);
  for (double& angle : angles)
    angle += 0.4;  // without this turn, the phantom's projections along pixels are steps
  const Doubles phantom = testing::Phantom(kN);
  std::mt19937 random(testing::FreshSeed());
  std::normal_distribution<double> noise(0, 0.05);
  for (const double center : {71.0, 79.37, 84.75}) {
    Doubles sinogram = testing::ExactProjections(phantom, kN, angles, kDetectors, center);
    for (double& v : sinogram) v += noise(random);
    CenterConfig c;
    c.angles_rad = angles;
    c.detectors = kDetectors;
    c.search_min = -25;
    c.search_max = 20;
    for (const auto method : kMethods) {
      c.method = method;
      ASSERT_OK_AND_ASSIGN(const CenterResult result, Find(c, As<float>(sinogram)));
      EXPECT_NEAR(result.center, center, method == CenterMethod::kVo ? 0.4 : 0.25)
          << "method " << static_cast<int>(method);
      EXPECT_FALSE(result.at_edge);
      ASSERT_EQ(result.centers.size(), result.scores.size());
      EXPECT_TRUE(std::is_sorted(result.centers.begin(), result.centers.end()));
    }
  }
}

TEST_P(TomoCenterTest, BothLayoutsAreTheSame) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0, 1);
  constexpr int64_t kAngles = 20, kSlices = 3, kDetectors = 40;
  std::vector<float> by_slice(kAngles * kSlices * kDetectors), by_angle(by_slice.size());
  for (int64_t s = 0; s < kSlices; ++s) {
    for (int64_t a = 0; a < kAngles; ++a) {
      for (int64_t d = 0; d < kDetectors; ++d) {
        by_slice[static_cast<size_t>((s * kAngles + a) * kDetectors + d)] =
            by_angle[static_cast<size_t>((a * kSlices + s) * kDetectors + d)] = uniform(random);
      }
    }
  }
  CenterConfig c;
  c.angles_rad = testing::HalfTurn(kAngles);
  c.angles_rad.back() = std::numbers::pi;
  c.slices = kSlices;
  c.detectors = kDetectors;
  for (const auto method : kMethods) {
    c.method = method;
    ASSERT_OK_AND_ASSIGN(const CenterResult one, Find(c, by_slice));
    ASSERT_OK_AND_ASSIGN(const CenterResult other, Find(c, by_angle, true));
    EXPECT_EQ(one.scores, other.scores);
  }
}

TEST_P(TomoCenterTest, FindsTheTooth) {
  const std::vector<float> tooth = Tooth();
  if (tooth.empty()) GTEST_SKIP() << "no data in " << testing::TomoData() << " (OCTAVO_TEST_DATA)";
  CenterConfig c;
  c.angles_rad = ToothAngles();
  c.slices = 2;
  c.detectors = 640;
  for (const auto method : kMethods) {
    c.method = method;
    ASSERT_OK_AND_ASSIGN(const CenterResult result, Find(c, tooth));
    RecordProperty("tooth_method_" + std::to_string(static_cast<int>(method)),
                   std::to_string(result.center));
    std::printf("tooth, method %d: %.2f\n", static_cast<int>(method), result.center);
    EXPECT_GT(result.center, 293.5) << static_cast<int>(method);
    EXPECT_LT(result.center, 296.6) << static_cast<int>(method);
    EXPECT_FALSE(result.at_edge);
  }
  // A search that does not reach the axis reports this.
  c.method = CenterMethod::kVo;
  c.search_min = -10;
  ASSERT_OK_AND_ASSIGN(const CenterResult beside, Find(c, tooth));
  EXPECT_TRUE(beside.at_edge);
  // The angles go to 179 degrees, but the last projection mirrors the first.
  ASSERT_OK_AND_ASSIGN(const AxisResult axis, Automatic(ToothAngles(), 640, tooth));
  std::printf("tooth, automatic: %.2f +- %.2f, check %.2f, span %.2f\n", axis.found.center,
              axis.found.uncertainty, axis.check.value_or(0), axis.found.fitting_span_rad);
  EXPECT_GE(axis.found.center, 294.5);
  EXPECT_LE(axis.found.center, 295.6);
  EXPECT_TRUE(axis.agreed);
  EXPECT_NEAR(axis.found.fitting_span_rad, std::numbers::pi, 1e-9);
}

TEST_P(TomoCenterTest, FindsTheDendrite) {
  const Doubles raw = testing::LoadTomoNpy("dendrite_sino_x1000.npy");
  if (raw.empty()) GTEST_SKIP() << "no data in " << testing::TomoData() << " (OCTAVO_TEST_DATA)";
  std::vector<float> transmission;
  for (const double v : raw) transmission.push_back(static_cast<float>(std::exp(-v / 1000)));
  CenterConfig c;
  c.angles_rad = testing::LoadTomoNpy("dendrite_angles_rad.npy");
  c.detectors = 1260;
  c.search_min = -10;
  c.search_max = 10;
  ASSERT_OK_AND_ASSIGN(const CenterResult result, Find(c, transmission));
  std::printf("dendrite, vo: %.2f\n", result.center);
  EXPECT_NEAR(result.center, 627.5, 1);
  // The object changed during the scan: opposite projections differ, and no method is certain.
  std::vector<float> data;
  for (const double v : raw) data.push_back(static_cast<float>(v / 1000));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_OK_AND_ASSIGN(const AxisResult axis, Automatic(c.angles_rad, 1260, data));
  std::printf("dendrite, automatic: %.2f +- %.2f, check %.2f\n", axis.found.center,
              axis.found.uncertainty, axis.check.value_or(0));
  EXPECT_NEAR(axis.found.center, 627.75, 0.5);
  EXPECT_FALSE(axis.found.determined);
  c.method = CenterMethod::kEntropy;
  c.search_min = -50;
  c.search_max = 50;
  const auto between = std::chrono::steady_clock::now();
  ASSERT_OK_AND_ASSIGN(const CenterResult entropy, Find(c, data));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - between).count();
  std::printf("dendrite, entropy: %.2f in %.1f s; automatic in %.1f s\n", entropy.center, seconds,
              std::chrono::duration<double>(between - begin).count());
  EXPECT_FALSE(entropy.at_edge);
  c.method = CenterMethod::kPhaseCorrelation;
  ASSERT_OK_AND_ASSIGN(const CenterResult phase, Find(c, data));
  std::printf("dendrite, phase: %.2f\n", phase.center);
}

TEST_P(TomoCenterTest, StitchesTheNeutronScan) {
  const Doubles raw = testing::LoadTomoNpy("neutron360_sino_u16.npy");
  if (raw.empty()) GTEST_SKIP() << "no data in " << testing::TomoData() << " (OCTAVO_TEST_DATA)";
  PrepareConfig p;
  p.row_first = true;
  p.angles = 459;
  p.rows = 1;
  p.columns = 503;
  p.air_left = 30;
  const DeviceBuffer in = Upload(As<uint16_t>(raw)), out = Poisoned(459 * 503 * 4);
  ASSERT_OK_AND_ASSIGN(const auto preparer, Preparer::Create(p, device_));
  ASSERT_THAT(preparer->Run(stream_.ref(), {.projections = in.data()}, out.span<float>()), IsOk());
  ASSERT_OK_AND_ASSIGN(const AxisResult axis,
                       Automatic(FullTurn(459), 503, Download<float>(out, 459 * 503)));
  std::printf("neutron, automatic: %.2f +- %.2f, check %.2f\n", axis.found.center,
              axis.found.uncertainty, axis.check.value_or(0));
  EXPECT_NEAR(axis.found.center, 245, 1);
  EXPECT_TRUE(axis.agreed && axis.found.determined);
  const OverlapConfig o{.angles = 459, .detectors = 503, .overlap_min = 100};
  ASSERT_OK_AND_ASSIGN(const OverlapResult overlap,
                       FindOverlap(stream_.ref(), o, {.data = out.span<float>()}, device_));
  std::printf("neutron: overlap %.2f, axis %.2f, correlation %.3f\n", overlap.overlap,
              overlap.center, overlap.correlation);
  EXPECT_NEAR(overlap.center, 245.25, 1);
  EXPECT_GT(overlap.correlation, 0.8);
  EXPECT_FALSE(overlap.at_edge);
  // After stitching there, the axis of the half turn is where PreparedCenter says.
  p.stitching = {.enabled = true, .overlap = overlap.overlap};
  p.rings = {{.method = RingMethod::kAllStripe}};
  ASSERT_OK_AND_ASSIGN(const auto stitcher, Preparer::Create(p, device_));
  const PreparedShape shape = stitcher->shape();
  const DeviceBuffer wide = Poisoned(shape.elements() * 4);
  ASSERT_THAT(stitcher->Run(stream_.ref(), {.projections = in.data()}, wide.span<float>()), IsOk());
  CenterConfig c;
  c.angles_rad = PreparedAngles(p, FullTurn(459));
  c.detectors = shape.detectors;
  ASSERT_OK_AND_ASSIGN(const CenterResult found,
                       FindCenter(stream_.ref(), c, {.data = wide.span<float>()}, device_));
  std::printf("neutron stitched: vo %.2f, stated %.2f\n", found.center, PreparedCenter(p, 0));
  // The two methods agree as well as elsewhere on this noisy scan (its notes give 245.5 for the
  // other method).
  EXPECT_NEAR(found.center, PreparedCenter(p, 0), 1.25);
}

TEST_P(TomoCenterTest, FindsOverlapsOnBothSides) {
  std::mt19937 random(testing::FreshSeed());
  std::uniform_real_distribution<double> uniform(-100, 100);
  constexpr int64_t kAngles = 90, kColumns = 120;
  double blobs[12][2];
  for (auto& b : blobs) b[0] = uniform(random), b[1] = uniform(random);
  for (const double overlap : {5.3, 9.0, 13.7, 37.4, 88.1}) {
    for (const bool right : {false, true}) {
      const double center =
          right ? static_cast<double>(kColumns - 1) - 0.5 * (overlap - 1) : 0.5 * (overlap - 1);
      std::vector<float> data;
      for (int64_t a = 0; a < kAngles; ++a) {
        const double angle = 2 * std::numbers::pi * static_cast<double>(a) / kAngles;
        for (int64_t d = 0; d < kColumns; ++d) {
          double sum = 0;
          for (const auto& b : blobs)
            sum += std::exp(-std::pow((static_cast<double>(d) - center - b[0] * std::cos(angle) -
                                       b[1] * std::sin(angle)) /
                                          5,
                                      2));
          data.push_back(static_cast<float>(sum));
        }
      }
      const DeviceBuffer in = Upload(data);
      ASSERT_OK_AND_ASSIGN(
          const OverlapResult result,
          FindOverlap(stream_.ref(),
                      {.angles = kAngles, .detectors = kColumns, .axis_right = right},
                      {.data = in.span<float>()}, device_));
      EXPECT_NEAR(result.overlap, overlap, 0.3);
      EXPECT_NEAR(result.center, center, 0.15);
    }
  }
}

/// A scan of random ellipses about `center`: [slice, angle, detector], with the noise of `counts`
/// if that is above 0.
std::vector<float> RandomScan(const std::vector<double>& angles, int64_t slices, int64_t detectors,
                              double center, double radius, double counts, std::mt19937& random) {
  const auto uniform = [&](double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random);
  };
  std::vector<float> out;
  for (int64_t slice = 0; slice < slices; ++slice) {
    std::vector<testing::PhantomEllipse> ellipses = {
        {.value = 1, .a = radius, .b = radius * uniform(0.75, 1), .x = 0, .y = 0, .phi = 0}};
    for (int i = 0; i < 25; ++i) {
      const double a = radius * uniform(0.04, 0.25), off = uniform(0, 0.9 * radius - a),
                   to = uniform(0, 2 * std::numbers::pi);
      ellipses.push_back({.value = uniform(-0.9, 1.5),
                          .a = a,
                          .b = a * uniform(0.4, 1),
                          .x = off * std::cos(to),
                          .y = off * std::sin(to),
                          .phi = uniform(0, std::numbers::pi)});
    }
    Doubles exact = testing::ProjectEllipses(ellipses, angles, detectors, center);
    const double largest = *std::max_element(exact.begin(), exact.end());
    for (const double value : exact) {
      const double loss = 1.5 * std::max(0.0, value) / largest;
      out.push_back(static_cast<float>(
          counts == 0 ? loss
                      : -std::log(std::max(1, std::poisson_distribution<int>(
                                                  counts * std::exp(-loss))(random)) /
                                  counts)));
    }
  }
  return out;
}

// A parabola through half columns put the axis up to 0.09 columns nearer to the nearest of them,
// and the stated uncertainty was 0.01.
TEST_P(TomoCenterTest, PairsFindTheAxisBetweenHalfColumns) {
  enum class Steps { kOpposite, kBetween, kBothEnds, kGolden };
  struct Case {
    int64_t detectors, angles;
    Steps steps;
    double off, radius;  // the axis from the middle, and the object, in columns
    int64_t slices;
    double counts;
  };
  std::mt19937 random(testing::FreshSeed());
  double towards = 0;  // the nearest half column
  int within = 0, count = 0;
  for (const Case& c : {Case{160, 180, Steps::kOpposite, 7.12, 60, 1, 0},
                        Case{161, 180, Steps::kOpposite, -9.37, 60, 1, 0},
                        Case{97, 181, Steps::kBetween, 3.35, 40, 1, 0},
                        Case{200, 225, Steps::kBetween, -12.13, 75, 1, 1e4},
                        Case{131, 240, Steps::kBothEnds, 11.38, 45, 2, 1e4},
                        Case{128, 200, Steps::kGolden, 4.63, 50, 2, 1e5},
                        Case{150, 240, Steps::kOpposite, 20.17, 80, 2, 1e5},  // one-sided
                        Case{150, 241, Steps::kBetween, -6.65, 110, 3, 1e5},  // wider on both sides
                        Case{240, 300, Steps::kBothEnds, -15.17, 90, 1, 1e3},
                        Case{180, 199, Steps::kGolden, 8.82, 70, 3, 1e3}}) {
    std::vector<double> angles;
    for (int64_t i = 0; i < c.angles; ++i) {
      const auto at = static_cast<double>(i);
      const double part =
          c.steps == Steps::kGolden
              ? std::fmod(0.6180339887498949 * at, 1.0)
              : at / static_cast<double>(c.steps == Steps::kBothEnds ? c.angles - 1 : c.angles);
      angles.push_back(0.3 + 2 * std::numbers::pi * part);
    }
    CenterConfig config{.method = CenterMethod::kPairs, .angles_rad = angles, .slices = c.slices};
    config.detectors = c.detectors;
    const double center = 0.5 * static_cast<double>(c.detectors - 1) + c.off;
    ASSERT_OK_AND_ASSIGN(const CenterResult found,
                         Find(config, RandomScan(angles, c.slices, c.detectors, center, c.radius,
                                                 c.counts, random)));
    const double error = found.center - center;
    EXPECT_NEAR(error, 0, std::max(0.03, 4 * found.uncertainty))
        << c.detectors << " columns, " << c.angles << " angles: " << found.center << " ± "
        << found.uncertainty;
    EXPECT_LT(found.uncertainty, 0.1);
    EXPECT_GT(found.uncertainty, 0);
    EXPECT_TRUE(found.determined);
    towards += std::round(2 * center) > 2 * center ? error : -error;
    within += std::abs(error) <= found.uncertainty ? 1 : 0;
    ++count;
  }
  EXPECT_LT(std::abs(towards / count), 0.02) << "it was 0.04";
  EXPECT_GE(within, count / 2);
}

TEST_P(TomoCenterTest, NamesTheFieldAtFault) {
  const auto refuses = [&](const char* field, auto change) {
    CenterConfig c;
    c.angles_rad = testing::HalfTurn(10);
    c.detectors = 32;
    c.search_min = c.search_max = 0;
    change(c);
    EXPECT_EQ(InfoOf(FindCenterBytes(c, device_).status()).field, field);
    const DeviceBuffer in = Upload(std::vector<float>(320, 1.0f));
    EXPECT_THAT(FindCenter(stream_.ref(), c, {.data = in.span<float>()}, device_),
                IsError(kInvalid, field));
  };
  refuses("angles_rad", [](auto& c) { c.angles_rad = {1}; });
  refuses("angles_rad[1]", [](auto& c) { c.angles_rad[1] = std::nan(""); });
  refuses("detectors", [](auto& c) { c.detectors = 4; });
  refuses("slices", [](auto& c) { c.slices = 0; });
  refuses("search_max", [](auto& c) { c.search_max = -1; });
  refuses("search_min", [](auto& c) { c.search_min = c.search_max = 40; });
  refuses("fine_step", [](auto& c) { c.fine_step = 0.01; });
  refuses("object_ratio", [](auto& c) { c.object_ratio = 0; });
  refuses("tolerance", [](auto& c) { c.method = CenterMethod::kEntropy, c.tolerance = 2; });
  for (const auto method : kMethods) {  // only 100 degrees
    refuses("angles_rad", [&](auto& c) {
      c.method = method;
      for (double& angle : c.angles_rad) angle *= 100.0 / 180;
    });
  }
  CenterConfig c;
  c.angles_rad = testing::HalfTurn(10);
  c.detectors = 32;
  const DeviceBuffer in = Upload(std::vector<float>(320, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_THAT(FindCenter(stream_.ref(), c, {.data = in.span<float>()}, device_),
              IsError(kInvalid, "data"));
  EXPECT_THAT(FindOverlap(stream_.ref(), {.angles = 10, .detectors = 32},
                          {.data = in.span<float>()}, device_),
              IsError(kInvalid, "data"));
  EXPECT_THAT(FindOverlap(stream_.ref(), {.angles = 10, .detectors = 32, .half_turn = 6},
                          {.data = in.span<float>()}, device_),
              IsError(kInvalid, "half_turn"));
}

INSTANTIATE_TEST_SUITE_P(Backends, TomoCenterTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
