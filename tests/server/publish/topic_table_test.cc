#include "server/publish/topic_table.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

#include "server/memory/frame_pool.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

const TopicKey kMip{.product = Product::kMip}, kVolume{.product = Product::kVolume};

class TopicTableTest : public ::testing::Test {
 protected:
  TopicTable::Scan& Start(const std::string& name) {
    topics_.Start(name, {{"rig", "1"}}, {.extents = {4, 8, 16}, .bscan_axis = FrameAxis::kX});
    return *topics_.Find(name);
  }
  Frame Of(Product product) {
    Frame frame;
    frame.product = product;
    frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
    return frame;
  }

  static constexpr int64_t kImages = 4;
  std::shared_ptr<int64_t> memory_ = std::make_shared<int64_t>(7);
  static constexpr int64_t kEndedBytes = 64 << 10;
  TopicTable topics_{kImages * FramePool::BlockBytes(8), kEndedBytes};
};

TEST_F(TopicTableTest, EachTopicCountsByItself) {
  TopicTable::Scan& scan = Start("scans/a");
  EXPECT_EQ(topics_.Add(scan, kMip, Of(Product::kMip))->sequence, 0u);
  EXPECT_EQ(topics_.Skip(scan, kMip), 1u) << "a frame that was not made has a number, too";
  EXPECT_EQ(topics_.Add(scan, kMip, Of(Product::kMip))->sequence, 2u);
  EXPECT_EQ(topics_.Add(scan, kVolume, Of(Product::kVolume))->sequence, 0u);
  EXPECT_EQ(scan.topics.at(kMip).recent.size(), 2u);
}

TEST_F(TopicTableTest, ARememberedVolumeHasNoMemory) {
  TopicTable::Scan& scan = Start("scans/a");
  const FramePtr frame = topics_.Add(scan, kVolume, Of(Product::kVolume));
  EXPECT_NE(frame->payload.data, nullptr) << "subscribers get it whole";
  EXPECT_EQ(scan.topics.at(kVolume).recent.front()->payload.data, nullptr);
  EXPECT_EQ(scan.topics.at(kVolume).recent.front()->payload.size, 8);
}

TEST_F(TopicTableTest, TheOldestImagesGoFirstButNotTheLastOfARunningScan) {
  TopicTable::Scan &slow = Start("scans/slow"), &ended = Start("scans/ended"),
                   &fast = Start("scans/fast");
  topics_.Add(slow, kMip, Of(Product::kMip));
  topics_.Add(ended, kMip, Of(Product::kMip));
  topics_.End("scans/ended", 1);
  for (int i = 0; i < 10; ++i) topics_.Add(fast, kMip, Of(Product::kMip));
  EXPECT_EQ(slow.topics.at(kMip).recent.size(), 1u);
  EXPECT_EQ(ended.topics.at(kMip).recent.size(), 0u);
  EXPECT_EQ(fast.topics.at(kMip).recent.size(), 3u);
  EXPECT_EQ(fast.topics.at(kMip).recent.back()->sequence, 9u);
}

TEST_F(TopicTableTest, AScanThatEndedLongAgoIsForgottenWithItsFrames) {
  constexpr int64_t kSecond = 1'000'000'000;
  topics_.Add(Start("scans/a"), kMip, Of(Product::kMip));
  Start("scans/b");
  topics_.End("scans/a", kSecond);
  topics_.End("scans/none", kSecond);
  topics_.ForgetOld(600 * kSecond);
  EXPECT_TRUE(topics_.Has("scans/a"));
  topics_.ForgetOld(602 * kSecond);
  EXPECT_FALSE(topics_.Has("scans/a"));
  EXPECT_EQ(topics_.Find("scans/a"), nullptr);
  EXPECT_TRUE(topics_.Has("scans/b")) << "it runs";
  EXPECT_EQ(memory_.use_count(), 1);
}

// A viewer that moves through the planes of a scan leaves a last image of each.
TEST_F(TopicTableTest, EvenTheLastImagesOfARunningScanAreBounded) {
  TopicTable::Scan& scan = Start("scans/a");
  for (int64_t plane = 0; plane < 100; ++plane)
    topics_.Add(scan, {.product = Product::kBscan, .plane_index = plane}, Of(Product::kBscan));
  int64_t kept = 0;
  for (const auto& [key, topic] : scan.topics) kept += std::ssize(topic.recent);
  EXPECT_EQ(kept, 2 * kImages);
  const TopicKey newest{.product = Product::kBscan, .plane_index = 99};
  EXPECT_EQ(scan.topics.at(newest).recent.size(), 1u);
}

// Each slab that a viewer asks for and does not get makes a topic without a frame.
TEST_F(TopicTableTest, TopicsWithoutFramesAreBoundedAndNeverCountBackwards) {
  TopicTable::Scan& scan = Start("scans/a");
  const auto plane = [](int64_t i) {
    return TopicKey{.product = Product::kBscan, .plane_index = i};
  };
  topics_.Add(scan, kMip, Of(Product::kMip));
  const uint64_t before = topics_.Skip(scan, plane(0));
  topics_.Skip(scan, plane(0));
  const int64_t bytes = scan.bytes;
  constexpr auto kMany = static_cast<int64_t>(10 * TopicTable::kMostTopics);
  for (int64_t i = 1; i < kMany; ++i) topics_.Skip(scan, plane(i));
  EXPECT_LE(scan.topics.size(), TopicTable::kMostTopics);
  EXPECT_EQ(scan.topics.count(kMip), 1u) << "it has a frame";
  EXPECT_EQ(scan.topics.count(plane(0)), 0u);
  EXPECT_EQ(scan.topics.count(plane(kMany - 1)), 1u) << "it is the newest";
  EXPECT_LE(scan.bytes, bytes * static_cast<int64_t>(TopicTable::kMostTopics));
  EXPECT_GT(topics_.Skip(scan, plane(0)), before + 1) << "a subscriber may resume it";
  // Topics with frames stay, however many they are.
  const TopicKey events{.product = Product::kEvent};
  topics_.Add(scan, events, Of(Product::kEvent));
  for (int64_t i = 0; i < kMany; ++i) topics_.Skip(scan, plane(i));
  EXPECT_EQ(scan.topics.at(events).recent.size(), 1u);
}

TEST_F(TopicTableTest, EndedScansAreBoundedByTheirEventsToo) {
  const TopicKey events{.product = Product::kEvent};
  const auto name = [](int i) { return "scans/" + std::to_string(i); };
  TopicTable::Scan& running = Start("scans/running");
  constexpr int kScans = 200, kEvents = 9;
  for (int i = 0; i < kScans; ++i) {
    TopicTable::Scan& scan = Start(name(i));
    for (int k = 0; k < kEvents - 1; ++k) topics_.Add(scan, events, Of(Product::kEvent));
    topics_.Add(scan, kMip, Of(Product::kMip));
    topics_.End(name(i), 1);
    topics_.Add(scan, events, Of(Product::kEvent));  // what becomes of its volumes
    topics_.End(name(i), 1);
    topics_.ForgetOld(1);
    topics_.Add(running, events, Of(Product::kEvent));
  }
  int left = 0;
  for (int i = 0; i < kScans; ++i) {
    if (!topics_.Has(name(i))) continue;
    ++left;
    EXPECT_TRUE(i == kScans - 1 || topics_.Has(name(i + 1))) << "those that ended first go first";
    EXPECT_EQ(topics_.Find(name(i))->topics.at(events).recent.size(), size_t{kEvents});
  }
  EXPECT_GT(left, 1);
  EXPECT_LE(left * kEvents * static_cast<int64_t>(sizeof(Frame)), kEndedBytes);
  EXPECT_TRUE(topics_.Has("scans/running")) << "it runs";

  // One that takes more than all may stays until the next one has ended.
  TopicTable::Scan& large = Start("scans/large");
  for (int i = 0; i < kScans; ++i) topics_.Add(large, kVolume, Of(Product::kVolume));
  topics_.End("scans/large", 1);
  topics_.ForgetOld(1);
  EXPECT_TRUE(topics_.Has("scans/large"));
  EXPECT_FALSE(topics_.Has(name(kScans - 1)));
  Start("scans/next");
  topics_.End("scans/next", 1);
  topics_.ForgetOld(1);
  EXPECT_FALSE(topics_.Has("scans/large"));
  EXPECT_TRUE(topics_.Has("scans/next"));
  topics_.ForgetOld(700'000'000'000);
  EXPECT_FALSE(topics_.Has("scans/next"));
  EXPECT_EQ(memory_.use_count(), 1 + std::ssize(running.topics.at(events).recent));
}

TEST_F(TopicTableTest, ASubscriptionNamesScansAndTopics) {
  const TopicTable::Scan& scan = Start("scans/a");
  EXPECT_TRUE(Matches({.parent = "scans/a"}, "scans/a", scan));
  EXPECT_FALSE(Matches({.parent = "scans/b"}, "scans/a", scan));
  EXPECT_TRUE(Matches({}, "scans/a", scan)) << "all scans";
  EXPECT_TRUE(Matches({.labels = {{"rig", "1"}}}, "scans/a", scan));
  EXPECT_FALSE(Matches({.labels = {{"rig", "1"}, {"eye", "left"}}}, "scans/a", scan));

  auto keys = KeysOf({.products = {Product::kMip, Product::kBscan, Product::kMip}}, scan);
  ASSERT_EQ(keys.size(), 2u) << "each once";
  EXPECT_EQ(keys[0], kMip);
  EXPECT_EQ(keys[1].axis, FrameAxis::kX) << "as the scan says";
  keys = KeysOf(
      {.products = {Product::kBscan}, .axis = FrameAxis::kZ, .axis_given = true, .plane_index = 3},
      scan);
  EXPECT_EQ(keys[0], (TopicKey{Product::kBscan, FrameAxis::kZ, 3}));
}

}  // namespace
}  // namespace octavo::engine
