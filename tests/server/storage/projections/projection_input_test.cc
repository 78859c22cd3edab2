// Read-ahead by many threads, and a real scan.

#include "server/storage/projections/projection_input.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"

#include "server/storage/projections/prefetch.h"
#include "tests/server/storage/projections/projection_input_fixture.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::IsError;
using ::testing::ElementsAre;

// Boxes of `frames` frames at most that cover rows [first, first + rows) of all frames of a kind.
std::vector<ProjectionBox> Boxes(const ProjectionInfo& info, FrameKind kind, int64_t first,
                                 int64_t rows, int64_t frames) {
  std::vector<ProjectionBox> boxes;
  for (int64_t at = 0; at < info.frames(kind); at += frames) {
    boxes.push_back({.kind = kind,
                     .first_frame = at,
                     .frames = std::min(frames, info.frames(kind) - at),
                     .first_row = first,
                     .rows = rows,
                     .columns = info.columns});
  }
  return boxes;
}

TEST_F(ProjectionInputTest, PrefetchGivesTheBoxesInOrder) {
  const std::string path = DataExchange();
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  std::vector<ProjectionBox> boxes;
  for (int64_t row = 0; row < kRows; row += 2) {  // two batches of slices
    for (const auto& box : Boxes(input->info(), FrameKind::kFlat, row, 2, 3)) boxes.push_back(box);
    for (const auto& box : Boxes(input->info(), FrameKind::kProjection, row, 2, 2))
      boxes.push_back(box);
  }
  ASSERT_EQ(boxes.size(), 2u * (1 + 3));
  std::vector<std::vector<char>> memory(4, std::vector<char>(72));
  std::vector<void*> slots;
  for (auto& slot : memory) slots.push_back(slot.data());
  EXPECT_THAT(ProjectionPrefetch::Start(input, boxes, slots, 71),
              IsError(kInvalid, "72 bytes; slots have 71"));
  EXPECT_THAT(ProjectionPrefetch::Start(input, boxes, {memory[0].data()}, 72),
              IsError(kInvalid, "at least 2"));
  for (const int64_t readers : {0, 1, 2, 3, 9}) {
    for (const size_t count : {size_t{2}, slots.size()}) {
      ASSERT_OK_AND_ASSIGN(
          const auto prefetch,
          ProjectionPrefetch::Start(input, boxes, std::vector(slots.begin(), slots.begin() + count),
                                    72, readers));
      for (size_t i = 0; i < boxes.size(); ++i) {
        ASSERT_OK_AND_ASSIGN(const ProjectionPrefetch::Slab slab, prefetch->Next({}));
        ASSERT_TRUE(slab);
        EXPECT_EQ(slab.index(), static_cast<int64_t>(i));
        const auto expected = Read<uint16_t>(*input, boxes[i]);
        ASSERT_EQ(slab.bytes(), std::ssize(expected) * 2);
        EXPECT_EQ(std::memcmp(slab.data(), expected.data(), static_cast<size_t>(slab.bytes())), 0);
      }
      for (int again = 0; again < 2; ++again) {
        ASSERT_OK_AND_ASSIGN(const ProjectionPrefetch::Slab end, prefetch->Next({}));
        EXPECT_FALSE(end);
      }
    }
  }
}

/// Frames of one byte, which is the number of the frame. Reads of some fail, and what is read first
/// may be finished last.
class CountedFrames final : public ProjectionInput {
 public:
  CountedFrames(int64_t frames, std::vector<int64_t> bad)
      : ProjectionInput({.dtype = DType::kU8,
                         .projections = frames,
                         .rows = 1,
                         .columns = 2,
                         .angles_rad = std::vector<double>(static_cast<size_t>(frames))}),
        bad_(std::move(bad)) {}
  int64_t reads() const { return reads_; }

 private:
  absl::Status ReadInside(const ProjectionBox& box, void* out) override {
    ++reads_;
    for (int64_t i = box.first_frame % 3; i > 0; --i) std::this_thread::yield();
    if (std::find(bad_.begin(), bad_.end(), box.first_frame) != bad_.end())
      return absl::DataLossError(absl::StrCat("frame ", box.first_frame));
    std::memset(out, static_cast<int>(box.first_frame), 2);
    return absl::OkStatus();
  }
  const std::vector<int64_t> bad_;
  std::atomic<int64_t> reads_{0};
};

TEST_F(ProjectionInputTest, AllBoxesBeforeTheFirstFailedReadAreGiven) {
  for (int round = 0; round < 20; ++round) {
    const auto input = std::make_shared<CountedFrames>(200, std::vector<int64_t>{90, 41, 40, 43});
    char memory[5][2];
    ASSERT_OK_AND_ASSIGN(
        const auto prefetch,
        ProjectionPrefetch::Start(input, Boxes(input->info(), FrameKind::kProjection, 0, 1, 1),
                                  {memory[0], memory[1], memory[2], memory[3], memory[4]}, 2, 4));
    for (int64_t i = 0; i < 40; ++i) {
      ASSERT_OK_AND_ASSIGN(const ProjectionPrefetch::Slab slab, prefetch->Next({}));
      ASSERT_TRUE(slab) << i;
      EXPECT_EQ(*static_cast<const uint8_t*>(slab.data()), i);
    }
    for (int again = 0; again < 2; ++again)
      EXPECT_THAT(prefetch->Next({}), IsError(absl::StatusCode::kDataLoss, "frame 40"));
    EXPECT_LE(input->reads(), 40 + 5);  // nobody reads on behind a failed box
  }
}

/// Two frames of 3 x 5 counts of 12 bits. As stored, each byte is the number of its row.
class PackedFrames final : public ProjectionInput {
 public:
  PackedFrames() : ProjectionInput(Info()) {}

 private:
  static ProjectionInfo Info() {
    ProjectionInfo info;
    info.dtype = DType::kU16;
    info.packing = math::Packing::kLowFirst12;
    info.projections = 2, info.rows = 3, info.columns = 5;
    return info;
  }
  absl::Status ReadInside(const ProjectionBox& box, void* out) override {
    std::fill_n(static_cast<uint16_t*>(out), box.elements(), uint16_t{7});
    return absl::OkStatus();
  }
  absl::Status ReadPacked(const ProjectionBox& box, void* out) override {
    auto* to = static_cast<char*>(out);
    for (int64_t i = 0; i < box.frames * box.rows; ++i, to += 8)
      std::memset(to, static_cast<int>(box.first_row + i % box.rows), 8);
    return absl::OkStatus();
  }
};

TEST_F(ProjectionInputTest, PackedRowsAreReadAsNumbersOrAsTheyAre) {
  const auto input = std::make_shared<PackedFrames>();
  const ProjectionBox rows{.frames = 2, .first_row = 1, .rows = 2, .columns = 5};
  EXPECT_EQ(input->BytesOf(rows, PixelForm::kNumbers), 40);
  EXPECT_EQ(input->BytesOf(rows, PixelForm::kStored), 32);
  EXPECT_EQ(Read<uint16_t>(*input, rows), std::vector<uint16_t>(20, 7));
  std::string stored(32, '\0');
  ASSERT_THAT(input->Read(rows, stored.data(), PixelForm::kStored), IsOk());
  const std::string frame = std::string(8, '\1') + std::string(8, '\2');
  EXPECT_EQ(stored, frame + frame);
  EXPECT_THAT(input->Read({.frames = 1, .rows = 1, .first_column = 1, .columns = 4}, stored.data(),
                          PixelForm::kStored),
              IsError(kInvalid, "columns 1 to 4 of packed rows; allowed are all 5"));
  std::vector<std::string> memory(2, std::string(32, '\0'));
  const std::vector<void*> slots = {memory[0].data(), memory[1].data()};
  EXPECT_THAT(ProjectionPrefetch::Start(input, {rows}, slots, 32),
              IsError(kInvalid, "a box of 40 bytes; slots have 32"));
  ASSERT_OK_AND_ASSIGN(const auto prefetch, ProjectionPrefetch::Start(input, {rows, rows}, slots,
                                                                      32, 2, PixelForm::kStored));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const ProjectionPrefetch::Slab slab, prefetch->Next({}));
    ASSERT_EQ(slab.bytes(), 32);
    EXPECT_EQ(std::string(static_cast<const char*>(slab.data()), 32), frame + frame);
  }
  // Of an input that is not packed both are the same, also of parts of rows.
  ASSERT_OK_AND_ASSIGN(const auto file, OpenProjections(DataExchange(), {}));
  const ProjectionBox part{.frames = 2, .rows = 2, .first_column = 2, .columns = 3};
  std::vector<uint16_t> numbers(static_cast<size_t>(part.elements()));
  EXPECT_EQ(file->BytesOf(part, PixelForm::kStored), std::ssize(numbers) * 2);
  ASSERT_THAT(file->Read(part, numbers.data(), PixelForm::kStored), IsOk());
  EXPECT_EQ(numbers, Read<uint16_t>(*file, part));
}

TEST_F(ProjectionInputTest, PrefetchEndsWhenItIsTold) {
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(DataExchange(), {}));
  const auto boxes = Boxes(input->info(), FrameKind::kProjection, 0, 1, 1);
  for (const int64_t readers : {1, 4}) {
    std::vector<char> memory(48);
    ASSERT_OK_AND_ASSIGN(
        auto prefetch,
        ProjectionPrefetch::Start(input, boxes, {memory.data(), memory.data() + 24}, 24, readers));
    std::vector<ProjectionPrefetch::Slab> held;
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(ProjectionPrefetch::Slab slab, prefetch->Next({}));
      held.push_back(std::move(slab));
    }
    std::stop_source stop;
    std::jthread later([&] { stop.request_stop(); });
    EXPECT_THAT(prefetch->Next(stop.get_token()), IsError(absl::StatusCode::kCancelled, ""));
    prefetch.reset();  // slabs are held, and its threads wait for room
    held.clear();
  }
}

TEST_F(ProjectionInputTest, WhatReadingThrowsIsAnError) {
  class Throwing final : public ProjectionInput {
   public:
    Throwing()
        : ProjectionInput(
              {.dtype = DType::kU8, .projections = 1, .rows = 1, .columns = 2, .angles_rad = {0}}) {
    }

   private:
    absl::Status ReadInside(const ProjectionBox&, void*) override {
      throw std::length_error("no vector is so long");
    }
  };
  char memory[2][2];
  ASSERT_OK_AND_ASSIGN(const auto prefetch,
                       ProjectionPrefetch::Start(std::make_shared<Throwing>(),
                                                 {{.frames = 1, .rows = 1, .columns = 2}},
                                                 {memory[0], memory[1]}, 2));
  EXPECT_THAT(prefetch->Next({}), IsError(absl::StatusCode::kInternal, "no vector is so long"));
}

TEST_F(ProjectionInputTest, ManyThreadsMayRead) {
  ASSERT_OK_AND_ASSIGN(
      const auto input,
      OpenProjections(DataExchange({}, {.chunk = {1, kRows, kColumns}, .deflate = 1}), {}));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto kind = static_cast<FrameKind>((t + i) % 3);
        EXPECT_EQ(ReadAll<uint16_t>(*input, kind),
                  Frames<uint16_t>(input->info().frames(kind), static_cast<int64_t>(kind)));
      }
    });
  }
}

TEST(ProjectionInputRealTest, Tooth) {
  const char* given = std::getenv("OCTAVO_TEST_DATA");
  const char* source = std::getenv("OCTAVO_SOURCE_DIR");
  const std::string data =
      given != nullptr ? given : std::string(source != nullptr ? source : ".") + "/../shared/data";
  const std::string path = data + "/tomo/tooth.h5";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  const ProjectionInfo& info = input->info();
  EXPECT_THAT((std::vector{info.projections, info.rows, info.columns, info.flats, info.darks}),
              ElementsAre(181, 2, 640, 10, 10));
  EXPECT_EQ(info.dtype, DType::kF32);
  EXPECT_NEAR(info.angles_rad.back(), 179.006 * kDegree, 1e-4);
  const auto mean = [](const std::vector<float>& v) {
    double sum = 0;
    for (const float x : v) sum += x;
    return sum / static_cast<double>(v.size());
  };
  EXPECT_NEAR(mean(ReadAll<float>(*input, FrameKind::kFlat)), 27942, 1);
  EXPECT_NEAR(mean(ReadAll<float>(*input, FrameKind::kDark)), 105, 1);
  const auto projections = ReadAll<float>(*input, FrameKind::kProjection);
  EXPECT_NEAR(*std::min_element(projections.begin(), projections.end()), 3921, 1);
  EXPECT_NEAR(*std::max_element(projections.begin(), projections.end()), 33892, 1);
  // The same scan from .npy files.
  ProjectionOptions options{.flats = data + "/tomo/tooth_white.npy",
                            .darks = data + "/tomo/tooth_dark.npy",
                            .angles = data + "/tomo/tooth_theta_deg.npy"};
  ASSERT_OK_AND_ASSIGN(const auto npy, OpenProjections(data + "/tomo/tooth_proj.npy", options));
  EXPECT_EQ(npy->info().angles_rad, info.angles_rad);
  for (const FrameKind kind : {FrameKind::kProjection, FrameKind::kFlat, FrameKind::kDark})
    EXPECT_EQ(ReadAll<float>(*npy, kind), ReadAll<float>(*input, kind));
}

}  // namespace
}  // namespace octavo::storage
