// Tiles cut from a phantom at known positions between the voxels, with noise, shading, partial
// overlaps and wrong tiles: how far the joints are off, and what is named.

#include "gpu/mosaic/register_tiles.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "tests/gpu/mosaic/mosaic_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::StoredArray;

/// A picture that is known between the voxels: many blobs of several sizes.
class Phantom {
 public:
  Phantom(std::mt19937& random, double depth, double height, double width) {
    std::uniform_real_distribution<double> at(0, 1), size(1.2, 5), bright(0.3, 1.5);
    const int count = static_cast<int>(height * width / 60 * std::max(1.0, depth / 8));
    for (int i = 0; i < count; ++i) {
      blobs_.push_back({{at(random) * depth, at(random) * height - 20, at(random) * width - 20},
                        size(random),
                        bright(random)});
    }
    std::sort(blobs_.begin(), blobs_.end(),
              [](const Blob& a, const Blob& b) { return a.at[1] < b.at[1]; });
    flat_ = depth <= 1;
  }
  /// A tile from a position on; the mean brightness is about 1.
  std::vector<double> Cut(const Vector3& from, const int64_t (&extent)[3]) const {
    std::vector<double> out(static_cast<size_t>(extent[0] * extent[1] * extent[2]), 0.3);
    for (const Blob& blob : blobs_) {
      const double reach = 4 * blob.size;
      int64_t begin[3], end[3];
      bool inside = true;
      for (int d = 0; d < 3; ++d) {
        const double c = blob.at[d] - from[d];
        begin[d] = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(c - reach)));
        end[d] = std::min(extent[d], static_cast<int64_t>(std::floor(c + reach)) + 1);
        if (d == 0 && flat_) begin[d] = 0, end[d] = extent[d];
        inside = inside && begin[d] < end[d];
      }
      if (!inside) continue;
      for (int64_t z = begin[0]; z < end[0]; ++z) {
        for (int64_t y = begin[1]; y < end[1]; ++y) {
          for (int64_t x = begin[2]; x < end[2]; ++x) {
            const double dz = flat_ ? 0 : static_cast<double>(z) + from[0] - blob.at[0],
                         dy = static_cast<double>(y) + from[1] - blob.at[1],
                         dx = static_cast<double>(x) + from[2] - blob.at[2];
            out[static_cast<size_t>((z * extent[1] + y) * extent[2] + x)] +=
                blob.bright *
                std::exp(-(dz * dz + dy * dy + dx * dx) / (2 * blob.size * blob.size));
          }
        }
      }
    }
    return out;
  }

 private:
  struct Blob {
    Vector3 at;
    double size, bright;
  };
  std::vector<Blob> blobs_;
  bool flat_ = false;
};

struct Case {
  int64_t rows = 3, columns = 4, extent[3] = {1, 96, 80};
  double overlap = 0.22;     // of a tile
  double noise = 0.1;        // of the picture's brightness
  double shade = 0.4;        // that the corners lose
  double stage_error = 1.5;  // voxels, uniform
  Scalar scalar = Scalar::kF32;
  double scale = 1;  // of the numbers that are stored
  bool in_depth = false;
};

/// A mosaic with its truth.
struct Mosaic {
  std::vector<double> values;
  std::vector<Vector3> truth, stage;
};

class RegisterTilesTest : public testing::ProgramTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};

  Mosaic Make(const Case& c) {
    Mosaic out;
    std::uniform_real_distribution<double> error(-c.stage_error, c.stage_error);
    std::normal_distribution<double> noise(0, c.noise);
    const double step[2] = {std::floor(static_cast<double>(c.extent[1]) * (1 - c.overlap)),
                            std::floor(static_cast<double>(c.extent[2]) * (1 - c.overlap))};
    const Phantom phantom(random_, static_cast<double>(c.in_depth ? c.extent[0] : 1),
                          step[0] * static_cast<double>(c.rows) + 80,
                          step[1] * static_cast<double>(c.columns) + 80);
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t k = 0; k < c.columns; ++k) {
        const Vector3 stage{
            {0, static_cast<double>(r) * step[0], static_cast<double>(k) * step[1]}};
        Vector3 truth = stage;
        truth[1] += error(random_);
        truth[2] += error(random_);
        if (c.in_depth) truth[0] += error(random_) / 2;
        std::vector<double> tile = phantom.Cut(truth, c.extent);
        for (size_t i = 0; i < tile.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const double y = static_cast<double>(at / c.extent[2] % c.extent[1]) /
                               static_cast<double>(c.extent[1]) * 2 -
                           1,
                       x = static_cast<double>(at % c.extent[2]) /
                               static_cast<double>(c.extent[2]) * 2 -
                           1;
          tile[i] = c.scale *
                    std::max(0.0, tile[i] * (1 - c.shade * (y * y + x * x) / 2) + noise(random_));
        }
        out.values.insert(out.values.end(), tile.begin(), tile.end());
        out.truth.push_back(truth);
        out.stage.push_back(stage);
      }
    }
    return out;
  }
  TilePositions Register(const Case& c, const Mosaic& mosaic, RegistrationSpec spec = {}) {
    const auto tiles = static_cast<int64_t>(mosaic.stage.size());
    const StoredArray array(c.scalar, {tiles * c.extent[0], c.extent[1], c.extent[2]},
                            mosaic.values);
    spec.layout.kind = TileLayoutSpec::Kind::kStack;
    spec.layout.depth = c.extent[0];
    spec.stage_um = mosaic.stage;
    for (int d = 0; d < 3; ++d) {
      for (Vector3& one : spec.stage_um) one[d] *= spec.layout.spacing_um[d];
    }
    spec.in_depth = c.in_depth;
    // Two tiles may be off in opposite directions.
    if (spec.max_shift_um == 0)
      spec.max_shift_um =
          (2 * c.stage_error + 1) * std::max(spec.layout.spacing_um[1], spec.layout.spacing_um[2]);
    const auto plan = Registration::Plan(spec, array.type);
    EXPECT_THAT(plan, testing::IsOk());
    if (!plan.ok()) return {};
    const auto program = plan->Program();
    const std::vector<double> numbers = Run(*program, {array});
    std::vector<TileAlignment> found(numbers.size() / 5);
    for (size_t i = 0; i < found.size(); ++i) {
      for (size_t d = 0; d < 3; ++d) found[i].shift[d] = numbers[5 * i + d];
      found[i].correlation = numbers[5 * i + 3];
      found[i].voxels = numbers[5 * i + 4];
    }
    return plan->Solve(found);
  }
  /// The share of the joints that are off by at most `most` voxels, without those of `wrong`.
  static double Share(const Mosaic& mosaic, const TilePositions& got, double most, int64_t wrong) {
    int good = 0, all = 0;
    for (const TileJoint& joint : got.joints) {
      if (joint.first == wrong || joint.second == wrong) continue;
      double worst = 0;
      for (int d = 0; d < 3; ++d) {
        worst = std::max(worst, std::abs(joint.difference_um[d] -
                                         mosaic.truth[static_cast<size_t>(joint.second)][d] +
                                         mosaic.truth[static_cast<size_t>(joint.first)][d]));
      }
      ++all;
      good += worst <= most ? 1 : 0;
    }
    return static_cast<double>(good) / all;
  }
  static std::vector<int64_t> Suspects(const TilePositions& got) {
    std::vector<int64_t> out;
    for (size_t i = 0; i < got.tiles.size(); ++i) {
      if (got.tiles[i].state != TileState::kRegistered) out.push_back(static_cast<int64_t>(i));
    }
    return out;
  }
  /// The largest difference of two tiles' positions from the truth, among all but `wrong`.
  static double WorstPosition(const Mosaic& mosaic, const TilePositions& got, int64_t wrong) {
    double worst = 0;
    for (int d = 0; d < 3; ++d) {
      double low = 1e9, high = -1e9;
      for (size_t i = 0; i < got.tiles.size(); ++i) {
        if (static_cast<int64_t>(i) == wrong) continue;
        const double off = got.tiles[i].position_um[d] - mosaic.truth[i][d];
        low = std::min(low, off);
        high = std::max(high, off);
      }
      worst = std::max(worst, high - low);
    }
    return worst;
  }
};

TEST_P(RegisterTilesTest, JointsAreFoundWithinAFifthOfAVoxel) {
  const Case cases[] = {{},
                        {.rows = 2,
                         .columns = 5,
                         .extent = {1, 70, 128},
                         .overlap = 0.3,
                         .noise = 0.15,
                         .stage_error = 3},
                        {.rows = 4,
                         .columns = 2,
                         .extent = {3, 90, 90},
                         .overlap = 0.2,
                         .scalar = Scalar::kU16,
                         .scale = 4000},
                        {.rows = 3,
                         .columns = 3,
                         .extent = {1, 81, 64},
                         .overlap = 0.35,
                         .noise = 0.05,
                         .shade = 0.6,
                         .scalar = Scalar::kU8,
                         .scale = 40},
                        {.rows = 2,
                         .columns = 3,
                         .extent = {1, 64, 100},
                         .shade = 0,
                         .scalar = Scalar::kF64,
                         .scale = 1e-3}};
  for (const Case& c : cases) {
    const Mosaic mosaic = Make(c);
    const TilePositions got = Register(c, mosaic);
    ASSERT_GE(got.joints.size(),
              static_cast<size_t>(c.rows * (c.columns - 1) + c.columns * (c.rows - 1)));
    EXPECT_GE(Share(mosaic, got, 0.2, -1), 0.95);
    EXPECT_LE(WorstPosition(mosaic, got, -1), 0.6);
    // Of a stage that is this bad everywhere, a tile may well look moved.
    if (c.stage_error < 2) EXPECT_THAT(Suspects(got), ::testing::IsEmpty());
    EXPECT_LE(got.rms_residual_um, 0.3);
  }
}

TEST_P(RegisterTilesTest, InDepth) {
  const Case c{.rows = 2, .columns = 2, .extent = {20, 40, 44}, .overlap = 0.4, .in_depth = true};
  const Mosaic mosaic = Make(c);
  const TilePositions got = Register(c, mosaic);
  EXPECT_GE(Share(mosaic, got, 0.2, -1), 0.95);
  EXPECT_LE(WorstPosition(mosaic, got, -1), 0.6);
}

TEST_P(RegisterTilesTest, ATileWithAnotherPictureIsNamedAndBendsNothing) {
  const Case c{.rows = 3, .columns = 3, .extent = {1, 110, 104}, .overlap = 0.35};
  Mosaic mosaic = Make(c), other = Make(c);
  const auto wrong = static_cast<int64_t>(random_() % 9);
  const int64_t size = c.extent[0] * c.extent[1] * c.extent[2];
  std::copy_n(other.values.begin() + wrong * size, size, mosaic.values.begin() + wrong * size);
  const TilePositions got = Register(c, mosaic);
  EXPECT_EQ(Suspects(got), std::vector<int64_t>{wrong});
  EXPECT_EQ(got.tiles[static_cast<size_t>(wrong)].state, TileState::kUnmatched);
  for (const TileJoint& joint : got.joints) {
    if (joint.first == wrong || joint.second == wrong) {
      EXPECT_EQ(joint.state, JointState::kFallback);
    }
  }
  EXPECT_GE(Share(mosaic, got, 0.2, wrong), 0.95);
  EXPECT_LE(WorstPosition(mosaic, got, wrong), 0.6);
  // It lies near where the stage has it.
  const Vector3& correction = got.tiles[static_cast<size_t>(wrong)].correction_um;
  EXPECT_LE(std::abs(correction[1]) + std::abs(correction[2]), 4 * c.stage_error);
}

TEST_P(RegisterTilesTest, ATileThatTheStageHasElsewhereIsNamedAndPutRight) {
  Case c{.rows = 3, .columns = 3, .extent = {1, 110, 104}, .overlap = 0.4};
  c.stage_error = 1;
  Mosaic mosaic = Make(c);
  const auto wrong = static_cast<int64_t>(random_() % 9);
  mosaic.stage[static_cast<size_t>(wrong)][1] += 8;
  mosaic.stage[static_cast<size_t>(wrong)][2] -= 7;
  RegistrationSpec spec;
  spec.max_shift_um = 12;
  const TilePositions got = Register(c, mosaic, spec);
  EXPECT_EQ(Suspects(got), std::vector<int64_t>{wrong});
  EXPECT_EQ(got.tiles[static_cast<size_t>(wrong)].state, TileState::kMoved);
  EXPECT_LE(WorstPosition(mosaic, got, -1), 0.6);
}

TEST_P(RegisterTilesTest, AGradientThatTilesShareIsNoMatch) {
  // Every tile shows something else under the same gradient of brightness, which is far stronger.
  // The overlaps are large, because those of a few blobs may correlate by chance: of 525 joints of
  // 27 x 100 or 90 x 30 voxels, 4 came to 0.51 ... 0.55.
  const Case c{.rows = 2, .columns = 3, .extent = {1, 150, 160}, .overlap = 0.45, .shade = 0};
  const int64_t size = c.extent[0] * c.extent[1] * c.extent[2];
  for (const double slope : {2.0, 10.0, 100.0}) {
    Mosaic mosaic = Make(c);
    for (int64_t tile = 1; tile < c.rows * c.columns; ++tile) {
      const Mosaic other = Make(c);
      std::copy_n(other.values.begin() + tile * size, size, mosaic.values.begin() + tile * size);
    }
    for (size_t i = 0; i < mosaic.values.size(); ++i) {
      const auto at = static_cast<int64_t>(i) % size;
      mosaic.values[i] += slope * static_cast<double>(at / c.extent[2]) / 150 +
                          2 * slope * static_cast<double>(at % c.extent[2]) / 160;
    }
    const TilePositions got = Register(c, mosaic);
    ASSERT_EQ(got.joints.size(), 7u);
    for (const TileJoint& joint : got.joints)
      EXPECT_EQ(joint.state, JointState::kFallback) << slope << " " << joint.confidence;
  }
}

TEST_P(RegisterTilesTest, AGradientDoesNotHideAMatch) {
  const Case c{.rows = 2, .columns = 3, .extent = {1, 90, 100}, .overlap = 0.3, .shade = 0};
  Mosaic mosaic = Make(c);
  for (size_t i = 0; i < mosaic.values.size(); ++i)
    mosaic.values[i] += 20 * static_cast<double>(static_cast<int64_t>(i) % c.extent[2]) / 100;
  const TilePositions got = Register(c, mosaic);
  EXPECT_THAT(Suspects(got), ::testing::IsEmpty());
  EXPECT_GE(Share(mosaic, got, 0.25, -1), 0.95);
}

TEST_P(RegisterTilesTest, StopsWhenTheFlagIsSet) {
  // One pair whose search takes seconds on one core: it is over at once, and so is every other
  // part.
  const int64_t side = device_.info().backend == "host" ? 700 : 3000;
  RegistrationSpec spec;
  spec.layout.kind = TileLayoutSpec::Kind::kStack;
  spec.stage_um.resize(2);
  const auto plan = Registration::Plan(spec, {.scalar = Scalar::kF32, .dims = {2, side, side}});
  ASSERT_THAT(plan, testing::IsOk());
  std::vector<float> picture(static_cast<size_t>(2 * side * side));
  for (float& v : picture) v = static_cast<float>(random_() % 1000);
  const DeviceBuffer tiles = Upload(picture);
  const auto program = plan->Program();
  const DeviceBuffer out = Poisoned(program->out().bytes());
  auto flag = device_.AllocatePinned(4);
  ASSERT_THAT(flag, testing::IsOk());
  // The least of several is free of what other programs take.
  double seconds[] = {1e9, 1e9};
  for (const int32_t set : {1, 0, 1, 1}) {
    *flag->as<int32_t>() = set;
    auto run = program->Prepare(device_, flag->as<int32_t>());
    ASSERT_THAT(run, testing::IsOk());
    const auto begun = std::chrono::steady_clock::now();
    ASSERT_THAT((*run)->Run(stream_.ref(), 0, program->parts(), {tiles.data()}, out.data()),
                testing::IsOk());
    ASSERT_THAT(stream_.ref().Synchronize(), testing::IsOk());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    seconds[set] = std::min(seconds[set], took.count());
  }
  RecordProperty("seconds", absl::StrCat(seconds[1], " instead of ", seconds[0]));
  EXPECT_LT(seconds[1], 0.6 * seconds[0]);
}

TEST_P(RegisterTilesTest, NothingToSee) {
  const Case c{.rows = 2, .columns = 2};
  Mosaic mosaic = Make(c);
  for (const double value : {0.0, 7.0, std::nan("")}) {
    std::fill(mosaic.values.begin(), mosaic.values.end(), value);
    const TilePositions got = Register(c, mosaic);
    for (const TileJoint& joint : got.joints) {
      EXPECT_EQ(joint.confidence, 0);
      EXPECT_EQ(joint.state, JointState::kFallback);
    }
    for (size_t i = 0; i < got.tiles.size(); ++i) {
      EXPECT_EQ(got.tiles[i].state, TileState::kUnmatched);
      for (int d = 0; d < 3; ++d) EXPECT_EQ(got.tiles[i].position_um[d], mosaic.stage[i][d]);
    }
  }
}

TEST_P(RegisterTilesTest, TilesSideBySideAndTheirUnits) {
  // The same tiles as a stack and as a grid with tiles that end early, in um.
  const Case c{.rows = 2, .columns = 3, .extent = {2, 60, 72}, .overlap = 0.3};
  const Mosaic mosaic = Make(c);
  RegistrationSpec spec;
  spec.layout.spacing_um = {{3, 0.5, 4}};
  const TilePositions stack = Register(c, mosaic, spec);
  spec.layout.kind = TileLayoutSpec::Kind::kGrid;
  spec.layout.tile_y = 60;
  spec.layout.tile_x = 72;
  const int64_t width = 3 * 72 - 10;
  std::vector<double> grid;
  for (int64_t z = 0; z < 2; ++z) {
    for (int64_t y = 0; y < 120; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t tile = y / 60 * 3 + x / 72;
        grid.push_back(
            mosaic.values[static_cast<size_t>(((tile * 2 + z) * 60 + y % 60) * 72 + x % 72)]);
      }
    }
  }
  const StoredArray array(Scalar::kF32, {2, 120, width}, grid);
  spec.stage_um = mosaic.stage;
  for (Vector3& one : spec.stage_um) one[1] *= 0.5, one[2] *= 4;
  const auto plan = Registration::Plan(spec, array.type);
  ASSERT_THAT(plan, testing::IsOk());
  const std::vector<double> numbers = Run(*plan->Program(), {array});
  ASSERT_EQ(numbers.size(), 5 * stack.joints.size());
  for (size_t i = 0; i < stack.joints.size(); ++i) {
    const TileJoint& joint = stack.joints[i];
    EXPECT_NEAR(joint.difference_um[1],
                0.5 * (mosaic.truth[static_cast<size_t>(joint.second)][1] -
                       mosaic.truth[static_cast<size_t>(joint.first)][1]),
                0.5 * 0.3);
    EXPECT_NEAR(joint.difference_um[2],
                4 * (mosaic.truth[static_cast<size_t>(joint.second)][2] -
                     mosaic.truth[static_cast<size_t>(joint.first)][2]),
                4 * 0.3);
  }
}

TEST_P(RegisterTilesTest, WhatIsNotAllowedIsNamed) {
  const ArrayType type{.scalar = Scalar::kF32, .dims = {6, 40, 40}};
  RegistrationSpec spec;
  spec.layout.kind = TileLayoutSpec::Kind::kStack;
  spec.stage_um.resize(6);
  const auto wrong = [&](auto change, const ArrayType& of) {
    RegistrationSpec bad = spec;
    change(&bad);
    return Registration::Plan(bad, of).status();
  };
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(wrong([](auto* s) { s->layout.depth = 4; }, type),
              IsError(code, "tiles.stack.depth"));
  EXPECT_THAT(wrong([](auto* s) { s->layout.kind = TileLayoutSpec::Kind::kNone; }, type),
              IsError(code, "tiles.layout"));
  EXPECT_THAT(wrong([](auto* s) { s->stage_um.pop_back(); }, type), IsError(code, "stage_um"));
  EXPECT_THAT(wrong([](auto* s) { s->stage_um[3][2] = NAN; }, type),
              IsError(code, "stage_um[3].x"));
  EXPECT_THAT(wrong([](auto* s) { s->min_confidence = 2; }, type), IsError(code, "min_confidence"));
  EXPECT_THAT(wrong([](auto* s) { s->min_overlap = 3; }, type), IsError(code, "min_overlap"));
  EXPECT_THAT(wrong([](auto* s) { s->layout.spacing_um[1] = 0; }, type),
              IsError(code, "tiles.spacing_um.y"));
  EXPECT_THAT(wrong([](auto*) {}, {.scalar = Scalar::kC64, .dims = {6, 40, 40}}),
              IsError(code, "tiles.name"));
  EXPECT_THAT(wrong(
                  [](auto* s) {
                    s->layout.kind = TileLayoutSpec::Kind::kGrid;
                    s->layout.tile_y = 41, s->layout.tile_x = 20;
                  },
                  type),
              IsError(code, "tiles.grid.tile_y"));
}

INSTANTIATE_TEST_SUITE_P(Backends, RegisterTilesTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
