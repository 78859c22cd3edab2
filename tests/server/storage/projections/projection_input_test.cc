// Read-ahead by many threads, and a real scan.

#include "server/storage/projections/projection_input.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "server/storage/projections/prefetch.h"
#include "tests/server/storage/projections/projection_input_fixture.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::IsError;
using ::testing::ElementsAre;

TEST_F(ProjectionInputTest, PrefetchGivesTheBoxesInOrder) {
  const std::string path = DataExchange();
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  std::vector<ProjectionBox> boxes;
  for (int64_t row = 0; row < kRows; row += 2) {  // two batches of slices
    for (const auto& box : CoverRows(input->info(), FrameKind::kFlat, row, 2, 1 << 20))
      boxes.push_back(box);
    for (const auto& box : CoverRows(input->info(), FrameKind::kProjection, row, 2, 2 * 2 * 6 * 2))
      boxes.push_back(box);
  }
  ASSERT_EQ(boxes.size(), 2u * (1 + 3));
  std::vector<std::vector<char>> memory(2, std::vector<char>(72));
  EXPECT_THAT(ProjectionPrefetch::Start(input, boxes, {memory[0].data(), memory[1].data()}, 71),
              IsError(kInvalid, "72 bytes; slots have 71"));
  EXPECT_THAT(ProjectionPrefetch::Start(input, boxes, {memory[0].data()}, 72),
              IsError(kInvalid, "at least 2"));
  ASSERT_OK_AND_ASSIGN(
      const auto prefetch,
      ProjectionPrefetch::Start(input, boxes, {memory[0].data(), memory[1].data()}, 72));
  for (size_t i = 0; i < boxes.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const ProjectionPrefetch::Slab slab, prefetch->Next({}));
    ASSERT_TRUE(slab);
    EXPECT_EQ(slab.index(), static_cast<int64_t>(i));
    const auto expected = Read<uint16_t>(*input, boxes[i]);
    ASSERT_EQ(slab.bytes(), std::ssize(expected) * 2);
    EXPECT_EQ(std::memcmp(slab.data(), expected.data(), static_cast<size_t>(slab.bytes())), 0);
  }
  ASSERT_OK_AND_ASSIGN(const ProjectionPrefetch::Slab end, prefetch->Next({}));
  EXPECT_FALSE(end);
  // One row at a time if a slab holds no more.
  EXPECT_EQ(CoverRows(input->info(), FrameKind::kProjection, 0, 4, 1).size(),
            static_cast<size_t>(kAngles * kRows));
}

TEST_F(ProjectionInputTest, PrefetchEndsWhenItIsTold) {
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(DataExchange(), {}));
  const auto boxes = CoverRows(input->info(), FrameKind::kProjection, 0, kRows, 1);
  std::vector<char> memory(48);
  ASSERT_OK_AND_ASSIGN(auto prefetch, ProjectionPrefetch::Start(
                                          input, boxes, {memory.data(), memory.data() + 24}, 24));
  std::vector<ProjectionPrefetch::Slab> held;
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(ProjectionPrefetch::Slab slab, prefetch->Next({}));
    held.push_back(std::move(slab));
  }
  std::stop_source stop;
  std::jthread later([&] { stop.request_stop(); });
  EXPECT_THAT(prefetch->Next(stop.get_token()), IsError(absl::StatusCode::kCancelled, ""));
  prefetch.reset();  // slabs are held, and its thread waits for room
  held.clear();
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
