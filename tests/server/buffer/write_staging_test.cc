#include "server/buffer/write_staging.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/buffer/staging.h"
#include "server/model/checksum.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

/// Writes go to a vector instead of a device.
class WriteStagingTest : public ::testing::Test {
 protected:
  WriteStaging::Upload Upload() {
    return [this](const void* from, int64_t at, int64_t bytes) -> absl::StatusOr<SharedEvent> {
      if (!fails_.ok()) return fails_;
      ++uploads_;
      written_.resize(static_cast<size_t>(at + bytes));
      std::memcpy(written_.data() + at, from, static_cast<size_t>(bytes));
      auto event = std::make_shared<Event>(device_.NewEvent().value());
      EXPECT_THAT(event->Record(stream_.ref()), IsOk());
      return event;
    };
  }
  absl::Status Take(WriteStaging& staging, const std::string& bytes) {
    return staging.Take({{bytes.data(), bytes.size()}}, Upload());
  }

  Device& device_ = octavo::testing::SharedDevice("host");
  Stream stream_ = device_.NewStream(StreamPriority::kNormal).value();
  std::shared_ptr<FramePool> pool_ = std::make_shared<FramePool>(&device_, int64_t{128} << 20);
  std::string written_;
  int uploads_ = 0;
  absl::Status fails_;
};

TEST_F(WriteStagingTest, AShortWriteIsUploadedAtItsEndOnly) {
  WriteStaging staging(pool_, 6);
  ASSERT_THAT(Take(staging, "abc"), IsOk());
  ASSERT_THAT(staging.Take({{"d", 1}, {"ef", 2}}, Upload()), IsOk());
  EXPECT_EQ(uploads_, 0);
  ASSERT_THAT(staging.Finish(std::nullopt, Upload()), IsOk());
  EXPECT_EQ(uploads_, 1);
  EXPECT_EQ(written_, "abcdef");
  EXPECT_EQ(staging.Release().size(), 1u) << "the upload may still read it";
}

TEST_F(WriteStagingTest, ALongWriteIsUploadedBlockByBlock) {
  const int64_t total = kStagedWhole + WriteStaging::kMostChunk + 7;
  std::string all(static_cast<size_t>(total), '\0');
  std::iota(all.begin(), all.end(), '\0');
  WriteStaging staging(pool_, total);
  for (size_t at = 0; at < all.size(); at += WriteStaging::kMostChunk) {
    const size_t bytes = std::min<size_t>(WriteStaging::kMostChunk, all.size() - at);
    ASSERT_THAT(staging.Take({{all.data() + at, bytes}}, Upload()), IsOk());
  }
  EXPECT_EQ(uploads_, 5) << "a full block does not wait for the end, the last one either";
  ASSERT_THAT(staging.Finish(Crc32c(all.data(), all.size(), 0), Upload()), IsOk());
  EXPECT_EQ(uploads_, 5);
  EXPECT_TRUE(written_ == all);
  EXPECT_LE(staging.Release().size(), 4u) << "it waits for the oldest";
}

TEST_F(WriteStagingTest, WhatDoesNotFitTheHeaderIsRefused) {
  WriteStaging staging(pool_, 6);
  EXPECT_THAT(Take(staging, "abcdefg"),
              IsError(absl::StatusCode::kInvalidArgument, "makes 7 bytes"));
  ASSERT_THAT(Take(staging, "abcd"), IsOk());
  EXPECT_THAT(staging.Finish(std::nullopt, Upload()),
              IsError(absl::StatusCode::kInvalidArgument, "ended after 4 bytes"));
  ASSERT_THAT(Take(staging, "ef"), IsOk());
  EXPECT_THAT(staging.Finish(1, Upload()), IsError(absl::StatusCode::kDataLoss, "crc32c"));
  EXPECT_EQ(uploads_, 0);
}

TEST_F(WriteStagingTest, ABlockWhoseUploadFailedIsGivenUpToo) {
  WriteStaging staging(pool_, 6);
  ASSERT_THAT(Take(staging, "abcdef"), IsOk());
  fails_ = absl::AbortedError("by the test");
  EXPECT_EQ(staging.Finish(std::nullopt, Upload()), fails_);
  EXPECT_EQ(staging.Release().size(), 1u);
}

TEST_F(WriteStagingTest, WithoutPageLockedMemoryNothingIsTaken) {
  WriteStaging staging(std::make_shared<FramePool>(&device_, 1), 6);
  EXPECT_THAT(Take(staging, "abc"), IsError(absl::StatusCode::kResourceExhausted, "page-locked"));
}

}  // namespace
}  // namespace octavo::engine
