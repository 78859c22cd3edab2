#include "server/memory/frame_pool.h"

#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/allocation_fault.h"
#include "gpu/base/status.h"
#include "tests/support/device/forwarding_device.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using Blocks = std::vector<std::shared_ptr<void>>;

class FramePoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenDevices("host");
    ASSERT_THAT(opened.status(), IsOk());
    devices_ = std::move(opened->devices);
    pool_ = std::make_shared<FramePool>(devices_[0].get(), 16 * kBlock);
  }
  size_t Fill(FramePool::Use use, Blocks* blocks) {
    for (auto block = pool_->Get(1, use); block.ok(); block = pool_->Get(1, use))
      blocks->push_back(*std::move(block));
    return blocks->size();
  }

  const int64_t kBlock = FramePool::BlockBytes(1);
  std::vector<std::unique_ptr<Device>> devices_;
  std::shared_ptr<FramePool> pool_;
};

TEST_F(FramePoolTest, ClientsThatStopLeaveHalfAndAlwaysAQuarterToCommits) {
  Blocks clients, frames, staging;
  EXPECT_EQ(Fill(FramePool::Use::kClient, &clients), 8u);
  EXPECT_EQ(Fill(FramePool::Use::kFrame, &frames), 4u);
  EXPECT_EQ(Fill(FramePool::Use::kStaging, &staging), 4u);
  clients.resize(2);
  EXPECT_THAT(pool_->Get(1, FramePool::Use::kFrame), IsOk());
  EXPECT_THAT(pool_->Get(1, FramePool::Use::kClient), IsOk());
}

// Counts the allocations of page-locked memory.
class CountingDevice final : public octavo::testing::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) override {
    ++made;
    return ForwardingDevice::AllocatePinned(bytes);
  }
  int made = 0;
};

TEST_F(FramePoolTest, WhatIsPreparedForVolumesIsNotMadeWhenItIsUsed) {
  constexpr int64_t kMiB = 1 << 20;
  CountingDevice device(*devices_[0]);
  const auto pool = std::make_shared<FramePool>(&device, 512 * kMiB);
  pool->PrepareForVolumes(300 * kMiB);
  const int made = device.made;
  EXPECT_GT(made, 0);
  for (const int64_t slab : {16 * kMiB, 20 * kMiB, 33 * kMiB, 64 * kMiB}) {  // of several formats
    const auto one = pool->Get(slab), two = pool->Get(slab);
    EXPECT_THAT(one, IsOk());
    EXPECT_THAT(two, IsOk());
  }
  for (const int64_t piece : {2 * kMiB, 4 * kMiB}) {
    Blocks pieces;
    for (int i = 0; i < 8; ++i) pieces.push_back(*pool->Get(piece - 512, FramePool::Use::kClient));
  }
  EXPECT_EQ(device.made, made);
  pool->PrepareForVolumes(300 * kMiB);
  EXPECT_EQ(device.made, made) << "the next scan finds it";
}

TEST_F(FramePoolTest, ClientsGetNoBlockThatIsLargerThanTheyNeed) {
  constexpr int64_t kMiB = 1 << 20;
  CountingDevice device(*devices_[0]);
  const auto pool = std::make_shared<FramePool>(&device, 64 * kMiB);
  pool->Prepare(8 * kMiB, 2);
  EXPECT_EQ(device.made, 2);
  const auto piece = pool->Get(2 * kMiB, FramePool::Use::kClient);
  EXPECT_EQ(device.made, 3);
  const auto copy = pool->Get(2 * kMiB), next = pool->Get(5 * kMiB);
  EXPECT_EQ(device.made, 3);
  const auto small = pool->Get(kMiB);
  EXPECT_EQ(device.made, 4) << "no block of 8 MiB, nor of 2 MiB that a client has";
}

TEST_F(FramePoolTest, WhatIsPreparedForVolumesEvictsNothing) {
  constexpr int64_t kMiB = 1 << 20;
  CountingDevice device(*devices_[0]);
  for (const int64_t cap : {16 * kMiB, 33 * kMiB, 48 * kMiB, 64 * kMiB, 100 * kMiB}) {
    const auto pool = std::make_shared<FramePool>(&device, cap);
    pool->Prepare(kMiB, static_cast<int>(cap / kMiB * 5 / 8));  // idle frames of a scan
    pool->PrepareForVolumes(1000 * kMiB);
    const int made = device.made;
    for (int i = 0; i < 3; ++i) pool->PrepareForVolumes(1000 * kMiB);
    EXPECT_EQ(device.made, made) << "scan after scan";
    Blocks frames;
    for (int64_t i = 0; i < cap / kMiB * 5 / 8; ++i)
      frames.push_back(*pool->Get(kMiB, FramePool::Use::kFrame));
    EXPECT_EQ(device.made, made) << "the frames are still there";
  }
}

TEST_F(FramePoolTest, OneReaderLeavesRoomToOthers) {
  // A quarter of the clients' half of 16 blocks are two, and three are always lent.
  const PartOfPool one(pool_, FramePool::Use::kClient), two(pool_, FramePool::Use::kClient);
  Blocks of_one, of_two;
  const auto fill = [](const PartOfPool& part, Blocks* blocks) {
    auto block = part.Lend(1);
    for (; block.ok(); block = part.Lend(1)) blocks->push_back(*std::move(block));
    EXPECT_EQ(InfoOf(block.status()).reason, Reason::kNoStaging);
    return blocks->size();
  };
  EXPECT_EQ(fill(one, &of_one), 3u);
  EXPECT_EQ(fill(two, &of_two), 3u);
  of_one.pop_back();
  EXPECT_EQ(fill(one, &of_one), 3u) << "what is given back counts no more";
  of_one.clear();
  of_two.clear();
  // The pool's own refusal counts nothing; and three blocks are lent however large they are.
  const PartOfPool large(pool_, FramePool::Use::kClient);
  EXPECT_FALSE(large.Lend(64 * kBlock).ok());
  const auto first = large.Lend(2 * kBlock), second = large.Lend(2 * kBlock),
             third = large.Lend(2 * kBlock);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(second, IsOk());
  EXPECT_THAT(third, IsOk());
  EXPECT_FALSE(large.Lend(1).ok());
}

// At least a quarter remains for the other uses, whatever clients do and in any order.
TEST_F(FramePoolTest, InAnyOrder) {
  std::mt19937 random(octavo::testing::FreshSeed());
  for (int round = 0; round < 20; ++round) {
    Blocks held;
    for (int i = 0; i < 100; ++i) {
      const auto use = random() % 2 == 0 ? FramePool::Use::kFrame : FramePool::Use::kClient;
      if (auto block = pool_->Get(1, use); block.ok()) held.push_back(*std::move(block));
      if (!held.empty() && random() % 3 == 0)
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
    }
    Blocks staging;
    EXPECT_GE(Fill(FramePool::Use::kStaging, &staging), 4u);
    EXPECT_EQ(held.size() + staging.size(), 16u);
  }
}

TEST_F(FramePoolTest, ARefusalSaysWhetherThePoolOrTheHostHasNoRoom) {
  const auto number = [](const absl::Status& status, const std::string& name) {
    for (const auto& [key, value] : InfoOf(status).numbers) {
      if (key == name) return value;
    }
    return std::string();
  };
  // The cap: for each use its own share, and room may come.
  for (const auto& [use, share] :
       {std::pair(FramePool::Use::kClient, 8), std::pair(FramePool::Use::kFrame, 12),
        std::pair(FramePool::Use::kStaging, 16)}) {
    Blocks blocks;
    Fill(use, &blocks);
    const absl::Status full = pool_->Get(3, use).status();
    EXPECT_THAT(full, IsError(absl::StatusCode::kResourceExhausted, "try again"));
    EXPECT_EQ(InfoOf(full).reason, Reason::kNoStaging);
    EXPECT_EQ(number(full, "wanted"), "3");
    EXPECT_EQ(number(full, "allowed"), absl::StrCat(share * kBlock));
    EXPECT_EQ(number(full, "retryable"), "true");
    blocks.clear();
    // A block that is larger than the share: no other block makes room for it.
    const absl::Status never = pool_->Get(share * kBlock + 1, use).status();
    EXPECT_THAT(never, IsError(absl::StatusCode::kResourceExhausted, "never enough"));
    EXPECT_EQ(InfoOf(never).reason, Reason::kNoStaging);
    EXPECT_EQ(number(never, "retryable"), "");
  }
  // The host: a fresh pool has idle blocks of no size, so it allocates.
  const auto fresh = std::make_shared<FramePool>(devices_[0].get(), 16 * kBlock);
  AllocationFault::Arm(1);
  const absl::Status host = fresh->Get(1, FramePool::Use::kClient).status();
  EXPECT_FALSE(AllocationFault::Pending());
  EXPECT_THAT(host, IsError(absl::StatusCode::kResourceExhausted, "page-locked"));
  EXPECT_EQ(InfoOf(host).reason, Reason::kOutOfMemory);
  EXPECT_EQ(number(host, "retryable"), "true");
  // The refused block takes no part of the cap.
  pool_ = fresh;
  Blocks clients, staging;
  EXPECT_EQ(Fill(FramePool::Use::kClient, &clients), 8u);
  EXPECT_EQ(Fill(FramePool::Use::kStaging, &staging), 8u);
}

/// A device whose page-locked memory is refused as of a lost device.
class LostDevice final : public octavo::testing::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t) override {
    return WithInfo(absl::UnavailableError("it fell off the bus"),
                    {.reason = Reason::kDeviceLost, .field = "", .numbers = {}});
  }
};

TEST_F(FramePoolTest, ALostDeviceIsNoLackOfMemory) {
  LostDevice device(*devices_[0]);
  const auto pool = std::make_shared<FramePool>(&device, 16 * kBlock);
  const absl::Status lost = pool->Get(1).status();
  EXPECT_THAT(lost, IsError(absl::StatusCode::kUnavailable, "fell off"));
  EXPECT_EQ(InfoOf(lost).reason, Reason::kDeviceLost);
}

}  // namespace
}  // namespace octavo::engine
