// Where the axis is: phantoms of known centre, and real scans.

#include "gpu/tomo_center.h"

#include <cmath>
#include <numbers>
#include <random>

#include "gpu/tomo_prepare.h"
#include "tests/gpu/tomo_data.h"
#include "tests/gpu/tomography_model.h"
#include "tests/support/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::As;
using testing::Doubles;
using testing::IsError;
using testing::IsOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class TomoCenterTest : public testing::BackendTest {
 protected:
  absl::StatusOr<CenterResult> Find(const CenterConfig& c, const std::vector<float>& data, bool angle_first = false) {
    const DeviceBuffer in = Upload(data);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindCenterBytes(c, device_));
    EXPECT_GT(bytes, 0);
    return FindCenter(stream_.ref(), c, {.data = in.as<float>(), .angle_first = angle_first}, device_);
  }
  /// Real projections, flat and dark corrected and minus logarithm, [slice, angle, detector].
  std::vector<float> Tooth() {
    PrepareConfig c;
    c.dtype = c.field_dtype = DType::kF32;
    c.angles = 181;
    c.rows = 2;
    c.columns = 640;
    c.flats = c.darks = 10;
    const DeviceBuffer raw = Upload(As<float>(testing::LoadTomoNpy("tooth_proj.npy"))),
                       white = Upload(As<float>(testing::LoadTomoNpy("tooth_white.npy"))),
                       dark = Upload(As<float>(testing::LoadTomoNpy("tooth_dark.npy"))), out = Poisoned(2 * 181 * 640 * 4);
    if (raw.bytes() == 0) return {};
    const auto preparer = Preparer::Create(c, device_);
    EXPECT_THAT(preparer, IsOk());
    EXPECT_THAT((*preparer)->Run(stream_.ref(), {.projections = raw.data(), .flats = white.data(), .darks = dark.data()}, out.as<float>()), IsOk());
    return Download<float>(out, 2 * 181 * 640);
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
    for (const auto method : {CenterMethod::kVo, CenterMethod::kEntropy, CenterMethod::kPhaseCorrelation}) {
      c.method = method;
      ASSERT_OK_AND_ASSIGN(const CenterResult result, Find(c, As<float>(sinogram)));
      EXPECT_NEAR(result.center, center, method == CenterMethod::kPhaseCorrelation ? 0.5 : 0.4) << "method " << static_cast<int>(method);
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
        by_slice[static_cast<size_t>((s * kAngles + a) * kDetectors + d)] = by_angle[static_cast<size_t>((a * kSlices + s) * kDetectors + d)] =
            uniform(random);
      }
    }
  }
  CenterConfig c;
  c.angles_rad = testing::HalfTurn(kAngles);
  c.angles_rad.back() = std::numbers::pi;
  c.slices = kSlices;
  c.detectors = kDetectors;
  for (const auto method : {CenterMethod::kVo, CenterMethod::kEntropy, CenterMethod::kPhaseCorrelation}) {
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
  for (const auto method : {CenterMethod::kVo, CenterMethod::kEntropy, CenterMethod::kPhaseCorrelation}) {
    c.method = method;
    ASSERT_OK_AND_ASSIGN(const CenterResult result, Find(c, tooth));
    RecordProperty("tooth_method_" + std::to_string(static_cast<int>(method)), std::to_string(result.center));
    std::printf("tooth, method %d: %.2f\n", static_cast<int>(method), result.center);
    EXPECT_GT(result.center, 293.5) << static_cast<int>(method);
    EXPECT_LT(result.center, 296.6) << static_cast<int>(method);
    EXPECT_FALSE(result.at_edge);
  }
  // A search that does not reach it says so.
  c.method = CenterMethod::kVo;
  c.search_min = -10;
  ASSERT_OK_AND_ASSIGN(const CenterResult beside, Find(c, tooth));
  EXPECT_TRUE(beside.at_edge);
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
  ASSERT_THAT(preparer->Run(stream_.ref(), {.projections = in.data()}, out.as<float>()), IsOk());
  const OverlapConfig o{.angles = 459, .detectors = 503, .overlap_min = 100};
  ASSERT_OK_AND_ASSIGN(const OverlapResult overlap, FindOverlap(stream_.ref(), o, {.data = out.as<float>()}, device_));
  std::printf("neutron: overlap %.2f, axis %.2f, correlation %.3f\n", overlap.overlap, overlap.center, overlap.correlation);
  EXPECT_NEAR(overlap.center, 245.25, 1);
  EXPECT_GT(overlap.correlation, 0.8);
  EXPECT_FALSE(overlap.at_edge);
  // Stitched there, the half turn's own axis is where PreparedCenter says.
  p.stitching = {.enabled = true, .overlap = overlap.overlap};
  p.rings = {{.method = RingMethod::kAllStripe}};
  ASSERT_OK_AND_ASSIGN(const auto stitcher, Preparer::Create(p, device_));
  const PreparedShape shape = stitcher->shape();
  const DeviceBuffer wide = Poisoned(shape.elements() * 4);
  ASSERT_THAT(stitcher->Run(stream_.ref(), {.projections = in.data()}, wide.as<float>()), IsOk());
  CenterConfig c;
  std::vector<double> angles;
  for (int i = 0; i < 459; ++i) angles.push_back(2 * std::numbers::pi * i / 458);
  c.angles_rad = PreparedAngles(p, angles);
  c.detectors = shape.detectors;
  ASSERT_OK_AND_ASSIGN(const CenterResult found, FindCenter(stream_.ref(), c, {.data = wide.as<float>()}, device_));
  std::printf("neutron stitched: vo %.2f, stated %.2f\n", found.center, PreparedCenter(p, 0));
  // The two methods agree as well as they do elsewhere on this noisy scan (its notes say 245.5 for the other).
  EXPECT_NEAR(found.center, PreparedCenter(p, 0), 1.25);
}

TEST_P(TomoCenterTest, FindsOverlapsOnBothSides) {
  std::mt19937 random(testing::FreshSeed());
  std::uniform_real_distribution<double> uniform(-100, 100);
  constexpr int64_t kAngles = 90, kColumns = 120;
  double blobs[12][2];
  for (auto& b : blobs) b[0] = uniform(random), b[1] = uniform(random);
  for (const bool right : {false, true}) {
    const double overlap = 37.4, center = right ? static_cast<double>(kColumns - 1) - 0.5 * (overlap - 1) : 0.5 * (overlap - 1);
    std::vector<float> data;
    for (int64_t a = 0; a < kAngles; ++a) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(a) / kAngles;
      for (int64_t d = 0; d < kColumns; ++d) {
        double sum = 0;
        for (const auto& b : blobs)
          sum += std::exp(-std::pow((static_cast<double>(d) - center - b[0] * std::cos(angle) - b[1] * std::sin(angle)) / 5, 2));
        data.push_back(static_cast<float>(sum));
      }
    }
    const DeviceBuffer in = Upload(data);
    ASSERT_OK_AND_ASSIGN(const OverlapResult result, FindOverlap(stream_.ref(), {.angles = kAngles, .detectors = kColumns, .axis_right = right},
                                                                 {.data = in.as<float>()}, device_));
    EXPECT_NEAR(result.overlap, overlap, 0.3);
    EXPECT_NEAR(result.center, center, 0.15);
  }
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
    EXPECT_THAT(FindCenter(stream_.ref(), c, {.data = in.as<float>()}, device_), IsError(kInvalid, field));
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
  refuses("angles_rad", [](auto& c) { c.method = CenterMethod::kPhaseCorrelation; });
  CenterConfig c;
  c.angles_rad = testing::HalfTurn(10);
  c.detectors = 32;
  const DeviceBuffer in = Upload(std::vector<float>(320, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_THAT(FindCenter(stream_.ref(), c, {.data = in.as<float>()}, device_), IsError(kInvalid, "data"));
  EXPECT_THAT(FindOverlap(stream_.ref(), {.angles = 10, .detectors = 32}, {.data = in.as<float>()}, device_), IsError(kInvalid, "data"));
  EXPECT_THAT(FindOverlap(stream_.ref(), {.angles = 10, .detectors = 32, .half_turn = 6}, {.data = in.as<float>()}, device_),
              IsError(kInvalid, "half_turn"));
}

INSTANTIATE_TEST_SUITE_P(Backends, TomoCenterTest, ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
