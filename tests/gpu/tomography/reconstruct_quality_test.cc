// The quality of reconstructions: phantoms of known value from exact projections, compared with
// ray-based SIRT and MLEM.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>
#include <numeric>
#include <random>

#include "tests/gpu/tomography/reconstruct_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::Doubles;
using testing::Floats;
using testing::IsOk;

constexpr int64_t kN = 127, kAngles = 90, kIterations = 20;

class TomographyQualityTest : public testing::TomographyFixture {
 protected:
  static TomographyConfig Config(TomographyAlgorithm algorithm, int64_t detectors, double center) {
    TomographyConfig c;
    c.algorithm = algorithm;
    c.angles_rad = testing::HalfTurn(kAngles);
    c.detectors = detectors;
    c.slices = 1;
    c.centers = {center};
    c.image_size = kN;
    c.iterations = kIterations;
    return c;
  }
  double PsnrOf(const TomographyConfig& c) {
    const auto got = Reconstruct(c, Floats(testing::ExactProjections(phantom_, kN, c.angles_rad,
                                                                     c.detectors, c.centers[0])));
    EXPECT_THAT(got, IsOk());
    const double psnr = got.ok() ? testing::Psnr(*got, phantom_) : 0;
    RecordProperty("psnr_db_" + std::to_string(++runs_), std::to_string(psnr));
    return psnr;
  }
  const Doubles phantom_ = testing::Phantom(kN);
  int runs_ = 0;
};

// SIRT as ray-based programs compute it (TomoPy's bart with one block): exact lengths, no circle,
// start value 1e-6.
double RayBasedSirtPsnr(const Doubles& phantom) {
  constexpr int64_t kRays = kAngles * kN;
  const auto angles = testing::HalfTurn(kAngles);
  const Doubles b = testing::ExactProjections(phantom, kN, angles, kN, (kN - 1) / 2.0);
  struct Piece {
    int32_t ray, pixel;
    double length;
  };
  std::vector<Piece> pieces;
  for (int64_t ray = 0; ray < kRays; ++ray) {
    const double cosine = std::cos(angles[static_cast<size_t>(ray / kN)]),
                 sine = std::sin(angles[static_cast<size_t>(ray / kN)]);
    const double s = static_cast<double>(ray % kN) - (kN - 1) / 2.0 + 1e-9, half = kN / 2.0;
    std::vector<double> cuts;
    for (int64_t i = 0; i <= kN; ++i) {
      if (std::abs(sine) > 1e-12)
        cuts.push_back((s * cosine - static_cast<double>(i) + half) / sine);
      if (std::abs(cosine) > 1e-12)
        cuts.push_back((static_cast<double>(i) - half - s * sine) / cosine);
    }
    std::sort(cuts.begin(), cuts.end());
    for (size_t i = 1; i < cuts.size(); ++i) {
      const double t = (cuts[i - 1] + cuts[i]) / 2;
      const auto c = static_cast<int64_t>(std::floor(s * cosine - t * sine + half)),
                 r = static_cast<int64_t>(std::floor(half - s * sine - t * cosine));
      if (c >= 0 && c < kN && r >= 0 && r < kN)
        pieces.push_back(
            {static_cast<int32_t>(ray), static_cast<int32_t>(r * kN + c), cuts[i] - cuts[i - 1]});
    }
  }
  Doubles x(phantom.size(), 1e-6), squares(kRays, 0.0), columns(phantom.size(), 0.0);
  for (const Piece& p : pieces)
    squares[static_cast<size_t>(p.ray)] += p.length * p.length,
        columns[static_cast<size_t>(p.pixel)] += p.length;
  for (int64_t i = 0; i < kIterations; ++i) {
    Doubles residual = b, update(x.size(), 0.0);
    for (const Piece& p : pieces)
      residual[static_cast<size_t>(p.ray)] -= p.length * x[static_cast<size_t>(p.pixel)];
    for (const Piece& p : pieces)
      update[static_cast<size_t>(p.pixel)] +=
          p.length * residual[static_cast<size_t>(p.ray)] / squares[static_cast<size_t>(p.ray)];
    for (size_t k = 0; k < x.size(); ++k) x[k] += columns[k] > 0 ? update[k] / columns[k] : 0;
  }
  return testing::Psnr(x, phantom);
}

TEST_P(TomographyQualityTest, SirtIsAsGoodAsRayBased) {
  const double mine = PsnrOf(Config(TomographyAlgorithm::kSirt, kN, 63)),
               rays = RayBasedSirtPsnr(phantom_);
  RecordProperty("psnr_db_rays", std::to_string(rays));
  EXPECT_GE(mine, rays) << "dB";
}

TEST_P(TomographyQualityTest, MlemReaches23Db) {
  EXPECT_GE(PsnrOf(Config(TomographyAlgorithm::kMlem, kN, 63)), 23.0);
}

TEST_P(TomographyQualityTest, CglsIsBetterThanSirt) {
  EXPECT_GT(PsnrOf(Config(TomographyAlgorithm::kCgls, kN, 63)),
            PsnrOf(Config(TomographyAlgorithm::kSirt, kN, 63)) + 3);
}

// Of few noisy projections of an object with few edges, total variation makes the better image.
TEST_P(TomographyQualityTest, TotalVariationIsBetterOfFewNoisyProjections) {
  TomographyConfig c = Config(TomographyAlgorithm::kSirt, kN, 63);
  c.angles_rad = testing::HalfTurn(24);
  std::vector<float> b = Floats(testing::ExactProjections(phantom_, kN, c.angles_rad, kN, 63));
  std::normal_distribution<float> noise(0, 0.01f * *std::max_element(b.begin(), b.end()));
  for (float& value : b) value += noise(random_);
  double sirt = 0;
  for (const int64_t iterations : {10, 20, 40, 80}) {
    c.iterations = iterations;
    ASSERT_OK_AND_ASSIGN(const auto image, Reconstruct(c, b));
    sirt = std::max(sirt, testing::Psnr(image, phantom_));
  }
  c.algorithm = TomographyAlgorithm::kTv;
  c.tv_weight = 0.005;
  c.iterations = 150;
  ASSERT_OK_AND_ASSIGN(const auto image, Reconstruct(c, b));
  const double tv = testing::Psnr(image, phantom_);
  RecordProperty("psnr_db_sirt", std::to_string(sirt));
  RecordProperty("psnr_db_tv", std::to_string(tv));
  std::cout << "SIRT at its best " << sirt << " dB, total variation " << tv << " dB\n";
  EXPECT_GT(tv, sirt + 3);
}

TEST_P(TomographyQualityTest, SubsetsConvergeFaster) {
  TomographyConfig c = Config(TomographyAlgorithm::kSirt, kN, 63);
  const double plain = PsnrOf(c);
  c.subsets = 10;
  EXPECT_GT(PsnrOf(c), plain + 1);
}

TEST_P(TomographyQualityTest, AnAxisOffTheMiddleCostsNothing) {
  for (const auto algorithm : {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem}) {
    const double middle = PsnrOf(Config(algorithm, 143, 71));
    for (const double center : {64.0, 78.0, 66.37})
      EXPECT_GT(PsnrOf(Config(algorithm, 143, center)), middle - 0.3) << center;
  }
}

TEST_P(TomographyQualityTest, HalfADetectorOverAFullTurnIsEnough) {
  TomographyConfig c = Config(TomographyAlgorithm::kMlem, 85, 20);
  for (double& angle : c.angles_rad) angle *= 2;
  c.image_size = kN;
  EXPECT_GT(PsnrOf(c), 20);
}

TEST_P(TomographyQualityTest, WhatLiesOutsideOfTheResultIsPaddedFor) {
  // A second disc beyond the result's edge but within the detector: without padding, the
  // reconstruction smears it over the image.
  constexpr int64_t kWide = 201, kResult = 101;
  Doubles wide(kWide * kWide, 0.0), result;
  for (int64_t i = 0; i < kWide * kWide; ++i) {
    const double x = static_cast<double>(i % kWide - kWide / 2),
                 y = static_cast<double>(i / kWide - kWide / 2);
    if (std::hypot(x - 10, y) < 20 || std::hypot(x + 75, y - 10) < 12)
      wide[static_cast<size_t>(i)] = 1;
  }
  for (int64_t r = 0; r < kResult; ++r) {
    for (int64_t c = 0; c < kResult; ++c)
      result.push_back(wide[static_cast<size_t>((r + 50) * kWide + c + 50)]);
  }
  TomographyConfig c = Config(TomographyAlgorithm::kSirt, kWide, 100);
  c.image_size = kResult;
  c.iterations = 60;
  const auto b = Floats(testing::ExactProjections(wide, kWide, c.angles_rad, kWide, 100));
  ASSERT_OK_AND_ASSIGN(const auto padded, Reconstruct(c, b));
  c.padding = 0;
  ASSERT_OK_AND_ASSIGN(const auto cut, Reconstruct(c, b));
  EXPECT_GT(testing::Psnr(padded, result), testing::Psnr(cut, result) + 3);
  EXPECT_GT(testing::Psnr(padded, result), 20);
}

TEST_P(TomographyQualityTest, PixelSizeScalesTheResult) {
  for (const auto algorithm :
       {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem, TomographyAlgorithm::kFbp}) {
    TomographyConfig c = Config(algorithm, kN, 63);
    const auto b = Floats(testing::ExactProjections(phantom_, kN, c.angles_rad, kN, 63));
    ASSERT_OK_AND_ASSIGN(const auto one, Reconstruct(c, b));
    c.pixel_size = 0.25;
    ASSERT_OK_AND_ASSIGN(auto quarter, Reconstruct(c, b));
    for (auto& v : quarter) v *= 0.25f;
    // mlem starts from 1 in either unit. Its first update removes that difference but for rounding.
    EXPECT_LT(testing::LargestDifference(one, quarter),
              1e-3 * testing::Largest({one.begin(), one.end()}))
        << static_cast<int>(algorithm);
  }
}

// A sum with equal weights overstates the directions that have more angles.
TEST_P(TomographyQualityTest, FbpWeighsUnevenAnglesByTheirGaps) {
  std::mt19937 random(testing::FreshSeed());
  for (const bool several_turns : {false, true}) {
    TomographyConfig c = Config(TomographyAlgorithm::kFbp, 140, 66.25);
    c.angles_rad.clear();
    for (int i = 0; i < 120; ++i)
      c.angles_rad.push_back(std::numbers::pi * i / 240);  // twice as dense as the next
    for (int i = 0; i < 60; ++i)
      c.angles_rad.push_back(std::numbers::pi * (0.5 + i / 120.0));  // the sparse half
    if (several_turns) {
      for (double& angle : c.angles_rad)
        angle += std::numbers::pi * static_cast<double>(random() % 5);
    }
    std::shuffle(c.angles_rad.begin(), c.angles_rad.end(), random);
    const auto b =
        Floats(testing::ExactProjections(phantom_, kN, c.angles_rad, c.detectors, c.centers[0]));
    ASSERT_OK_AND_ASSIGN(const auto weighted, Reconstruct(c, b));
    // The same without weights; they can be applied to the data because FBP is linear.
    const std::vector<double> weights = AngleWeights(c.angles_rad);
    std::vector<float> alike = b;
    for (size_t i = 0; i < alike.size(); ++i) {
      const size_t angle = i / static_cast<size_t>(c.detectors);
      alike[i] *= static_cast<float>(std::numbers::pi / static_cast<double>(c.angles_rad.size()) /
                                     weights[angle]);
    }
    ASSERT_OK_AND_ASSIGN(const auto plain, Reconstruct(c, alike));
    const double by_gaps = testing::Psnr(weighted, phantom_),
                 without = testing::Psnr(plain, phantom_);
    std::printf("uneven angles: %.2f dB by their gaps, %.2f dB alike\n", by_gaps, without);
    EXPECT_GT(by_gaps, without + 1);
    EXPECT_GT(by_gaps, 22);
  }
}

TEST(AngleWeightsTest, EvenAnglesWeighAlikeToTheLastBit) {
  std::mt19937 random(testing::FreshSeed());
  for (int round = 0; round < 50; ++round) {
    const auto count = std::uniform_int_distribution<int64_t>(2, 2000)(random);
    const double begin = std::uniform_real_distribution<double>(-20, 20)(random);
    for (const int halves : {1, 2, 3, 4}) {
      std::vector<double> angles;
      for (int64_t i = 0; i < count; ++i) {
        angles.push_back(static_cast<double>(
            static_cast<float>(begin + halves * std::numbers::pi * static_cast<double>(i) /
                                           static_cast<double>(count))));
      }
      std::shuffle(angles.begin(), angles.end(), random);
      if (std::gcd(count, halves) == 1 || count % halves == 0) {
        EXPECT_EQ(AngleWeights(angles),
                  std::vector<double>(static_cast<size_t>(count),
                                      std::numbers::pi / static_cast<double>(count)))
            << count << " angles over " << halves << " half turns from " << begin;
      }
    }
  }
}

TEST(AngleWeightsTest, GapsAreShared) {
  constexpr double kPi = std::numbers::pi, kDegree = kPi / 180;
  const auto degrees = [&](const std::vector<double>& angles) {
    std::vector<double> rad;
    for (const double angle : angles) rad.push_back(angle * kDegree);
    std::vector<double> weights = AngleWeights(rad);
    for (double& weight : weights) weight /= kDegree;
    return weights;
  };
  const auto near = [](const std::vector<double>& got, const std::vector<double>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << i;
  };
  near(degrees({0, 60, 90, 150}), {45, 45, 45, 45});
  near(degrees({0, 30, 90, 150}), {30, 45, 60, 45});
  near(degrees({330, 90, 180, 30}),
       {45, 60, 30, 45});  // equal modulo half a turn, in another order
  near(degrees({0, 45, 90, 135, 180}), {22.5, 45, 45, 45, 22.5});  // both ends included
  near(degrees({0, 45, 90, 135, 45, 225}), {45, 15, 45, 45, 15, 15});
  std::vector<double> wedge;
  for (int i = 0; i < 120; ++i) wedge.push_back(i);     // 60 degrees are missing
  near(degrees(wedge), std::vector<double>(120, 1.5));  // the others make up for them
  std::vector<double> ten;
  for (int i = 0; i < 170; ++i) ten.push_back(i);
  std::vector<double> shared(170, 1);
  shared.front() = shared.back() = 6;
  near(degrees(ten), shared);
  near(degrees({17}), {180});
  near(degrees({17, 197}), {90, 90});
}

TEST_P(TomographyQualityTest, FbpGivesTheTrueValue) {
  constexpr int64_t kDisc = 128;
  Doubles disc(kDisc * kDisc, 0.0);
  for (int64_t i = 0; i < kDisc * kDisc; ++i) {
    if (std::hypot(static_cast<double>(i % kDisc) - 63.5 - 12,
                   static_cast<double>(i / kDisc) - 63.5 + 8) < 30)
      disc[static_cast<size_t>(i)] = 0.75;
  }
  for (const auto filter :
       {ProjectionFilter::kRamp, ProjectionFilter::kSheppLogan, ProjectionFilter::kCosine,
        ProjectionFilter::kHann, ProjectionFilter::kHamming, ProjectionFilter::kParzen,
        ProjectionFilter::kButterworth}) {
    for (const int64_t slices : {1, 7}) {
      TomographyConfig c = Config(TomographyAlgorithm::kFbp, 140, 66.25);
      c.angles_rad = testing::HalfTurn(180);
      c.image_size = kDisc;
      c.filter = filter;
      c.filter_cutoff = filter == ProjectionFilter::kButterworth ? 0.5 : 1;
      c.slices = slices;
      const auto one =
          Floats(testing::ExactProjections(disc, kDisc, c.angles_rad, c.detectors, c.centers[0]));
      std::vector<float> b;
      for (int64_t s = 0; s < slices; ++s) b.insert(b.end(), one.begin(), one.end());
      ASSERT_OK_AND_ASSIGN(const auto got, Reconstruct(c, b));
      const std::vector<float> last(got.end() - kDisc * kDisc, got.end());
      double inside = 0, outside = 0;
      int64_t in = 0, out = 0;
      for (int64_t i = 0; i < kDisc * kDisc; ++i) {
        const double x = static_cast<double>(i % kDisc) - 63.5,
                     y = static_cast<double>(i / kDisc) - 63.5, r = std::hypot(x - 12, y + 8);
        if (r < 20) inside += static_cast<double>(last[static_cast<size_t>(i)]), ++in;
        if (r > 40 && std::hypot(x, y) < 62)
          outside += std::abs(static_cast<double>(last[static_cast<size_t>(i)])), ++out;
      }
      EXPECT_NEAR(inside / static_cast<double>(in), 0.75, 0.75 * 0.005) << static_cast<int>(filter);
      EXPECT_LT(outside / static_cast<double>(out), 0.02) << static_cast<int>(filter);
      EXPECT_GT(testing::Psnr(last, disc), filter == ProjectionFilter::kParzen ? 17 : 20)
          << static_cast<int>(filter);
    }
  }
}

TEST_P(TomographyQualityTest, ExtendedEdgesFlattenAnObjectWiderThanTheDetector) {
  constexpr int64_t kWide = 256, kDetector = 128;
  Doubles disc(kWide * kWide, 0.0);
  for (int64_t i = 0; i < kWide * kWide; ++i) {
    if (std::hypot(static_cast<double>(i % kWide) - 127.5, static_cast<double>(i / kWide) - 127.5) <
        110)
      disc[static_cast<size_t>(i)] = 1;
  }
  TomographyConfig c = Config(TomographyAlgorithm::kFbp, kDetector, 63.5);
  c.angles_rad = testing::HalfTurn(180);
  c.image_size = kDetector;
  const auto b = Floats(testing::ExactProjections(disc, kWide, c.angles_rad, kDetector, 63.5));
  const auto edge_over_middle = [&]() {
    const auto got = Reconstruct(c, b);
    EXPECT_THAT(got, IsOk());
    double edge = 0, middle = 0;
    for (int64_t r = 0; r < kDetector; ++r) {
      const double x = std::abs(static_cast<double>(r) - 63.5);
      const auto v = static_cast<double>((*got)[static_cast<size_t>(r * kDetector + 64)]);
      if (x < 10) middle += v / 20;
      if (x > 50 && x < 60) edge += v / 20;
    }
    return edge / middle;
  };
  const double zeros = edge_over_middle();
  c.extend_edges = true;
  const double extended = edge_over_middle();
  EXPECT_GT(zeros, 1.3) << "cupping expected";
  EXPECT_LT(std::abs(extended - 1), 0.5 * std::abs(zeros - 1));
}

TEST_P(TomographyQualityTest, AgreesWithTheHost) {
  if (GetParam() == "host") GTEST_SKIP() << "is the host";
  Device& host = testing::SharedDevice("host");
  constexpr int64_t kSize = 64, kSlices = 6;
  struct Case {
    TomographyForm form;
    TomographyAlgorithm algorithm;
    math::RayInterpolation how;
  };
  using enum math::RayInterpolation;
  for (const Case& k : {Case{TomographyForm::kCorrected, TomographyAlgorithm::kSirt, kLinear},
                        {TomographyForm::kCorrected, TomographyAlgorithm::kMlem, kLinear},
                        {TomographyForm::kCorrected, TomographyAlgorithm::kSirt, kCubic},
                        {TomographyForm::kCorrected, TomographyAlgorithm::kMlem, kNearest},
                        {TomographyForm::kCorrected, TomographyAlgorithm::kCgls, kLinear},
                        {TomographyForm::kCorrected, TomographyAlgorithm::kFbp, kLinear},
                        {TomographyForm::kCorrected, TomographyAlgorithm::kTv, kLinear},
                        {TomographyForm::kCorrected, TomographyAlgorithm::kTv, kCubic},
                        {TomographyForm::kTomopy, TomographyAlgorithm::kSirt, kNearest},
                        {TomographyForm::kTomopy, TomographyAlgorithm::kMlem, kLinear}}) {
    TomographyConfig c;
    c.form = k.form;
    c.algorithm = k.algorithm;
    c.interpolation = k.how;
    c.angles_rad = testing::HalfTurn(60);
    for (double& angle : c.angles_rad) angle += 0.01;  // no two pixels equally near
    c.detectors = kSize;
    c.slices = kSlices;
    c.iterations = 10;
    if (k.algorithm == TomographyAlgorithm::kTv) c.tv_weight = 0.01;
    std::vector<float> b;
    for (int64_t s = 0; s < kSlices; ++s) {
      for (const double v : testing::ExactProjections(testing::Phantom(kSize), kSize, c.angles_rad,
                                                      kSize, (kSize - 1) / 2.0))
        b.push_back(static_cast<float>(v * (1 + 0.1 * static_cast<double>(s))));
    }
    ASSERT_OK_AND_ASSIGN(const auto mine, Reconstruct(c, b));
    ASSERT_OK_AND_ASSIGN(auto reconstructor, Reconstructor::Create(c, host));
    ASSERT_OK_AND_ASSIGN(Stream stream, host.NewStream(StreamPriority::kNormal));
    std::vector<float> theirs(mine.size());
    ASSERT_THAT(reconstructor->Run(
                    stream.ref(),
                    {.data = {b.data(), std::ssize(b)}, .angle_first = false, .slices = kSlices},
                    nullptr, {theirs.data(), std::ssize(theirs)}, {}),
                IsOk());
    EXPECT_LT(testing::LargestDifference(mine, theirs),
              1e-4 * testing::Largest({theirs.begin(), theirs.end()}))
        << static_cast<int>(k.algorithm) << " " << static_cast<int>(k.how);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TomographyQualityTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
