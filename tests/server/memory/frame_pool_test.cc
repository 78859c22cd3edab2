#include "server/memory/frame_pool.h"

#include <random>

#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

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
    while (auto block = pool_->Get(1, use)) blocks->push_back(std::move(block));
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
  EXPECT_NE(pool_->Get(1, FramePool::Use::kFrame), nullptr);
  EXPECT_NE(pool_->Get(1, FramePool::Use::kClient), nullptr);
}

// At least a quarter remains for the other uses, whatever clients do and in any order.
TEST_F(FramePoolTest, InAnyOrder) {
  std::mt19937 random(octavo::testing::FreshSeed());
  for (int round = 0; round < 20; ++round) {
    Blocks held;
    for (int i = 0; i < 100; ++i) {
      const auto use = random() % 2 == 0 ? FramePool::Use::kFrame : FramePool::Use::kClient;
      if (auto block = pool_->Get(1, use)) held.push_back(std::move(block));
      if (!held.empty() && random() % 3 == 0)
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
    }
    Blocks staging;
    EXPECT_GE(Fill(FramePool::Use::kStaging, &staging), 4u);
    EXPECT_EQ(held.size() + staging.size(), 16u);
  }
}

}  // namespace
}  // namespace octavo::engine
