// Tiles resampled each by itself, against the same resize of each tile alone.

#include "gpu/mosaic/resample_tiles.h"

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

class ResampleTilesTest : public testing::ProgramTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
  int64_t Draw(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }

  /// A tile resized alone, as f32 or f64, by an operation of chains that has tests of its own.
  std::vector<double> Alone(const ResampleTilesSpec& spec, const StoredArray& tile,
                            const std::vector<int64_t>& shape) {
    const auto chain = PlanChain({ResizeOp{.shape = shape,
                                           .sampling = math::Sampling::kLinear,
                                           .corner_aligned = spec.corner_aligned,
                                           .anti_aliasing = spec.anti_aliasing}},
                                 tile.type, {}, false, "operations");
    EXPECT_THAT(chain, testing::IsOk());
    return Run(*SlicedOf(*chain), {tile});
  }
  static int64_t Samples(int64_t n, double scale) {
    return std::max<int64_t>(1,
                             static_cast<int64_t>(std::nearbyint(static_cast<double>(n) * scale)));
  }
};

TEST_P(ResampleTilesTest, EveryTileIsResizedAlone) {
  for (int round = 0; round < 24; ++round) {
    const Scalar scalar =
        std::vector{Scalar::kF32, Scalar::kU16, Scalar::kU8}[static_cast<size_t>(round) % 3];
    const bool stack = Draw(0, 1) == 1;
    const int64_t depth = Draw(1, 5), height = Draw(5, 30), width = Draw(5, 30);
    // Of a grid the last tiles are cut short.
    const int64_t rows = stack ? 1 : Draw(1, 3), columns = stack ? Draw(1, 4) : Draw(1, 3);
    const int64_t cut_y = stack ? 0 : Draw(0, height - 1), cut_x = stack ? 0 : Draw(0, width - 1);
    ResampleTilesSpec spec{
        .target_um = {{Draw(0, 1) == 0 ? 0
                                       : 10 * std::exp2(0.25 * static_cast<double>(Draw(-4, 6))),
                       2 * std::exp2(0.25 * static_cast<double>(Draw(-4, 8))),
                       3 * std::exp2(0.25 * static_cast<double>(Draw(-4, 8)))}},
        .corner_aligned = Draw(0, 1) == 1,
        .anti_aliasing = Draw(0, 3) > 0};
    spec.layout.spacing_um = {{10, 2, 3}};
    std::vector<int64_t> dims;
    if (stack) {
      spec.layout.kind = TileLayoutSpec::Kind::kStack;
      spec.layout.depth = depth;
      dims = {columns * depth, height, width};
    } else {
      spec.layout.kind = TileLayoutSpec::Kind::kGrid;
      spec.layout.tile_y = height;
      spec.layout.tile_x = width;
      dims = {depth, rows * height - cut_y, columns * width - cut_x};
      if (rows == 1) dims[1] = height;
      if (columns == 1) dims[2] = width;
    }
    std::vector<double> values(static_cast<size_t>(dims[0] * dims[1] * dims[2]));
    for (double& v : values) v = static_cast<double>(Draw(0, 255));
    if (scalar == Scalar::kF32) values[values.size() / 2] = NAN;
    const StoredArray array(scalar, dims, values);
    ResampledTiles made;
    const auto program = PlanResample(spec, array.type, &made);
    ASSERT_THAT(program, testing::IsOk());
    const std::vector<double> got = Run(**program, {array});
    const auto& out = (*program)->out().dims;
    double scale[3];
    for (int d = 0; d < 3; ++d)
      scale[d] = spec.target_um[d] == 0 ? 1 : spec.layout.spacing_um[d] / spec.target_um[d];
    EXPECT_EQ(made.depth, Samples(depth, scale[0]));
    EXPECT_EQ(made.tile_y, Samples(height, scale[1]));
    EXPECT_EQ(made.tile_x, Samples(width, scale[2]));
    const int64_t from[3] = {depth, height, width}, to[3] = {made.depth, made.tile_y, made.tile_x};
    for (int d = 0; d < 3; ++d) {
      const bool corners = spec.corner_aligned && from[d] > 1 && to[d] > 1;
      const double wanted = spec.layout.spacing_um[d] * static_cast<double>(from[d] - corners) /
                            static_cast<double>(to[d] - corners);
      EXPECT_NEAR(made.spacing_um[d], wanted, 1e-12 * wanted);
    }
    int64_t counted = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t z0 = stack ? c * depth : 0, y0 = r * height, x0 = stack ? 0 : c * width;
        const int64_t h = std::min(height, dims[1] - y0), w = std::min(width, dims[2] - x0);
        std::vector<double> own;
        for (int64_t i = 0; i < depth * h * w; ++i) {
          own.push_back(
              array.at(((z0 + i / (h * w)) * dims[1] + y0 + i / w % h) * dims[2] + x0 + i % w));
        }
        const std::vector<int64_t> shape = {made.depth, Samples(h, scale[1]), Samples(w, scale[2])};
        const std::vector<double> wanted =
            Alone(spec, StoredArray(scalar, {depth, h, w}, own), shape);
        const int64_t oz = stack ? c * made.depth : 0, oy = r * made.tile_y,
                      ox = stack ? 0 : c * made.tile_x;
        for (int64_t i = 0; i < static_cast<int64_t>(wanted.size()); ++i) {
          const int64_t z = i / (shape[1] * shape[2]), y = i / shape[2] % shape[1],
                        x = i % shape[2];
          const double have =
              got[static_cast<size_t>(((oz + z) * out[1] + oy + y) * out[2] + ox + x)];
          const double want = wanted[static_cast<size_t>(i)];
          ++counted;
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(have));
          } else {
            ASSERT_NEAR(have, want, scalar == Scalar::kF32 ? 1e-3 : 1) << round << " " << i;
          }
        }
      }
    }
    EXPECT_EQ(counted, static_cast<int64_t>(got.size()));
  }
}

TEST_P(ResampleTilesTest, TypesAreRoundedAndClipped) {
  ResampleTilesSpec spec{.target_um = {{0, 2, 2}}, .anti_aliasing = false, .scalar = Scalar::kU8};
  spec.layout.kind = TileLayoutSpec::Kind::kStack;
  ResampledTiles made;
  const StoredArray array(Scalar::kF32, {1, 2, 4}, {1, 2, 300, 400, 2, 3, 500, 600});
  const auto program = PlanResample(spec, array.type, &made);
  ASSERT_THAT(program, testing::IsOk());
  EXPECT_EQ((*program)->out(), (ArrayType{.scalar = Scalar::kU8, .dims = {1, 1, 2}}));
  EXPECT_EQ(Run(**program, {array}), (std::vector<double>{2, 255}));
  // Nothing to resample: another type alone.
  spec.target_um = {{0, 1, 1}};
  const auto same = PlanResample(spec, array.type, &made);
  ASSERT_THAT(same, testing::IsOk());
  EXPECT_EQ(Run(**same, {array}), (std::vector<double>{1, 2, 255, 255, 2, 3, 255, 255}));
}

TEST_P(ResampleTilesTest, WhatIsNotAllowedIsNamed) {
  const ArrayType type{.scalar = Scalar::kF32, .dims = {2, 30, 30}};
  ResampleTilesSpec spec{.target_um = {{0, 2, 2}}};
  spec.layout.kind = TileLayoutSpec::Kind::kStack;
  const auto wrong = [&](auto change) {
    ResampleTilesSpec bad = spec;
    change(&bad);
    ResampledTiles made;
    return PlanResample(bad, type, &made).status();
  };
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(wrong([](auto* s) { s->target_um = {}; }), IsError(code, "target_um: is 0"));
  EXPECT_THAT(wrong([](auto* s) { s->target_um[1] = -1; }), IsError(code, "target_um.y"));
  EXPECT_THAT(wrong([](auto* s) { s->target_um[2] = 1e-6; }), IsError(code, "target_um.x"));
  EXPECT_THAT(wrong([](auto* s) { s->scalar = Scalar::kC64; }), IsError(code, "type"));
  EXPECT_THAT(wrong([](auto* s) { s->layout.depth = 3; }), IsError(code, "tiles.stack.depth"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ResampleTilesTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
