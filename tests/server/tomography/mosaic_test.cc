// Mosaics of projections: how tiles lie together, how they are blended, and how their places are
// found.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/tomography/joined_detector.h"
#include "server/tomography/mosaic_input.h"
#include "server/tomography/mosaic_search.h"
#include "server/tomography/mosaic_tile.h"
#include "server/tomography/overlap_check.h"
#include "server/tomography/tile_correlation.h"
#include "server/tomography/tile_links.h"
#include "server/tomography/tile_shift.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::tomography {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using storage::FrameKind;
using storage::ProjectionBox;
using storage::ProjectionInfo;
using ::testing::HasSubstr;

/// Frames of f64 in memory, given as another type.
struct Frames {
  int64_t frames = 0;
  std::vector<double> values;  // [frame, row, column]
};

class FakeTile final : public storage::ProjectionInput {
 public:
  FakeTile(ProjectionInfo info, std::array<Frames, 3> frames)
      : ProjectionInput(std::move(info)), frames_(std::move(frames)) {}
  mutable std::atomic<int64_t> pixels_read = 0, fields_read = 0;
  std::atomic<int> fails = -1;  // the read after so many others

 protected:
  absl::Status ReadInside(const ProjectionBox& box, void* out) override {
    if (fails-- == 0) return absl::DataLossError("a damaged chunk");
    (box.kind == FrameKind::kProjection ? pixels_read : fields_read) += box.elements();
    const auto copy = [&]<typename T>(T) {
      T* to = static_cast<T*>(out);
      for (int64_t f = box.first_frame; f < box.first_frame + box.frames; ++f) {
        for (int64_t r = box.first_row; r < box.first_row + box.rows; ++r) {
          for (int64_t c = box.first_column; c < box.first_column + box.columns; ++c) {
            *to++ = static_cast<T>(
                frames_[static_cast<size_t>(box.kind)]
                    .values[static_cast<size_t>((f * info_.rows + r) * info_.columns + c)]);
          }
        }
      }
    };
    switch (info_.dtype) {
      case DType::kU8: copy(uint8_t{}); break;
      case DType::kU16: copy(uint16_t{}); break;
      case DType::kI16: copy(int16_t{}); break;
      default: copy(float{}); break;
    }
    return absl::OkStatus();
  }

 private:
  const std::array<Frames, 3> frames_;
};

/// A number of the kind, frame, row and column.
using Value = std::function<double(FrameKind, int64_t, int64_t, int64_t)>;

std::shared_ptr<FakeTile> MakeTile(DType dtype, int64_t rows, int64_t columns, int64_t projections,
                                   int64_t flats, int64_t darks, const Value& value) {
  ProjectionInfo info;
  info.dtype = dtype;
  info.rows = rows;
  info.columns = columns;
  info.projections = projections;
  info.flats = flats;
  info.darks = darks;
  std::array<Frames, 3> frames;
  for (const FrameKind kind : {FrameKind::kProjection, FrameKind::kFlat, FrameKind::kDark}) {
    Frames& of = frames[static_cast<size_t>(kind)];
    of.frames = info.frames(kind);
    for (int64_t f = 0; f < of.frames; ++f) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) of.values.push_back(value(kind, f, r, c));
      }
    }
  }
  return std::make_shared<FakeTile>(info, std::move(frames));
}

std::vector<float> ReadBox(storage::ProjectionInput& input, const ProjectionBox& box) {
  std::vector<float> out(static_cast<size_t>(box.elements()),
                         std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(input.Read(box, out.data()), IsOk());
  return out;
}
ProjectionBox WholeOf(const ProjectionInfo& info) {
  return {.kind = FrameKind::kProjection,
          .first_frame = 0,
          .frames = info.projections,
          .first_row = 0,
          .rows = info.rows,
          .first_column = 0,
          .columns = info.columns};
}

struct PlacedTile {
  std::shared_ptr<storage::ProjectionInput> input;
  double column = 0, row = 0;
};

std::shared_ptr<MosaicInput> Join(const std::vector<PlacedTile>& placed,
                                  const TileFields& fields = {}) {
  std::vector<TilePlace> places;
  std::vector<std::unique_ptr<MosaicTile>> tiles;
  for (const PlacedTile& one : placed) {
    places.push_back({.first_column = one.column,
                      .first_row = one.row,
                      .columns = one.input->info().columns,
                      .rows = one.input->info().rows});
    tiles.push_back(std::make_unique<MosaicTile>(one.input, fields));
  }
  auto joined = JoinTiles(places);
  EXPECT_THAT(joined, IsOk());
  if (!joined.ok()) return nullptr;
  ProjectionInfo info;
  info.projections = placed.front().input->info().projections;
  info.rows = joined->rows;
  info.columns = joined->columns;
  return std::make_shared<MosaicInput>(info, *std::move(joined), std::move(tiles));
}

// -- the joined detector

TilePlace At(double column, double row, int64_t columns = 100, int64_t rows = 50) {
  return {.first_column = column, .first_row = row, .columns = columns, .rows = rows};
}

TEST(JoinedDetectorTest, SpansTilesThatOverlapOrTouchInAnyOrder) {
  for (const double overlap : {0.0, 1.0, 20.0, 60.0}) {
    for (const bool turned : {false, true}) {
      std::vector<TilePlace> places = {At(7, -3), At(107 - overlap, -3)};
      if (turned) std::swap(places[0], places[1]);
      const auto joined = JoinTiles(places);
      ASSERT_THAT(joined, IsOk());
      EXPECT_EQ(joined->columns, 200 - static_cast<int64_t>(overlap));
      EXPECT_EQ(joined->rows, 50);
      EXPECT_EQ(joined->tiles[turned ? 1 : 0].first_column, 0);
      EXPECT_EQ(joined->tiles[turned ? 0 : 1].first_column, 100 - overlap);
      EXPECT_EQ(joined->tiles[0].first_row, 0);
    }
  }
}

TEST(JoinedDetectorTest, WeightsOfNeighboursFallLinearlyAndSumToOne) {
  for (const double second : {80.0, 79.6, 30.0}) {
    const auto joined = JoinTiles({At(0, 0), At(second, 0)});
    ASSERT_THAT(joined, IsOk());
    const JoinedTile &a = joined->tiles[0], &b = joined->tiles[1];
    for (int64_t x = 0; x < joined->columns; ++x) {
      const double of_a = x < 100 ? a.column_weights[static_cast<size_t>(x)] : 0,
                   of_b = x >= b.column ? b.column_weights[static_cast<size_t>(x - b.column)] : 0;
      const double shared = 99 - second;
      if (x >= b.column && x < 100) {
        EXPECT_NEAR(of_a, (100 - static_cast<double>(x)) / (shared + 2), 1e-6);
        EXPECT_NEAR(of_a + of_b, 1, 1e-6) << x;
      } else {
        EXPECT_GT(std::max(of_a, of_b), 0.95);  // alone
      }
    }
    for (const float weight : a.row_weights) EXPECT_EQ(weight, 1);
  }
}

TEST(JoinedDetectorTest, RaggedEndsLieOutside) {
  const auto joined = JoinTiles({At(0, 3), At(80, 0), At(160, 5.4)});
  ASSERT_THAT(joined, IsOk());
  EXPECT_EQ(joined->columns, 260);
  EXPECT_EQ(joined->rows, 45);  // 5 to 49
  EXPECT_EQ(joined->tiles[0].first_row, -2);
  EXPECT_EQ(joined->tiles[1].first_row, -5);
  EXPECT_NEAR(joined->tiles[2].first_row, 0.4, 1e-12);

  // Two by two, each a little off.
  const auto grid = JoinTiles({At(0.3, 0), At(90, 1), At(2, 40), At(91, 42.2)});
  ASSERT_THAT(grid, IsOk());
  EXPECT_EQ(grid->columns, 188);  // 2 to 189
  EXPECT_EQ(grid->rows, 89);      // 1 to 89
}

TEST(JoinedDetectorTest, RefusesHolesAndNamesTheTile) {
  const auto expect = [](const std::vector<TilePlace>& places, const char* field,
                         const char* hole) {
    const auto joined = JoinTiles(places);
    EXPECT_THAT(joined, IsError(absl::StatusCode::kInvalidArgument, hole));
    EXPECT_EQ(InfoOf(joined.status()).field, field);
  };
  expect({At(0, 0), At(103, 0)}, "tomography.mosaic.tiles[1]",
         "columns 100 to 102 of rows 0 to 49");
  expect({At(0, 0), At(0, 70)}, "tomography.mosaic.tiles[1]", "rows 50 to 69");
  // Three of two by two.
  expect({At(0, 0), At(90, 0), At(0, 40)}, "tomography.mosaic.tiles[2]",
         "columns 100 to 189 of rows 50 to 89");
  // A ring around a hole.
  expect(
      {At(0, 0), At(90, 0), At(180, 0), At(0, 45), At(180, 45), At(0, 90), At(90, 90), At(180, 90)},
      "tomography.mosaic.tiles[3]", "columns 100 to 179 of rows 50 to 89");
  expect({At(-1e6, 0), At(1e6, 0)}, "tomography.mosaic.tiles[1]", "columns 100 to 1999999");
}

// -- blending

TEST(MosaicInputTest, TilesOfOneScanGiveExactlyItsTransmissions) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const auto among = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kI16, DType::kF32}) {
    for (int trial = 0; trial < 6; ++trial) {
      const int64_t rows = among(20, 60), columns = among(40, 120), frames = among(1, 5),
                    flats = among(1, 6), darks = among(0, 4);
      const double most = dtype == DType::kU8 ? 200 : 20000;
      // All of the scan, in the numbers of the detector.
      std::uniform_real_distribution<double> part(0, 1);
      const auto whole = MakeTile(dtype, rows, columns, frames, flats, darks,
                                  [&](FrameKind kind, int64_t, int64_t, int64_t) {
                                    const double value =
                                        kind == FrameKind::kDark   ? 0.05 * part(random)
                                        : kind == FrameKind::kFlat ? 0.6 + 0.4 * part(random)
                                                                   : part(random);
                                    return std::floor(most * value);
                                  });
      const auto cut = [&](int64_t column, int64_t row, int64_t width, int64_t height) {
        const auto read = [&](FrameKind kind, int64_t f, int64_t r, int64_t c) {
          char bytes[4];
          EXPECT_THAT(whole->Read({.kind = kind,
                                   .first_frame = f,
                                   .frames = 1,
                                   .first_row = row + r,
                                   .rows = 1,
                                   .first_column = column + c,
                                   .columns = 1},
                                  bytes),
                      IsOk());
          if (dtype == DType::kU8) return static_cast<double>(static_cast<uint8_t>(bytes[0]));
          if (dtype == DType::kF32) {
            float value = 0;
            std::memcpy(&value, bytes, 4);
            return static_cast<double>(value);
          }
          int16_t value = 0;
          std::memcpy(&value, bytes, 2);
          return dtype == DType::kU16 ? static_cast<double>(static_cast<uint16_t>(value))
                                      : static_cast<double>(value);
        };
        return PlacedTile{.input = MakeTile(dtype, height, width, frames, flats, darks, read),
                          .column = static_cast<double>(column) - 17,
                          .row = static_cast<double>(row) + 5};
      };
      // Two by two tiles, which overlap by anything from nothing to nearly all.
      const int64_t split = among(columns / 4, 3 * columns / 4), right = among(0, split),
                    split_row = among(rows / 4, 3 * rows / 4), below = among(0, split_row);
      std::vector<PlacedTile> tiles = {
          cut(0, 0, split, split_row), cut(right, 0, columns - right, split_row),
          cut(0, below, split, rows - below), cut(right, below, columns - right, rows - below)};
      std::shuffle(tiles.begin(), tiles.end(), random);
      TileFields fields;
      if (trial % 3 == 1) fields.flat_average = fields.dark_average = FieldAverage::kMedian;
      if (trial % 3 == 2) fields.divide = false;
      const auto joined = Join(tiles, fields);
      ASSERT_NE(joined, nullptr);
      ASSERT_EQ(joined->info().columns, columns);
      ASSERT_EQ(joined->info().rows, rows);
      MosaicTile one(whole, fields);
      std::vector<float> wanted(static_cast<size_t>(frames * rows * columns));
      ASSERT_THAT(one.Read(WholeOf(whole->info()), wanted.data()), IsOk());
      EXPECT_EQ(ReadBox(*joined, WholeOf(joined->info())), wanted);
      for (int i = 0; i < 20; ++i) {
        ProjectionBox box = WholeOf(joined->info());
        box.first_frame = among(0, frames - 1);
        box.frames = among(1, frames - box.first_frame);
        box.first_row = among(0, rows - 1);
        box.rows = among(1, rows - box.first_row);
        box.first_column = among(0, columns - 1);
        box.columns = among(1, columns - box.first_column);
        const std::vector<float> read = ReadBox(*joined, box);
        size_t at = 0;
        for (int64_t f = 0; f < box.frames; ++f) {
          for (int64_t r = 0; r < box.rows; ++r) {
            for (int64_t c = 0; c < box.columns; ++c) {
              ASSERT_EQ(read[at++],
                        wanted[static_cast<size_t>(
                            ((box.first_frame + f) * rows + box.first_row + r) * columns +
                            box.first_column + c)]);
            }
          }
        }
      }
    }
  }
}

TEST(MosaicInputTest, DividesEachTileByItsOwnFieldsAsThePreparationDoes) {
  const auto tile = [](double gain, double dark, int64_t first) {
    return MakeTile(DType::kU16, 4, 30, 3, 2, 3,
                    [=](FrameKind kind, int64_t f, int64_t r, int64_t c) {
                      const double open = gain * (100 + static_cast<double>(r));
                      if (kind == FrameKind::kDark) return dark + static_cast<double>(f);
                      if (kind == FrameKind::kFlat) return dark + 1 + open * (f == 0 ? 0.5 : 1.5);
                      return dark + 1 + open * 0.01 * static_cast<double>(first + c + f);
                    });
  };
  const auto joined = Join({{.input = tile(10, 20, 0)}, {.input = tile(40, 7, 20), .column = 20}});
  ASSERT_EQ(joined->info().columns, 50);
  const std::vector<float> values = ReadBox(*joined, WholeOf(joined->info()));
  size_t at = 0;
  for (int64_t f = 0; f < 3; ++f) {
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < 50; ++c)
        EXPECT_NEAR(values[at++], 0.01 * static_cast<double>(c + f), 1e-3);
    }
  }
}

TEST(MosaicInputTest, InterpolatesFractionalPlacesLinearly) {
  std::mt19937 random(octavo::testing::FreshSeed());
  std::uniform_real_distribution<double> any(0, 1);
  for (int trial = 0; trial < 30; ++trial) {
    const double column = 25 + 4 * any(random), row = trial % 2 == 0 ? 0 : 3 * any(random) - 1.5;
    const auto plane = [](double r, double c) { return 0.1 + 0.01 * r + 0.002 * c; };
    const auto tile = [&](double first_column, double first_row) {
      return MakeTile(DType::kF32, 12, 40, 2, 0, 0,
                      [&](FrameKind, int64_t f, int64_t r, int64_t c) {
                        return plane(first_row + static_cast<double>(r),
                                     first_column + static_cast<double>(c)) +
                               static_cast<double>(f);
                      });
    };
    const auto joined =
        Join({{.input = tile(column, row), .column = column, .row = row}, {.input = tile(0, 0)}});
    ASSERT_NE(joined, nullptr);
    // The plane in the frame of the joined detector. At the outermost half pixel the last value
    // goes on.
    const double first_row = -joined->joined().tiles[1].first_row;
    const std::vector<float> values = ReadBox(*joined, WholeOf(joined->info()));
    size_t at = 0;
    for (int64_t f = 0; f < 2; ++f) {
      for (int64_t r = 0; r < joined->info().rows; ++r) {
        for (int64_t c = 0; c < joined->info().columns; ++c, ++at) {
          const bool edge =
              r == 0 || r + 1 == joined->info().rows || c < 30 || c + 1 == joined->info().columns;
          EXPECT_NEAR(values[at],
                      plane(static_cast<double>(r) + first_row, static_cast<double>(c)) +
                          static_cast<double>(f),
                      edge ? 0.0061 : 1e-5)
              << column << " " << row << ", pixel " << r << " " << c;
        }
      }
    }
  }
}

TEST(MosaicInputTest, BadPixelsOfOneTileComeFromTheOther) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const bool swapped : {false, true}) {
    // Not finite, in the overlap and beside it.
    const auto good = MakeTile(DType::kF32, 3, 20, 1, 0, 0,
                               [](FrameKind, int64_t, int64_t, int64_t) { return 0.5; });
    const auto bad =
        MakeTile(DType::kF32, 3, 20, 1, 0, 0, [](FrameKind, int64_t, int64_t r, int64_t c) {
          return r == 1 && (c == 12 || c == 3) ? kNan : 0.5;
        });
    std::vector<PlacedTile> tiles = {{.input = bad}, {.input = good, .column = 10}};
    if (swapped) std::swap(tiles[0], tiles[1]);
    const auto joined = Join(tiles);
    const std::vector<float> values = ReadBox(*joined, WholeOf(joined->info()));
    for (size_t i = 0; i < values.size(); ++i) {
      if (i == 30 + 3) {
        EXPECT_TRUE(std::isnan(values[i]));
      } else {
        EXPECT_EQ(values[i], 0.5F) << i;
      }
    }
    // Unlit: divided by the floor where no other tile is.
    const auto dead = MakeTile(DType::kU16, 3, 20, 1, 1, 1,
                               [](FrameKind kind, int64_t, int64_t r, int64_t c) -> double {
                                 const bool unlit = r == 2 && (c == 15 || c == 1);
                                 if (kind == FrameKind::kDark) return 10;
                                 if (kind == FrameKind::kFlat) return unlit ? 10 : 110;
                                 return 60;
                               });
    const auto live = MakeTile(
        DType::kU16, 3, 20, 1, 1, 1, [](FrameKind kind, int64_t, int64_t, int64_t) -> double {
          return kind == FrameKind::kDark ? 10 : kind == FrameKind::kFlat ? 110 : 60;
        });
    for (const double column : {10.0, 10.25}) {
      tiles = {{.input = dead}, {.input = live, .column = column}};
      if (swapped) std::swap(tiles[0], tiles[1]);
      const auto lit = Join(tiles);
      const std::vector<float> divided = ReadBox(*lit, WholeOf(lit->info()));
      const auto columns = static_cast<size_t>(lit->info().columns);
      for (size_t i = 0; i < divided.size(); ++i) {
        if (i == 2 * columns + 1) {
          EXPECT_GT(divided[i], 1e6F);
        } else {
          EXPECT_NEAR(divided[i], 0.5F, 1e-6F) << i;
        }
      }
      EXPECT_EQ(lit->unlit(), 2);
    }
  }
}

TEST(MosaicInputTest, ReadsWhatIsNeededAndEachFieldOnce) {
  const auto tile = [] {
    return MakeTile(DType::kU16, 64, 50, 4, 3, 2,
                    [](FrameKind kind, int64_t f, int64_t r, int64_t c) {
                      return static_cast<double>(kind == FrameKind::kFlat ? 1000 : 10 + f + r + c);
                    });
  };
  const auto left = tile(), right = tile();
  const auto joined = Join({{.input = left}, {.input = right, .column = 40}});
  ProjectionBox box = WholeOf(joined->info());
  box.first_row = 20;
  box.rows = 4;
  box.columns = 45;
  (void)ReadBox(*joined, box);
  EXPECT_EQ(left->pixels_read, 4 * 4 * 45);
  EXPECT_EQ(right->pixels_read, 4 * 4 * 5);
  EXPECT_EQ(left->fields_read, 5 * 16 * 50);  // rows 16 to 31
  std::vector<std::jthread> threads;
  const std::vector<float> wanted = ReadBox(*joined, WholeOf(joined->info()));
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(ReadBox(*joined, WholeOf(joined->info())), wanted); });
  }
  threads.clear();
  EXPECT_EQ(left->fields_read, 5 * 64 * 50);
}

TEST(MosaicInputTest, FieldsThatAreWantedByManyAreReadOnce) {
  const auto tile = MakeTile(
      DType::kU16, 64, 50, 8, 30, 20, [](FrameKind kind, int64_t, int64_t, int64_t) -> double {
        return kind == FrameKind::kDark ? 10 : kind == FrameKind::kFlat ? 110 : 60;
      });
  const auto joined = Join({{.input = tile}, {.input = tile, .column = 45}});
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { (void)ReadBox(*joined, WholeOf(joined->info())); });
  threads.clear();
  EXPECT_EQ(tile->fields_read, 2 * 50 * 64 * 50);  // one tile stands for two
}

TEST(MosaicInputTest, AReadThatFailsIsToldAndNothingOfItStays) {
  const auto tile = MakeTile(DType::kU16, 8, 20, 2, 1, 0,
                             [](FrameKind kind, int64_t, int64_t, int64_t c) -> double {
                               return kind == FrameKind::kFlat ? 100 : static_cast<double>(c);
                             });
  const auto joined = Join({{.input = tile}, {.input = tile, .column = 20}});
  std::vector<float> out(static_cast<size_t>(WholeOf(joined->info()).elements()));
  for (const int fails :
       {0, 1, 1, 2}) {  // of the projections, of the flat fields, of the second tile
    tile->fails = fails;
    EXPECT_THAT(joined->Read(WholeOf(joined->info()), out.data()),
                IsError(absl::StatusCode::kDataLoss, "a damaged chunk"));
  }
  EXPECT_THAT(joined->Read(WholeOf(joined->info()), out.data()), IsOk());
  EXPECT_NEAR(out[25], 0.05, 1e-6);
}

// -- least squares

TEST(TileLinksTest, FitsAllLinksAndLeavesOutTheWrongOne) {
  const std::vector<double> true_places = {0.4, -1.1, 2.5, 0.0, -1.8};
  std::vector<TileLink> links;
  const auto add = [&](size_t a, size_t b, double off) {
    links.push_back({.first = a, .second = b, .difference = true_places[b] - true_places[a] + off});
  };
  add(0, 1, 0);
  add(1, 2, 0);
  add(0, 2, 0);
  add(3, 2, 0);
  add(3, 1, 0);
  links.push_back({.first = 0, .second = 3, .difference = 9, .weight = 0.1});
  LinkedTiles found = CorrectionsOf(6, links, 1);
  EXPECT_EQ(found.left_out, std::vector<size_t>{5});
  double mean = 0;
  for (size_t i = 0; i < 4; ++i) mean += found.corrections[i] / 4;
  EXPECT_NEAR(mean, 0, 1e-9);
  for (size_t i = 1; i < 4; ++i)
    EXPECT_NEAR(found.corrections[i] - found.corrections[0], true_places[i] - true_places[0], 1e-9);
  EXPECT_EQ(found.corrections[4], 0);
  EXPECT_EQ(found.linked, (std::vector<bool>{true, true, true, true, false, false}));
  // Two groups, each in the mean where it was.
  found = CorrectionsOf(
      4, {{.first = 0, .second = 1, .difference = 4}, {.first = 3, .second = 2, .difference = -2}},
      1);
  EXPECT_NEAR(found.corrections[0], -2, 1e-9);
  EXPECT_NEAR(found.corrections[1], 2, 1e-9);
  EXPECT_NEAR(found.corrections[2], -1, 1e-9);
  EXPECT_NEAR(found.corrections[3], 1, 1e-9);
  // Without another one, a link stays however large it is.
  found = CorrectionsOf(2, {{.first = 0, .second = 1, .difference = 100}}, 1);
  EXPECT_NEAR(found.corrections[1] - found.corrections[0], 100, 1e-9);
}

TEST(TileLinksTest, TilesWhosePairTellsNothingStayAsGivenToEachOther) {
  // Tile 1 to tile 0 is not known, and tile 2 lies 3 pixels nearer to tile 1 than given.
  const std::vector<TileLink> links = {{.first = 0, .second = 1, .as_given = true},
                                       {.first = 1, .second = 2, .difference = -3, .weight = 0.01}};
  LinkedTiles found = CorrectionsOf(3, links, 1);
  EXPECT_NEAR(found.corrections[1] - found.corrections[0], 0, 1e-6);
  EXPECT_NEAR(found.corrections[2] - found.corrections[1], -3, 1e-6);
  EXPECT_EQ(found.linked, (std::vector<bool>{false, true, true}));
  EXPECT_TRUE(found.left_out.empty());
  // It does not count where others tell, and does not make a wrong one of them be left out.
  found = CorrectionsOf(3,
                        {{.first = 0, .second = 1, .as_given = true},
                         {.first = 1, .second = 2, .difference = -3},
                         {.first = 0, .second = 2, .difference = 4}},
                        1);
  EXPECT_NEAR(found.corrections[1] - found.corrections[0], 7, 1e-4);
  EXPECT_TRUE(found.left_out.empty());
  EXPECT_EQ(found.linked, (std::vector<bool>{true, true, true}));
}

// -- registration

/// Blobs that turn: a line integral at any place, of any projection.
class Blobs {
 public:
  Blobs(std::mt19937& random, double width, double height, bool along_rows = true) {
    const auto count = static_cast<int>(width * height / 120);
    std::uniform_real_distribution<double> part(0, 1);
    for (int i = 0; i < count; ++i) {
      blobs_.push_back({.column = width * part(random),
                        .row = height * part(random),
                        .drift = 20 * part(random) - 10,
                        .radius = 1.5 + 3 * part(random),
                        .height = 0.02 + 0.1 * part(random)});
    }
    along_rows_ = along_rows;
  }
  double At(int64_t frame, double column, double row) const {
    double sum = 0.3;
    for (const Blob& blob : blobs_) {
      const double c = column - blob.column - blob.drift * std::sin(static_cast<double>(frame)),
                   r = along_rows_ ? row - blob.row : 0,
                   d = (c * c + r * r) / (blob.radius * blob.radius);
      if (d < 12) sum += blob.height * std::exp(-d);
    }
    return sum;
  }

 private:
  struct Blob {
    double column = 0, row = 0, drift = 0, radius = 0, height = 0;
  };
  std::vector<Blob> blobs_;
  bool along_rows_ = true;
};

/// Blobs around an axis: a line integral of any projection. One thread.
class Turning {
 public:
  static constexpr double kStep = 0.015;  // rad, from one projection to the next

  Turning(std::mt19937& random, double width, double height, double strength = 1) {
    std::uniform_real_distribution<double> part(0, 1);
    for (int i = 0; i < static_cast<int>(width * height / 150); ++i) {
      blobs_.push_back({.away = width / 2 * std::sqrt(part(random)),
                        .angle = 2 * 3.14159 * part(random),
                        .row = height * part(random),
                        .radius = 2.5 + 4 * part(random),
                        .height = strength * (0.05 + 0.15 * part(random))});
    }
    middle_ = width / 2;
  }
  double At(int64_t frame, double column, double row) const {
    if (std::exchange(frame_, frame) != frame) {
      for (const Blob& blob : blobs_)
        blob.column =
            middle_ + blob.away * std::cos(blob.angle + kStep * static_cast<double>(frame));
    }
    double sum = 0.3;
    for (const Blob& blob : blobs_) {
      const double c = column - blob.column, r = row - blob.row,
                   d = (c * c + r * r) / (blob.radius * blob.radius);
      if (d < 12) sum += blob.height * std::exp(-d);
    }
    return sum;
  }

 private:
  struct Blob {
    double away = 0, angle = 0, row = 0, radius = 0, height = 0;
    mutable double column = 0;  // in frame_
  };
  std::vector<Blob> blobs_;
  double middle_ = 0;
  mutable int64_t frame_ = -1;
};

/// A tile of the object at a true place, with its own uneven fields and noise of counting.
template <class Object>
std::shared_ptr<storage::ProjectionInput> ScanOf(const Object& object, double column, double row,
                                                 int64_t columns, int64_t rows, int64_t frames,
                                                 double photons, std::mt19937& random) {
  std::uniform_real_distribution<double> part(0, 1);
  std::vector<double> gain(static_cast<size_t>(rows * columns)), offset(gain.size());
  for (double& one : gain) one = 0.7 + 0.3 * part(random);
  for (double& one : offset) one = 100 + 20 * part(random);
  return MakeTile(DType::kU16, rows, columns, frames, 8, 4,
                  [&](FrameKind kind, int64_t f, int64_t r, int64_t c) {
                    const auto at = static_cast<size_t>(r * columns + c);
                    double mean = 0;
                    if (kind == FrameKind::kFlat) mean = photons * gain[at];
                    if (kind == FrameKind::kProjection)
                      mean = photons * gain[at] *
                             std::exp(-object.At(f, column + static_cast<double>(c),
                                                 row + static_cast<double>(r)));
                    const double noise =
                        std::sqrt(mean) * std::normal_distribution<double>(0, 1)(random);
                    return std::clamp(std::round(offset[at] + mean + noise), 0.0, 65535.0);
                  });
}

struct TruePlace {
  double column = 0, row = 0, given_column = 0, given_row = 0;
};

void ExpectFound(const std::vector<TruePlace>& tiles, int64_t columns, int64_t rows, int64_t search,
                 double photons, double tolerance) {
  std::mt19937 random(octavo::testing::FreshSeed());
  double width = 0, height = 0;
  for (const TruePlace& tile : tiles) {
    width = std::max(width, tile.column + static_cast<double>(columns));
    height = std::max(height, tile.row + static_cast<double>(rows));
  }
  const Blobs object(random, width, height);
  std::vector<std::shared_ptr<storage::ProjectionInput>> inputs;
  std::vector<TilePlace> given;
  for (const TruePlace& tile : tiles) {
    inputs.push_back(ScanOf(object, tile.column, tile.row, columns, rows, 11, photons, random));
    given.push_back({.first_column = tile.given_column,
                     .first_row = tile.given_row,
                     .columns = columns,
                     .rows = rows});
  }
  const auto found = FindPlaces(inputs, given, search, true);
  ASSERT_THAT(found, IsOk());
  EXPECT_TRUE(found->warnings.empty()) << found->warnings.front();
  std::string log;
  for (const std::string& line : found->log) log += line + "\n";
  SCOPED_TRACE(log);
  for (size_t i = 0; i < tiles.size(); ++i) {
    EXPECT_NEAR(found->places[i].first_column - found->places[0].first_column,
                tiles[i].column - tiles[0].column, tolerance)
        << i;
    EXPECT_NEAR(found->places[i].first_row - found->places[0].first_row,
                tiles[i].row - tiles[0].row, tolerance)
        << i;
    EXPECT_TRUE(found->tiles[i].found);
    EXPECT_GT(found->tiles[i].correlation, 0.1);
  }
}

/// Ridges that all run at one angle to the columns, three times as long as wide.
Picture RidgesAt(double angle, double row, double column, int64_t size) {
  std::mt19937 random(5);  // the same ones in both pictures
  std::uniform_real_distribution<double> part(0, 1);
  Picture out{.rows = size, .columns = size, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(size * size), 0);
  for (int i = 0; i < 60; ++i) {
    const double r0 = (static_cast<double>(size) + 40) * part(random) - 20 - row,
                 c0 = (static_cast<double>(size) + 40) * part(random) - 20 - column,
                 height = 0.5 + part(random);
    for (int64_t r = 0; r < size; ++r) {
      for (int64_t c = 0; c < size; ++c) {
        const double dr = static_cast<double>(r) - r0, dc = static_cast<double>(c) - c0,
                     along = dc * std::cos(angle) + dr * std::sin(angle),
                     across = dr * std::cos(angle) - dc * std::sin(angle);
        out.row(r)[c] += static_cast<float>(
            height * std::exp(-(along * along / (6.0 * 6) + across * across / (2.0 * 2))));
      }
    }
  }
  return out;
}

TEST(MosaicSearchTest, ThePlaceOfObliqueStructuresIsFoundAlongBothAxes) {
  const double degree = std::acos(-1.0) / 180;
  for (const double angle : {35 * degree, 45 * degree, 55 * degree, 130 * degree}) {
    for (const auto& [row, column] : {std::pair(2.4, -1.4), {0.5, 1.5}, {-3.3, 0.3}}) {
      const FoundLag found =
          FindLag({RidgesAt(angle, 0, 0, 96)}, {RidgesAt(angle, row, column, 96)},
                  {.row = 0, .column = 0, .most_rows = 8, .most_columns = 8});
      SCOPED_TRACE(angle / degree);
      ASSERT_TRUE(found.row_known && found.column_known);
      // A parabola along each axis is off by 0.1 pixel here.
      EXPECT_NEAR(found.row, row, 0.01);
      EXPECT_NEAR(found.column, column, 0.01);
    }
  }
}

/// A wave that tells the place along the given axes.
Picture WaveAt(double row, double column, int64_t rows, int64_t columns) {
  Picture out{.rows = rows, .columns = columns, .pixels = {}};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      out.pixels.push_back(static_cast<float>(std::sin(0.5 * (static_cast<double>(r) + row)) +
                                              std::cos(0.4 * (static_cast<double>(c) + column))));
    }
  }
  return out;
}

TEST(TileShiftTest, IsFoundAlongTheAxesThatAreLookedForWhateverTheSizes) {
  struct Case {
    double row, column;
    ShiftAxes axes;
    int64_t rows, columns, other_rows, other_columns;
  };
  for (const Case& one : {Case{2.3, -1.6, {}, 30, 40, 30, 40},
                          {0, -3.4, {.rows = false}, 1, 60, 1, 60},
                          {4.7, 0, {.columns = false}, 40, 3, 50, 3},
                          {-11.2, 14.4, {}, 31, 50, 40, 27},
                          {20.1, -9.8, {}, 40, 20, 25, 44}}) {
    SCOPED_TRACE(one.row);
    const double gain = 3, offset = 7;  // of another exposure
    Picture other = WaveAt(one.row, one.column, one.other_rows, one.other_columns);
    for (float& value : other.pixels) value = static_cast<float>(gain * value + offset);
    const TileShift near = {.row = one.axes.rows ? one.row + 0.4 : one.row,
                            .column = one.axes.columns ? one.column - 0.3 : one.column};
    const auto shift =
        RefinedShift({WaveAt(0, 0, one.rows, one.columns)}, {other}, near, one.axes, 20);
    ASSERT_TRUE(shift.has_value());
    EXPECT_NEAR(shift->row, one.row, 0.01);
    EXPECT_NEAR(shift->column, one.column, 0.01);
  }
}

TEST(TileShiftTest, IsNotMadeUp) {
  const Picture wave = WaveAt(0, 0, 30, 40);
  Picture flat = wave, broken = wave;
  std::ranges::fill(flat.pixels, 2.0F);
  broken.pixels[420] = std::numeric_limits<float>::quiet_NaN();
  const auto shift = [&](const Picture& other, TileShift near, double least = 20) {
    return RefinedShift({wave}, {other}, near, {}, least);
  };
  EXPECT_TRUE(shift(wave, {}).has_value());
  EXPECT_FALSE(shift(flat, {}).has_value());
  EXPECT_FALSE(shift(broken, {}).has_value());
  EXPECT_FALSE(shift(WaveAt(2.6, 0, 30, 40), {}).has_value()) << "further than a pixel";
  EXPECT_FALSE(shift(wave, {.row = 29, .column = 0}).has_value()) << "nothing is shared";
  EXPECT_FALSE(shift(wave, {.row = -300, .column = 300}).has_value());
  EXPECT_FALSE(shift(wave, {}, 26 * 36 + 1).has_value()) << "without the margins";
  EXPECT_TRUE(shift(wave, {}, 26 * 36).has_value());
}

TEST(MosaicSearchTest, FindsTilesSideBySideInNoise) {
  ExpectFound({{0, 0, 3, 0}, {111.37, 2.61, 108, 0}}, 160, 120, 10, 20000, 0.1);
  ExpectFound({{111.37, 0, 108, 0}, {0, 5.3, 3, 0}}, 160, 120, 12, 60000, 0.05);
}
TEST(MosaicSearchTest, FindsThreeTilesInARow) {
  ExpectFound({{0, 3, 0, 0}, {88.8, 0, 90, 0}, {181.2, 1.5, 180, 0}}, 140, 100, 8, 40000, 0.1);
}
TEST(MosaicSearchTest, FindsTwoByTwo) {
  ExpectFound({{0, 0, 0, 0}, {81.4, 1.2, 80, 0}, {2.7, 61.7, 0, 60}, {80.6, 59.2, 80, 60}}, 130,
              110, 8, 40000, 0.1);
}
TEST(MosaicSearchTest, FindsTilesOneAboveTheOther) {
  ExpectFound({{4, 0, 0, 0}, {0, 70.45, 0, 66}}, 120, 120, 9, 20000, 0.1);
}
TEST(MosaicSearchTest, FindsFarShifts) {
  ExpectFound({{0, 0, 0, 0}, {120.7, 31.3, 175, 0}}, 240, 120, 80, 20000, 0.1);
}

TEST(MosaicSearchTest, KeepsWhatTheOverlapDoesNotTell) {
  std::mt19937 random(octavo::testing::FreshSeed());
  // The same in all rows: columns are found, rows stay.
  // Always the same pillars: of some that happen to be even, the columns are not known either.
  std::mt19937 known(7);
  const Blobs pillars(known, 220, 60, false);
  std::vector<TilePlace> given = {At(0, 0, 120, 60), At(84, 2, 120, 60)};
  std::vector<std::shared_ptr<storage::ProjectionInput>> tiles = {
      ScanOf(pillars, 0, 0, 120, 60, 9, 20000, random),
      ScanOf(pillars, 88.4, 0, 120, 60, 9, 20000, random)};
  auto found = FindPlaces(tiles, given, 10, true);
  ASSERT_THAT(found, IsOk());
  EXPECT_NEAR(found->places[1].first_column - found->places[0].first_column, 88.4, 0.1);
  EXPECT_EQ(found->places[1].first_row, 2);
  EXPECT_EQ(found->places[0].first_row, 0);
  EXPECT_TRUE(found->warnings.empty());

  // Air alone.
  const Blobs nothing(random, 1, 1);
  tiles = {ScanOf(nothing, 500, 0, 120, 60, 9, 20000, random),
           ScanOf(nothing, 500, 0, 120, 60, 9, 20000, random)};
  found = FindPlaces(tiles, given, 10, true);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->places[1].first_column, 84);
  EXPECT_EQ(found->places[0].first_column, 0);
  EXPECT_FALSE(found->tiles[0].found);
  ASSERT_EQ(found->warnings.size(), 1);
  EXPECT_THAT(found->warnings[0], HasSubstr("Tiles 0 and 1 of the mosaic: their overlap"));

  // A shift beyond the search.
  const Blobs object(random, 220, 60);
  tiles = {ScanOf(object, 0, 0, 120, 60, 9, 20000, random),
           ScanOf(object, 70, 0, 120, 60, 9, 20000, random)};
  found = FindPlaces(tiles, given, 6, true);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->places[1].first_column, 84);
  EXPECT_EQ(found->warnings.size(), 1);

  // Tiles that only touch.
  found = FindPlaces(tiles, {At(0, 0, 120, 60), At(120, 0, 120, 60)}, 6, true);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->warnings.size(), 2);
  EXPECT_TRUE(std::isnan(found->tiles[1].correlation));
}

TEST(MosaicSearchTest, OneRowIsEnoughForTheColumns) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const Blobs object(random, 700, 4, false);
  const std::vector<std::shared_ptr<storage::ProjectionInput>> tiles = {
      ScanOf(object, 0, 0, 400, 1, 9, 60000, random),
      ScanOf(object, 203.3, 0, 400, 1, 9, 60000, random)};
  const auto found = FindPlaces(tiles, {At(0, 0, 400, 1), At(200, 0, 400, 1)}, 10, true);
  ASSERT_THAT(found, IsOk());
  EXPECT_NEAR(found->places[1].first_column - found->places[0].first_column, 203.3, 0.1);
  EXPECT_EQ(found->places[1].first_row, 0);
}

TEST(MosaicSearchTest, FewRowsAndANarrowOverlapAreEnoughIfTheyAgreeWell) {
  std::mt19937 random(11);
  const Turning object(random, 160, 20);
  const std::vector<std::shared_ptr<storage::ProjectionInput>> tiles = {
      ScanOf(object, 0, 0, 96, 14, 120, 60000, random),
      ScanOf(object, 60, 2, 96, 14, 120, 60000, random)};
  const auto found = FindPlaces(tiles, {At(0, 0, 96, 14), At(57, 0, 96, 14)}, 6, true);
  ASSERT_THAT(found, IsOk());
  EXPECT_TRUE(found->warnings.empty()) << found->warnings.front();
  SCOPED_TRACE(found->log[0]);
  EXPECT_NEAR(found->places[1].first_column - found->places[0].first_column, 60, 0.2);
  EXPECT_NEAR(found->places[1].first_row - found->places[0].first_row, 2, 0.2);
}

TEST(MosaicSearchTest, SaysWhyAPlaceIsNotFoundAndMovesNothingAlongThatPair) {
  std::mt19937 random(12);
  const Blobs object(random, 320, 60);
  const auto scan = [&](double column, int64_t columns, int64_t rows = 60) {
    return ScanOf(object, column, 0, columns, rows, 11, 60000, random);
  };
  // The overlap of the first two is narrow, and that of the others 4 columns off.
  const auto narrow =
      FindPlaces({scan(0, 100, 12), scan(94, 100, 12), scan(150, 100, 12)},
                 {At(0, 0, 100, 12), At(94, 0, 100, 12), At(154, 0, 100, 12)}, 6, true);
  ASSERT_THAT(narrow, IsOk());
  EXPECT_EQ(narrow->places[1].first_column - narrow->places[0].first_column, 94);
  EXPECT_NEAR(narrow->places[2].first_column - narrow->places[1].first_column, 56, 0.2);
  EXPECT_FALSE(narrow->tiles[0].found);
  EXPECT_TRUE(narrow->tiles[2].found);
  // One that is wrong by just more than the search.
  const auto far =
      FindPlaces({scan(0, 120), scan(80, 120)}, {At(0, 0, 120, 60), At(85, 0, 120, 60)}, 5, true);
  ASSERT_THAT(far, IsOk());
  ASSERT_EQ(far->warnings.size(), 1);
  EXPECT_THAT(far->warnings[0], HasSubstr("fits best at the end of what was searched"));
  EXPECT_THAT(far->warnings[0], HasSubstr("--tile-search"));
}

// -- the check of overlaps

struct CheckedTile {
  double column = 0, row = 0, given_column = 0, given_row = 0;
  double exposure = 1;  // of the projections beside the flat fields
};

struct CheckedScan {
  int64_t columns = 100, rows = 40, frames = 60;
  double photons = 20000, strength = 1, fringes = 0;
};

OverlapFindings Checked(const std::vector<CheckedTile>& tiles, const CheckedScan& scan,
                        std::mt19937& random) {
  const Turning object(random, 260, static_cast<double>(scan.rows) + 20, scan.strength);
  std::vector<std::shared_ptr<storage::ProjectionInput>> inputs;
  std::vector<TilePlace> places;
  std::normal_distribution<double> normal(0, 1);
  std::uniform_real_distribution<double> part(0, 1);
  for (const CheckedTile& tile : tiles) {
    std::vector<double> gain(static_cast<size_t>(scan.rows * scan.columns));
    for (double& one : gain) one = 0.7 + 0.3 * part(random);
    // Stripes of the beam, which the flat fields have in another place, and which move slowly.
    const double phase = 6 * part(random), speed = 0.02 * part(random);
    inputs.push_back(
        MakeTile(DType::kU16, scan.rows, scan.columns, scan.frames, 8, 4,
                 [&](FrameKind kind, int64_t f, int64_t r, int64_t c) {
                   double mean = 0;
                   if (kind != FrameKind::kDark)
                     mean = scan.photons * gain[static_cast<size_t>(r * scan.columns + c)];
                   if (kind == FrameKind::kProjection)
                     mean *= tile.exposure * (1 + 0.1 * std::sin(0.7 * static_cast<double>(f))) *
                             (1 + scan.fringes * std::sin(phase + 0.5 * static_cast<double>(r) +
                                                          speed * static_cast<double>(f))) *
                             std::exp(-object.At(f, tile.column + static_cast<double>(c),
                                                 tile.row + static_cast<double>(r)));
                   return std::clamp(std::round(100 + mean + std::sqrt(mean) * normal(random)), 0.0,
                                     65535.0);
                 }));
    places.push_back({.first_column = tile.given_column,
                      .first_row = tile.given_row,
                      .columns = scan.columns,
                      .rows = scan.rows});
  }
  return CheckOverlaps(inputs, places, true);
}

std::string AllOf(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(OverlapCheckTest, SaysNothingOfTilesThatFit) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const std::vector<CheckedTile> row = {{0, 0, 5, 0}, {70, 0, 75, 0}, {140, 0, 145, 0}},
                                 half = {{0, 0, 0, 0}, {70.5, 0.5, 70, 0}, {141, 0, 140.6, 0}},
                                 above = {{3, 0, 0, 0}, {0, 20, -3, 20}};
  const std::vector<CheckedScan> scans = {{},
                                          {.photons = 300},  // hardly more than noise
                                          {.photons = 300, .strength = 0.2},
                                          {.strength = 0},                   // air
                                          {.strength = 0, .fringes = 0.05},  // uneven flat fields
                                          {.strength = 0.3, .fringes = 0.05},
                                          {.strength = 4},  // hardly any light comes through
                                          {.columns = 75, .rows = 6},
                                          {.rows = 1},
                                          {.rows = 30, .frames = 8}};
  for (const std::vector<CheckedTile>* tiles : {&row, &half, &above}) {
    for (size_t i = 0; i < scans.size(); ++i) {
      if (tiles == &above && scans[i].rows < 30) continue;
      const OverlapFindings found = Checked(*tiles, scans[i], random);
      EXPECT_TRUE(found.warnings.empty()) << i << ": " << AllOf(found.warnings) << AllOf(found.log);
    }
  }
}

TEST(OverlapCheckTest, TellsOfTilesThatShowSomethingElse) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const std::vector<std::vector<CheckedTile>> wrong = {
      {{140, 0, 0, 0}, {70, 0, 70, 0}, {0, 0, 140, 0}},  // the other way round
      {{0, 0, 0, 0}, {70, 0, 66, 0}},                    // columns
      {{0, 0, 0, 0}, {70, 4, 70, 0}},                    // rows
      {{0, 20, 0, 0}, {0, 0, 0, 20}},
      {{0, 0, 0, 0}, {70, 0, 0.07, 0}}};  // millimetres
  for (size_t i = 0; i < wrong.size(); ++i) {
    for (const double photons : {2000.0, 20000.0}) {
      const OverlapFindings found = Checked(wrong[i], {.photons = photons, .strength = 2}, random);
      ASSERT_FALSE(found.warnings.empty()) << i << "\n" << AllOf(found.log);
      EXPECT_THAT(found.warnings[0], HasSubstr("Tiles 0 and 1 of the mosaic do not show the same"));
      EXPECT_THAT(found.warnings[0], HasSubstr("--tile-search"));
    }
  }
}

TEST(OverlapCheckTest, TellsOfAnotherExposure) {
  std::mt19937 random(octavo::testing::FreshSeed());
  for (const double strength : {0.0, 1.0}) {
    const OverlapFindings found = Checked({{0, 0, 0, 0}, {70, 0, 70, 0}, {140, 0, 140, 0, 0.5}},
                                          {.strength = strength}, random);
    ASSERT_EQ(found.warnings.size(), 1) << AllOf(found.log);
    EXPECT_THAT(found.warnings[0], HasSubstr("Tile 1 of the mosaic has 2.0"));
    EXPECT_THAT(found.warnings[0], HasSubstr("of tile 2"));
    // What a beam loses in a scan is no reason to warn.
    EXPECT_TRUE(Checked({{0, 0, 0, 0}, {70, 0, 70, 0, 0.88}}, {.strength = strength}, random)
                    .warnings.empty());
  }
}

TEST(OverlapCheckTest, AnOverlapThatCannotBeReadIsTold) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const Blobs object(random, 200, 40);
  const auto tile = ScanOf(object, 0, 0, 100, 40, 9, 20000, random);
  static_cast<FakeTile&>(*tile).fails = 5;
  const OverlapFindings found =
      CheckOverlaps({tile, tile}, {At(0, 0, 100, 40), At(50, 0, 100, 40)}, true);
  EXPECT_TRUE(found.warnings.empty());
  EXPECT_THAT(AllOf(found.log), HasSubstr("not compared: a damaged chunk"));
}

TEST(MosaicSearchTest, TellsOfReadsThatFail) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const Blobs object(random, 200, 40);
  const auto tile = ScanOf(object, 0, 0, 100, 40, 9, 20000, random);
  static_cast<FakeTile&>(*tile).fails = 5;
  EXPECT_THAT(FindPlaces({tile, tile}, {At(0, 0, 100, 40), At(50, 0, 100, 40)}, 5, true),
              IsError(absl::StatusCode::kDataLoss, "a damaged chunk"));
}

}  // namespace
}  // namespace octavo::tomography
