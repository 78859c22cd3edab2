// How many planes two slabs have in common, against the definition in plain loops.

#include "gpu/mosaic/z_overlap.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gmock/gmock.h"

#include "tests/gpu/mosaic/mosaic_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::StoredArray;

class ZOverlapTest : public testing::ProgramTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
  int64_t Draw(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }

  ZOverlapResult Find(const ZOverlapSpec& spec, const StoredArray& fixed,
                      const StoredArray& moving) {
    const auto plan = ZOverlap::Plan(spec, fixed.type, moving.type);
    EXPECT_THAT(plan, testing::IsOk());
    if (!plan.ok()) return {};
    const auto program = plan->Program();
    return plan->Finish(program == nullptr ? std::vector<double>()
                                           : Run(*program, {fixed, moving}));
  }
  /// The correlation of the last n planes of one and the first n of the other one.
  static double Wanted(const ZOverlapSpec& spec, const StoredArray& fixed,
                       const StoredArray& moving, int64_t n) {
    const auto& f = fixed.type.dims;
    const auto& m = moving.type.dims;
    const int64_t y0 = std::max<int64_t>(0, spec.offset_y),
                  y1 = std::min(f[1], spec.offset_y + m[1]),
                  x0 = std::max<int64_t>(0, spec.offset_x),
                  x1 = std::min(f[2], spec.offset_x + m[2]);
    const int64_t margin = std::min(y1 - y0, x1 - x0) / 4;
    std::vector<long double> a, b;
    for (int64_t z = 0; z < n; ++z) {
      for (int64_t y = y0 + margin; y < y1 - margin; ++y) {
        for (int64_t x = x0 + margin; x < x1 - margin; ++x) {
          const double one = fixed.at(((f[0] - n + z) * f[1] + y) * f[2] + x),
                       two = moving.at(((spec.moving_first_plane + z) * m[1] + y - spec.offset_y) *
                                           m[2] +
                                       x - spec.offset_x);
          if (!std::isfinite(one) || !std::isfinite(two)) continue;
          a.push_back(one);
          b.push_back(two);
        }
      }
    }
    const auto normalised = [](std::vector<long double>* v) {
      long double mean = 0, square = 0;
      for (const long double one : *v) mean += one;
      mean /= static_cast<long double>(v->size());
      for (const long double one : *v) square += (one - mean) * (one - mean);
      const long double deviation = std::sqrt(square / static_cast<long double>(v->size())) + 1e-8L;
      for (long double& one : *v) one = (one - mean) / deviation;
    };
    normalised(&a);
    normalised(&b);
    long double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return static_cast<double>(sum / static_cast<long double>(a.size()));
  }
};

TEST_P(ZOverlapTest, FollowsTheDefinition) {
  for (const Scalar scalar :
       {Scalar::kF32, Scalar::kU16, Scalar::kU8, Scalar::kF64, Scalar::kI32}) {
    for (int turn = 0; turn < 3; ++turn) {
      const int64_t height = Draw(5, 30), width = Draw(5, 30), planes = Draw(6, 20),
                    below = Draw(6, 20), first = Draw(0, 3);
      ZOverlapSpec spec{.spacing_z_um = 2.5, .moving_first_plane = first, .min_correlation = 0.4};
      if (turn == 2) spec.offset_y = Draw(-2, 2), spec.offset_x = Draw(-2, 2);
      const int64_t common = std::min(planes, below - first), overlap = Draw(1, common);
      // A mean far above the deviation: squares alone would lose it.
      const double level = scalar == Scalar::kU8 ? 100 : 30000,
                   spread = scalar == Scalar::kU8 ? 60 : 5;
      std::uniform_real_distribution<double> value(level, level + spread);
      std::vector<double> f(static_cast<size_t>(planes * height * width)),
          m(static_cast<size_t>(below * height * width));
      for (double& v : f) v = value(random_);
      for (double& v : m) v = value(random_);
      const auto at = [&](int64_t z, int64_t y, int64_t x) {
        return static_cast<size_t>((z * height + y) * width + x);
      };
      for (int64_t z = 0; z < overlap; ++z) {
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            const int64_t fy = y + spec.offset_y, fx = x + spec.offset_x;
            if (fy >= 0 && fy < height && fx >= 0 && fx < width)
              m[at(first + z, y, x)] = f[at(planes - overlap + z, fy, fx)] + (turn == 1 ? 1 : 0);
          }
        }
      }
      // Voxels without a number count in neither slab.
      const bool holes = scalar == Scalar::kF32 || scalar == Scalar::kF64;
      for (int k = 0; k < 9 && holes; ++k) {
        f[random_() % f.size()] = k % 3 == 0 ? INFINITY : NAN;
        m[random_() % m.size()] = NAN;
      }
      // Nor does the one in the middle of the first plane that counts.
      if (holes)
        f[at(planes - common, height / 2, width / 2)] = m[at(first, height / 2, width / 2)] = NAN;
      const StoredArray fixed(scalar, {planes, height, width}, f),
          moving(scalar, {below, height, width}, m);
      // The interval is off by two planes, and not a whole number in binary.
      const int64_t guess = std::max<int64_t>(1, common - overlap + Draw(-2, 2));
      spec.slicing_interval_um = 2.5 * static_cast<double>(guess) * (1 - 1e-15);
      spec.search_range_um = 2.5 * 3;
      const ZOverlapResult got = Find(spec, fixed, moving);
      EXPECT_EQ(got.expected, std::max<int64_t>(0, common - guess));
      ASSERT_FALSE(got.correlations.empty());
      EXPECT_EQ(got.first, std::max<int64_t>(1, common - guess - 3));
      int64_t best = 0;
      double most = -2;
      for (size_t i = 0; i < got.correlations.size(); ++i) {
        const int64_t n = got.first + static_cast<int64_t>(i);
        const double wanted = Wanted(spec, fixed, moving, n);
        EXPECT_NEAR(got.correlations[i], wanted, 1e-9) << NameOf(scalar) << " " << n;
        if (wanted > most) most = wanted, best = n;
      }
      EXPECT_EQ(got.best, best);
      EXPECT_EQ(got.fallback, most < 0.4);
      EXPECT_EQ(got.overlap, got.fallback ? got.expected : best);
      if (std::abs(common - guess - overlap) <= 3) EXPECT_EQ(got.best, overlap);
    }
  }
}

TEST_P(ZOverlapTest, TheFirstOfEqualsAndNothingToTry) {
  // Constant slabs correlate 0 whatever the overlap: the first candidate is the best.
  const StoredArray flat(Scalar::kF32, {8, 6, 6}, std::vector<double>(288, 3));
  ZOverlapSpec spec{.slicing_interval_um = 4, .search_range_um = 2, .spacing_z_um = 1};
  ZOverlapResult got = Find(spec, flat, flat);
  EXPECT_EQ(got.best, 2);
  EXPECT_EQ(got.correlations, std::vector<double>(5, 0.0));
  EXPECT_TRUE(got.fallback);
  EXPECT_EQ(got.overlap, 4);
  // The blade takes more than a slab.
  spec.slicing_interval_um = 20;
  got = Find(spec, flat, flat);
  EXPECT_TRUE(got.correlations.empty());
  EXPECT_TRUE(got.fallback);
  EXPECT_EQ(got.overlap, 0);
  EXPECT_EQ(got.first, 0);
  // Without a voxel to compare there is no correlation.
  const StoredArray hole(Scalar::kF32, {8, 6, 6}, std::vector<double>(288, std::nan("")));
  spec.slicing_interval_um = 4;
  got = Find(spec, hole, flat);
  for (const double one : got.correlations) EXPECT_TRUE(std::isnan(one));
  EXPECT_EQ(got.best, 0);
  EXPECT_TRUE(got.fallback);
}

TEST_P(ZOverlapTest, WhatIsNotAllowedIsNamed) {
  const ArrayType type{.scalar = Scalar::kF32, .dims = {8, 6, 6}};
  const ZOverlapSpec spec{.slicing_interval_um = 4, .search_range_um = 2, .spacing_z_um = 1};
  const auto code = absl::StatusCode::kInvalidArgument;
  const auto wrong = [&](auto change, const ArrayType& moving) {
    ZOverlapSpec bad = spec;
    change(&bad);
    return ZOverlap::Plan(bad, type, moving).status();
  };
  EXPECT_THAT(wrong([](auto*) {}, {.scalar = Scalar::kU8, .dims = {8, 6, 6}}),
              IsError(code, "moving"));
  EXPECT_THAT(wrong([](auto*) {}, {.scalar = Scalar::kF32, .dims = {8, 6}}),
              IsError(code, "moving"));
  EXPECT_THAT(wrong([](auto* s) { s->spacing_z_um = 0; }, type), IsError(code, "spacing_z_um"));
  EXPECT_THAT(wrong([](auto* s) { s->slicing_interval_um = 0; }, type),
              IsError(code, "slicing_interval_um"));
  EXPECT_THAT(wrong([](auto* s) { s->search_range_um = -1; }, type),
              IsError(code, "search_range_um"));
  EXPECT_THAT(wrong([](auto* s) { s->moving_first_plane = 8; }, type),
              IsError(code, "moving_first_plane"));
  EXPECT_THAT(wrong([](auto* s) { s->offset_x = 6; }, type), IsError(code, "offset_x"));
  EXPECT_THAT(wrong([](auto* s) { s->min_correlation = NAN; }, type),
              IsError(code, "min_correlation"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ZOverlapTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo
