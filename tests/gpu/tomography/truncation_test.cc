// Objects wider than the detector. The tests check that they are detected, that no other object is,
// and how much the wider support improves the result.

#include "gpu/tomography/truncation.h"

#include <cmath>
#include <numbers>
#include <random>

#include "tests/gpu/tomography/data.h"
#include "tests/gpu/tomography/reconstruct_fixture.h"
#include "tests/gpu/tomography/wide_phantoms.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::DrawWide;
using testing::FreshSeed;
using testing::TruncationOf;
using testing::WideErrors;
using testing::WidePhantom;

/// Always the same phantoms; bench_truncation takes fresh ones and counts the missed ones.
constexpr uint32_t kDrawnOnce = 20261122;

TEST(TruncationTest, ObjectsWiderThanTheDetectorAreSeenToBe) {
  for (int i = 0; i < 30; ++i) {
    const uint32_t seed = kDrawnOnce + static_cast<uint32_t>(i);
    const WidePhantom phantom = DrawWide(seed, 1.1 + 0.5 * i / 29);
    const Truncation truncation = TruncationOf(phantom);
    EXPECT_TRUE(truncation.found) << phantom.Text() << ", seed " << seed;
    // The outline may be up to a quarter narrower in one direction than in the other.
    EXPECT_GE(truncation.width, 1.05) << phantom.Text() << ", seed " << seed;
    EXPECT_LE(truncation.width, 1.35 * phantom.width) << phantom.Text() << ", seed " << seed;
  }
}

TEST(TruncationTest, WhatTheDetectorSeesAsAWholeIsNotTakenForWider) {
  for (int i = 0; i < 60; ++i) {
    const uint32_t seed = kDrawnOnce + static_cast<uint32_t>(i);
    const WidePhantom phantom = DrawWide(seed, 0.4 + 0.57 * i / 59);
    const Truncation truncation = TruncationOf(phantom);
    EXPECT_FALSE(truncation.found) << phantom.Text() << ", seed " << seed;
    EXPECT_EQ(truncation.width, 1);
  }
}

TEST(TruncationTest, TheWidthOfADiscIsFound) {
  for (const double width : {1.1, 1.3, 1.6}) {
    TruncationConfig c{
        .angles_rad = testing::HalfTurn(60), .slices = 2, .detectors = 200, .centers = {93.25}};
    std::vector<float> sinograms;
    for (int64_t i = 0; i < 2 * 60; ++i) {
      // The second slice is air.
      const double radius = i < 60 ? width * 93.25 : 0;
      for (int64_t d = 0; d < 200; ++d) {
        const double s = static_cast<double>(d) - 93.25;
        sinograms.push_back(
            static_cast<float>(0.01 * std::sqrt(std::max(0.0, radius * radius - s * s))));
      }
    }
    const Truncation truncation = FindTruncation(c, sinograms);
    EXPECT_TRUE(truncation.found);
    EXPECT_EQ(truncation.left, 1);
    EXPECT_NEAR(truncation.width, width, 0.02);
  }
}

// Slits, or a beam narrower than the camera: those columns are at the floor of the logarithm and
// are no object.
TEST(TruncationTest, ColumnsThatNoLightReachedAreNoObject) {
  std::mt19937 random(FreshSeed());
  std::normal_distribution<double> normal(0, 0.01);
  const int64_t n = 200;
  for (const auto& [left, right] : {std::pair{8, 0}, std::pair{30, 30}, std::pair{0, 12}}) {
    for (const bool wide : {false, true}) {
      TruncationConfig c{
          .angles_rad = testing::HalfTurn(180), .slices = 1, .detectors = n, .centers = {99.5}};
      const double radius = wide ? 115 : 55;
      std::vector<float> sinograms;
      for (int64_t i = 0; i < 180 * n; ++i) {
        const int64_t d = i % n;
        const double s = static_cast<double>(d) - 99.5;
        const bool lit = d >= left && d < n - right;
        // A column without light sometimes shows a few dark counts above zero.
        const double dark = random() % 8 == 0 ? 9 : 13.8155;
        sinograms.push_back(static_cast<float>(
            lit ? 0.02 * std::sqrt(std::max(0.0, radius * radius - s * s)) + normal(random)
                : dark));
      }
      const Truncation truncation = FindTruncation(c, sinograms);
      EXPECT_EQ(truncation.found, wide) << left << " " << right;
      if (wide) {
        EXPECT_NEAR(truncation.width, 115 / 99.5, 0.05) << left << " " << right;
      }
    }
  }
}

TEST(TruncationTest, NoiseDeadColumnsAndAWeakerBeamAreNoObject) {
  std::mt19937 random(FreshSeed());
  TruncationConfig c{
      .angles_rad = testing::HalfTurn(120), .slices = 1, .detectors = 150, .centers = {74.5}};
  const auto make = [&](double air, double noise, double disc, float dead) {
    std::normal_distribution<double> normal(0, noise);
    std::vector<float> out;
    for (int64_t i = 0; i < 120 * 150; ++i) {
      const double s = static_cast<double>(i % 150) - 74.5;
      out.push_back(static_cast<float>(air +
                                       disc * std::sqrt(std::max(0.0, 50.0 * 50 - s * s)) / 50 +
                                       (noise > 0 ? normal(random) : 0)));
      if (i % 150 == 0) out.back() += dead;
    }
    return out;
  };
  for (const double air : {0.0, 0.3, -0.1}) {
    EXPECT_FALSE(FindTruncation(c, make(air, 0.05, 0, 0)).found)
        << "nothing but noise, air at " << air;
    EXPECT_FALSE(FindTruncation(c, make(air, 0, 0, 0)).found) << "nothing, air at " << air;
    for (const double noise : {0.0, 0.05, 0.3}) {
      EXPECT_FALSE(FindTruncation(c, make(air, noise, 1, 0)).found)
          << "air at " << air << ", noise " << noise;
      EXPECT_FALSE(FindTruncation(c, make(air, noise, 1, 13.8f)).found)
          << "a dead column, air at " << air << ", noise " << noise;
    }
  }
}

// With few angles or few columns, the search does not read beyond them.
TEST(TruncationTest, TakesWhateverIsThere) {
  EXPECT_FALSE(
      FindTruncation({.angles_rad = {0.1}, .slices = 1, .detectors = 2, .centers = {0.5}}, {1, 1})
          .found);
  EXPECT_FALSE(FindTruncation({.angles_rad = {0.1}, .slices = 1, .detectors = 8, .centers = {3.5}},
                              std::vector<float>(8, 0.0f))
                   .found);
  EXPECT_FALSE(
      FindTruncation({.angles_rad = {}, .slices = 0, .detectors = 64, .centers = {}}, {}).found);
}

TEST(TruncationTest, TheFartherEndCountsOverAFullTurn) {
  std::vector<double> turn = testing::HalfTurn(90);
  EXPECT_TRUE(EndsThatBound(turn, 100, 20).left && EndsThatBound(turn, 100, 20).right);
  for (double& angle : turn) angle *= 2;
  EXPECT_FALSE(EndsThatBound(turn, 100, 20).left);
  EXPECT_TRUE(EndsThatBound(turn, 100, 20).right);
  EXPECT_TRUE(EndsThatBound(turn, 100, 80).left);
  EXPECT_TRUE(EndsThatBound(turn, 100, 49.5).left && EndsThatBound(turn, 100, 49.5).right);
}

// Real scans; none is wider than its detector. The dendrite's air is at 0.65 of at most 1.9,
// between strong rings.
TEST(TruncationTest, RealScansAreNotTakenForWider) {
  const auto raw = testing::LoadTomoNpy("tooth_proj.npy"),
             white = testing::LoadTomoNpy("tooth_white.npy"),
             dark = testing::LoadTomoNpy("tooth_dark.npy");
  if (raw.empty()) GTEST_SKIP() << "no data in " << testing::TomoData();
  std::vector<double> angles = testing::LoadTomoNpy("tooth_theta_deg.npy");
  for (double& angle : angles) angle *= std::numbers::pi / 180;
  constexpr size_t kFrame = 2 * 640;
  std::vector<float> tooth(2 * 181 * 640);
  for (size_t i = 0; i < raw.size(); ++i) {
    double light = 0, none = 0;
    for (size_t k = 0; k < 10; ++k)
      light += white[k * kFrame + i % kFrame] / 10, none += dark[k * kFrame + i % kFrame] / 10;
    const size_t angle = i / kFrame, row = i % kFrame / 640, column = i % 640;
    tooth[(row * 181 + angle) * 640 + column] =
        static_cast<float>(-std::log(std::max(1e-6, (raw[i] - none) / (light - none))));
  }
  EXPECT_FALSE(
      FindTruncation({.angles_rad = angles, .slices = 2, .detectors = 640, .centers = {295}}, tooth)
          .found);

  std::vector<float> dendrite;
  for (const double value : testing::LoadTomoNpy("dendrite_sino_x1000.npy"))
    dendrite.push_back(static_cast<float>(value / 1000));
  EXPECT_FALSE(FindTruncation({.angles_rad = testing::LoadTomoNpy("dendrite_angles_rad.npy"),
                               .slices = 1,
                               .detectors = 1260,
                               .centers = {627.75}},
                              dendrite)
                   .found);

  std::vector<double> counts = testing::LoadTomoNpy("neutron360_sino_u16.npy"), turn;
  std::vector<float> neutron;
  for (size_t i = 0; i < 459; ++i) {
    double air = 0;
    for (size_t d = 0; d < 30; ++d) air += counts[i * 503 + d] / 30;
    for (size_t d = 0; d < 503; ++d)
      neutron.push_back(static_cast<float>(-std::log(std::max(1.0, counts[i * 503 + d]) / air)));
    turn.push_back(2 * std::numbers::pi * static_cast<double>(i) / 458);
  }
  EXPECT_FALSE(
      FindTruncation({.angles_rad = turn, .slices = 1, .detectors = 503, .centers = {245}}, neutron)
          .found);
}

class WideObjectTest : public testing::TomographyFixture {};

TEST_P(WideObjectTest, AWiderSupportTakesTheRimAway) {
  for (const auto algorithm :
       {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem, TomographyAlgorithm::kCgls}) {
    WideErrors usual, wider;
    std::string what;
    for (const double width : {1.2, 1.4, 1.6}) {
      const uint32_t seed = kDrawnOnce + static_cast<uint32_t>(10 * width);
      const WidePhantom phantom = DrawWide(seed, width);
      what += phantom.Text() + ", seed " + std::to_string(seed) + "\n";
      TomographyConfig c = phantom.Config(algorithm);
      c.iterations = algorithm == TomographyAlgorithm::kCgls ? 6 : 25;
      const auto add = [&](WideErrors* sum) {
        const auto image = Reconstruct(c, phantom.sinogram);
        ASSERT_THAT(image, testing::IsOk());
        const WideErrors errors = phantom.ErrorsOf(*image);
        sum->rms += errors.rms / 3;
        sum->rim += std::abs(errors.rim) / 3;
      };
      add(&usual);
      c.support = TruncationOf(phantom).width;
      add(&wider);
    }
    // Means over many phantoms: rim 0.44 and 0.07, error 0.19 and 0.10. For CGLS, which is more
    // sensitive to noise: 0.33 and 0.27.
    EXPECT_LT(wider.rim, 0.7 * usual.rim) << static_cast<int>(algorithm) << "\n" << what;
    EXPECT_LT(wider.rms, usual.rms) << static_cast<int>(algorithm) << "\n" << what;
    RecordProperty("rim_" + std::to_string(static_cast<int>(algorithm)),
                   std::to_string(usual.rim) + " " + std::to_string(wider.rim));
  }
}

// The wide support is temporary: the result, and the previews of the iterations, have the same
// circle as without it.
TEST_P(WideObjectTest, TheResultIsCutToTheUsualCircle) {
  const WidePhantom phantom = DrawWide(FreshSeed(), 1.3);
  for (const auto algorithm :
       {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem, TomographyAlgorithm::kCgls}) {
    TomographyConfig c = phantom.Config(algorithm);
    c.image_size = 120;
    c.iterations = 3;
    c.slices = 3;
    std::vector<float> sinograms;
    for (int i = 0; i < 3; ++i)
      sinograms.insert(sinograms.end(), phantom.sinogram.begin(), phantom.sinogram.end());
    ASSERT_OK_AND_ASSIGN(const auto usual, Reconstruct(c, sinograms));
    c.support = 1.5;
    ASSERT_OK_AND_ASSIGN(const auto reconstructor, Reconstructor::Create(c, device_));
    const DeviceBuffer in = Upload(sinograms), out = Poisoned(3 * 120 * 120 * 4),
                       seen = Poisoned(120 * 120 * 4);
    const auto look = [&](const IterationReport& report) {
      if (report.iteration == 3)
        EXPECT_THAT(reconstructor->CopyImage(stream_.ref(), 1, seen.span<float>()),
                    testing::IsOk());
      return true;
    };
    // The test runs twice, because the pixels that the cut removes must not affect the next run.
    std::vector<float> first;
    for (int run = 0; run < 2; ++run) {
      ASSERT_THAT(
          reconstructor
              ->Run(stream_.ref(), {.data = in.span<float>(), .angle_first = false, .slices = 3},
                    nullptr, out.span<float>(), look)
              .status(),
          testing::IsOk());
      const std::vector<float> made = Download<float>(out, 3 * 120 * 120),
                               preview = Download<float>(seen, 120 * 120);
      int64_t zeros = 0;
      for (size_t i = 0; i < made.size(); ++i) {
        ASSERT_TRUE(usual[i] != 0 || made[i] == 0) << "pixel " << i;
        zeros += made[i] == 0;
      }
      EXPECT_LT(zeros, std::ssize(made) / 2);
      for (size_t i = 0; i < preview.size(); ++i)
        ASSERT_EQ(preview[i], made[120 * 120 + i]) << "pixel " << i;
      if (run == 0) first = made;
      EXPECT_EQ(made, first);
    }
  }
}

TEST_P(WideObjectTest, ASupportThatIsNoneIsRefused) {
  TomographyConfig c = testing::Small(TomographyAlgorithm::kSirt, 1);
  for (const double support : {0.9, 4.1, std::nan("")}) {
    c.support = support;
    EXPECT_THAT(Reconstructor::Create(c, device_).status(),
                testing::IsError(absl::StatusCode::kInvalidArgument, "support"))
        << support;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, WideObjectTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
