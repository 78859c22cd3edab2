// Stitched tiles against plain loops in double precision.

#include "gpu/mosaic/stitch_tiles.h"

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

class StitchTilesTest : public testing::ProgramTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};

  std::vector<double> Stitch(const StitchTilesSpec& spec, const StoredArray& array,
                             std::vector<int64_t>* dims) {
    const auto program = PlanStitch(spec, array.type);
    EXPECT_THAT(program, testing::IsOk());
    if (!program.ok()) return {};
    *dims = (*program)->out().dims;
    return Run(**program, {array});
  }
};

double Weight(TileBlend blend, double at, double n) {
  if (blend == TileBlend::kAverage) return 1;
  if (blend == TileBlend::kHann) return std::pow(std::sin(M_PI * (at + 0.5) / n), 2);
  return std::min(at + 0.5, n - 0.5 - at);
}

TEST_P(StitchTilesTest, EachVoxelIsTheWeightedMeanOfItsTiles) {
  std::uniform_real_distribution<double> value(0, 200), near(-3, 3);
  for (const Scalar scalar :
       {Scalar::kF32, Scalar::kU16, Scalar::kF64, Scalar::kU8, Scalar::kF16}) {
    for (const auto blend : {TileBlend::kDefault, TileBlend::kHann, TileBlend::kAverage}) {
      const int64_t depth = 1 + static_cast<int64_t>(random_() % 3),
                    height = 20 + static_cast<int64_t>(random_() % 60),
                    width = 20 + static_cast<int64_t>(random_() % 60);
      StitchTilesSpec spec{.layout = {.kind = TileLayoutSpec::Kind::kStack, .depth = depth},
                           .blend = blend};
      spec.layout.spacing_um = {{2, 0.5, 3}};
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t c = 0; c < 2; ++c) {
          spec.position_um.push_back(
              {{2 * (depth > 1 ? near(random_) / 4 : 0),
                0.5 * (static_cast<double>(r * height) * 0.8 + near(random_) + 100),
                3 * (static_cast<double>(c * width) * 0.8 + near(random_))}});
        }
      }
      std::vector<double> values(static_cast<size_t>(6 * depth * height * width));
      for (double& v : values) v = value(random_);
      const StoredArray array(scalar, {6 * depth, height, width}, values);
      std::vector<int64_t> dims;
      const std::vector<double> got = Stitch(spec, array, &dims);
      const Vector3 origin = StitchOrigin(spec);
      ASSERT_EQ(dims.size(), 3u);
      const double tolerance = IsIntegral(scalar) ? 0.5001 : scalar == Scalar::kF16 ? 0.08 : 2e-5;
      size_t i = 0;
      int gaps = 0;
      for (int64_t z = 0; z < dims[0]; ++z) {
        for (int64_t y = 0; y < dims[1]; ++y) {
          for (int64_t x = 0; x < dims[2]; ++x, ++i) {
            double sum = 0, weights = 0;
            for (size_t tile = 0; tile < 6; ++tile) {
              const double extent[3] = {static_cast<double>(depth), static_cast<double>(height),
                                        static_cast<double>(width)};
              double at[3] = {static_cast<double>(z), static_cast<double>(y),
                              static_cast<double>(x)};
              bool inside = true;
              for (int d = 0; d < 3; ++d) {
                at[d] -= (spec.position_um[tile][d] - origin[d]) / spec.layout.spacing_um[d];
                inside = inside && at[d] >= -1e-9 && at[d] <= extent[d] - 1 + 1e-9;
              }
              if (!inside) continue;
              double sample = 0;
              for (int corner = 0; corner < 8; ++corner) {
                double weight = 1;
                int64_t from[3];
                for (int d = 0; d < 3; ++d) {
                  const double low = std::floor(at[d]), part = at[d] - low;
                  weight *= (corner >> d & 1) != 0 ? part : 1 - part;
                  from[d] = std::clamp<int64_t>(static_cast<int64_t>(low) + (corner >> d & 1), 0,
                                                static_cast<int64_t>(extent[d]) - 1);
                }
                sample +=
                    weight *
                    array.at(((static_cast<int64_t>(tile) * depth + from[0]) * height + from[1]) *
                                 width +
                             from[2]);
              }
              const double weight =
                  Weight(blend, at[1], extent[1]) * Weight(blend, at[2], extent[2]);
              sum += weight * sample;
              weights += weight;
            }
            if (weights > 0) {
              ASSERT_NEAR(got[i], sum / weights, tolerance) << NameOf(scalar) << " " << i;
            } else if (IsIntegral(scalar)) {
              ASSERT_EQ(got[i], 0);
              ++gaps;
            } else {
              ASSERT_TRUE(std::isnan(got[i]));
              ++gaps;
            }
          }
        }
      }
      EXPECT_LT(gaps, static_cast<int>(i));
    }
  }
}

TEST_P(StitchTilesTest, AConstantStaysAndAPictureHasNoSeam) {
  std::uniform_real_distribution<double> near(-3, 3);
  for (const auto blend : {TileBlend::kLinear, TileBlend::kHann, TileBlend::kAverage}) {
    // 0.1 has no exact f32, and sums of weights are not whole.
    StitchTilesSpec spec{
        .layout = {.kind = TileLayoutSpec::Kind::kGrid, .tile_y = 33, .tile_x = 41},
        .blend = blend,
        .gap = -1};
    const StoredArray flat(Scalar::kF32, {2, 80, 100}, std::vector<double>(16000, 0.1));
    for (int i = 0; i < 9; ++i) {
      spec.position_um.push_back({{0, i / 3 * 25 + near(random_), i % 3 * 30 + near(random_)}});
    }
    std::vector<int64_t> dims;
    for (const double v : Stitch(spec, flat, &dims))
      ASSERT_TRUE(v == static_cast<double>(0.1f) || v == -1) << v;
    // Tiles cut from one picture at whole voxels are that picture again.
    std::vector<double> picture(90 * 70);
    for (double& v : picture) v = static_cast<double>(random_() % 65536);
    std::vector<double> tiles;
    spec.layout = {.kind = TileLayoutSpec::Kind::kStack};
    spec.layout.spacing_um = {{1, 0.1, 0.7}};
    spec.position_um.clear();
    spec.gap.reset();
    for (const int64_t y : {0, 20, 50}) {
      for (const int64_t x : {0, 15, 30}) {
        spec.position_um.push_back(
            {{0, 0.1 * static_cast<double>(y), 0.7 * static_cast<double>(x)}});
        for (int64_t i = 0; i < 40; ++i) {
          for (int64_t k = 0; k < 40; ++k)
            tiles.push_back(picture[static_cast<size_t>((y + i) * 70 + x + k)]);
        }
      }
    }
    const StoredArray array(Scalar::kU16, {9, 40, 40}, tiles);
    EXPECT_EQ(Stitch(spec, array, &dims), picture);
    EXPECT_EQ(dims, (std::vector<int64_t>{1, 90, 70}));
    spec.scalar = Scalar::kF32;
    EXPECT_EQ(Stitch(spec, array, &dims), picture);
  }
}

TEST_P(StitchTilesTest, NaNIsNoMeasurementAndGapsAreFilled) {
  std::vector<double> tiles(2 * 100, 5);
  tiles[55] = std::nan("");
  StitchTilesSpec spec{.layout = {.kind = TileLayoutSpec::Kind::kStack},
                       .position_um = {{{0, 0, 0}}, {{0, 0, 5}}}};
  std::vector<int64_t> dims;
  const StoredArray array(Scalar::kF32, {2, 10, 10}, tiles);
  std::vector<double> got = Stitch(spec, array, &dims);
  EXPECT_EQ(dims, (std::vector<int64_t>{1, 10, 15}));
  EXPECT_EQ(std::count(got.begin(), got.end(), 5.0), 150);  // the other tile has it
  spec.position_um[1][2] = 12;
  spec.gap = 7;
  got = Stitch(spec, array, &dims);
  EXPECT_EQ(std::count(got.begin(), got.end(), 7.0), 21);
  EXPECT_EQ(std::count(got.begin(), got.end(), 5.0), 199);
}

TEST_P(StitchTilesTest, WhatIsNotAllowedIsNamed) {
  const ArrayType type{.scalar = Scalar::kU8, .dims = {2, 10, 10}};
  const StitchTilesSpec spec{.layout = {.kind = TileLayoutSpec::Kind::kStack},
                             .position_um = {{{0, 0, 0}}, {{0, 0, 5}}}};
  const auto code = absl::StatusCode::kInvalidArgument;
  const auto wrong = [&](auto change) {
    StitchTilesSpec bad = spec;
    change(&bad);
    return PlanStitch(bad, type).status();
  };
  EXPECT_THAT(wrong([](auto* s) { s->gap = 256; }), IsError(code, "gap"));
  EXPECT_THAT(wrong([](auto* s) { s->gap = NAN; }), IsError(code, "gap"));
  EXPECT_THAT(wrong([](auto* s) { s->scalar = Scalar::kC64; }), IsError(code, "type"));
  EXPECT_THAT(wrong([](auto* s) { s->position_um.pop_back(); }), IsError(code, "position_um"));
  EXPECT_THAT(wrong([](auto* s) {
                s->position_um[1][2] = 1e9;
                s->layout.spacing_um[2] = 1e-3;
              }),
              IsError(code, "position_um[1]"));
  EXPECT_THAT(wrong([](auto* s) { s->position_um[1] = {{0, 1e6, 1e6}}; }), IsError(code, "voxels"));
}

INSTANTIATE_TEST_SUITE_P(Backends, StitchTilesTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
