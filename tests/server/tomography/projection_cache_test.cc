#include "server/tomography/projection_cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/source/push_projections.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using storage::FrameKind;
using storage::ProjectionBox;

uint16_t Pixel(FrameKind kind, int64_t frame, int64_t row, int64_t column) {
  return static_cast<uint16_t>(static_cast<int64_t>(kind) * 20011 + frame * 911 + row * 37 +
                               column);
}

storage::ProjectionInfo Info() {
  storage::ProjectionInfo info;
  info.dtype = DType::kU16;
  info.projections = 13;
  info.flats = 3;
  info.darks = 2;
  info.rows = 10;
  info.columns = 7;
  return info;
}

/// Counts how often each row of each frame is read.
class CountedInput final : public storage::ProjectionInput {
 public:
  explicit CountedInput(int64_t granularity) : ProjectionInput(Info()), granularity_(granularity) {}
  int64_t row_granularity() const override { return granularity_; }
  std::map<std::tuple<FrameKind, int64_t, int64_t>, int> reads;
  int64_t fails_at = -1;  // frame

 protected:
  absl::Status ReadInside(const ProjectionBox& box, void* out) override {
    auto* to = static_cast<uint16_t*>(out);
    MutexLock lock(mutex_);
    for (int64_t f = box.first_frame; f < box.first_frame + box.frames; ++f) {
      if (f == fails_at) return absl::DataLossError("a damaged chunk");
      for (int64_t r = box.first_row; r < box.first_row + box.rows; ++r) {
        ++reads[{box.kind, f, r}];
        for (int64_t c = box.first_column; c < box.first_column + box.columns; ++c)
          *to++ = Pixel(box.kind, f, r, c);
      }
    }
    return absl::OkStatus();
  }

 private:
  const int64_t granularity_;
  Mutex mutex_;
};

TEST(ProjectionCacheTest, EachChunkIsReadOnceAndAllIsAsItIs) {
  std::mt19937_64 random(testing::FreshSeed());
  const auto upto = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  for (const int64_t granularity : {2, 3, 10, 64}) {
    ProjectionMemory memory(1 << 20);
    const auto input = std::make_shared<CountedInput>(granularity);
    std::string note;
    const auto cached = CacheChunks(input, &memory, &note);
    ASSERT_NE(cached, input);
    EXPECT_TRUE(note.empty()) << note;
    EXPECT_EQ(memory.used_bytes() > 0, true);
    for (int round = 0; round < 200; ++round) {
      ProjectionBox box{.kind = static_cast<FrameKind>(upto(3))};
      const int64_t frames = Info().frames(box.kind);
      box.first_frame = upto(frames), box.frames = 1 + upto(frames - box.first_frame);
      box.first_row = upto(10), box.rows = 1 + upto(10 - box.first_row);
      box.first_column = upto(7), box.columns = 1 + upto(7 - box.first_column);
      std::vector<uint16_t> got(static_cast<size_t>(box.elements()), 0xA5A5);
      ASSERT_THAT(cached->Read(box, got.data()), IsOk());
      size_t i = 0;
      for (int64_t f = 0; f < box.frames; ++f) {
        for (int64_t r = 0; r < box.rows; ++r) {
          for (int64_t c = 0; c < box.columns; ++c) {
            ASSERT_EQ(got[i++],
                      Pixel(box.kind, box.first_frame + f, box.first_row + r, box.first_column + c))
                << granularity << " " << f << " " << r;
          }
        }
      }
    }
    for (const auto& [what, times] : input->reads) ASSERT_EQ(times, 1);
  }
}

TEST(ProjectionCacheTest, ThreadsThatWantTheSameChunksReadThemOnce) {
  for (int round = 0; round < 30; ++round) {
    ProjectionMemory memory(1 << 20);
    const auto input = std::make_shared<CountedInput>(3);
    std::string note;
    const auto cached = CacheChunks(input, &memory, &note);
    std::vector<std::jthread> threads;
    for (int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t i = 0; i < 13; ++i) {
          const ProjectionBox box{.kind = FrameKind::kProjection,
                                  .first_frame = (i + t) % 13,
                                  .frames = std::min<int64_t>(1 + t, 13 - (i + t) % 13),
                                  .first_row = t,
                                  .rows = 5,
                                  .columns = 7};
          std::vector<uint16_t> got(static_cast<size_t>(box.elements()));
          ASSERT_THAT(cached->Read(box, got.data()), IsOk());
          EXPECT_EQ(got.back(), Pixel(box.kind, box.first_frame + box.frames - 1, t + 4, 6));
        }
      });
    }
    threads.clear();
    for (const auto& [what, times] : input->reads) ASSERT_EQ(times, 1);
  }
}

TEST(ProjectionCacheTest, WhatCannotBeReadIsTriedAgainAndSaysWhy) {
  ProjectionMemory memory(1 << 20);
  const auto input = std::make_shared<CountedInput>(10);
  std::string note;
  const auto cached = CacheChunks(input, &memory, &note);
  std::vector<uint16_t> got(13 * 10 * 7);
  const ProjectionBox all{.kind = FrameKind::kProjection,
                          .first_frame = 0,
                          .frames = 13,
                          .first_row = 0,
                          .rows = 10,
                          .first_column = 0,
                          .columns = 7};
  input->fails_at = 5;
  EXPECT_THAT(cached->Read(all, got.data()), IsError(absl::StatusCode::kDataLoss, "damaged"));
  input->fails_at = -1;
  EXPECT_THAT(cached->Read(all, got.data()), IsOk());
  EXPECT_EQ(got.back(), Pixel(FrameKind::kProjection, 12, 9, 6));
}

TEST(ProjectionCacheTest, WithoutNeedOrRoomTheInputStaysAsItIs) {
  std::string note;
  ProjectionMemory memory(1 << 20), little(100);
  const auto rows = std::make_shared<CountedInput>(1), chunks = std::make_shared<CountedInput>(10);
  EXPECT_EQ(CacheChunks(rows, &memory, &note), rows);
  EXPECT_TRUE(note.empty());
  EXPECT_EQ(CacheChunks(chunks, &little, &note), chunks);
  EXPECT_NE(note.find("10 rows"), std::string::npos) << note;
  EXPECT_EQ(little.used_bytes(), 0);
  note.clear();
  {
    const auto cached = CacheChunks(chunks, &memory, &note);
    EXPECT_GT(memory.used_bytes(), 0);
  }
  EXPECT_EQ(memory.used_bytes(), 0) << "given back";
}

}  // namespace
}  // namespace octavo::engine
