#include "server/publish/subscription_table.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

const TopicKey kMip{.product = Product::kMip};

class SubscriptionTableTest : public ::testing::Test {
 protected:
  SubscriptionTableTest() { scan_.labels = {{"rig", "1"}}; }
  std::shared_ptr<SubscriberQueue> Add(SubscribeSpec spec) {
    if (spec.products.empty()) spec.products = {Product::kMip};
    auto queue = std::make_shared<SubscriberQueue>(
        spec, [] {}, nullptr, &clock_, std::make_shared<FrameCounters>());
    subscriptions_.Add(queue);
    return queue;
  }

  octavo::testing::FakeClock clock_;
  TopicTable::Scan scan_;
  SubscriptionTable subscriptions_;
};

TEST_F(SubscriptionTableTest, InterestedAreThoseWhoseScanAndTopicItIs) {
  const auto by_name = Add({.parent = "scans/a"}), by_label = Add({.labels = {{"rig", "1"}}}),
             other = Add({.parent = "scans/b"}),
             event = Add({.parent = "scans/a", .products = {Product::kEvent}});
  EXPECT_EQ(subscriptions_.Interested("scans/a", scan_, kMip),
            (SubscriptionTable::Queues{by_name, by_label}));
  EXPECT_EQ(subscriptions_.Of("scans/a"), (SubscriptionTable::Queues{by_name, event}))
      << "a subscriber by labels may get other scans";
}

TEST_F(SubscriptionTableTest, ThoseThatAreClosedOrGoneAreDropped) {
  auto closed = Add({.parent = "scans/a"}), gone = Add({.parent = "scans/a"});
  closed->Close();
  gone.reset();
  Stats stats;
  subscriptions_.AddTo(&stats);
  EXPECT_EQ(stats.subscribers.count("mip"), 0u);
  EXPECT_TRUE(subscriptions_.Interested("scans/a", scan_, kMip).empty());
  EXPECT_TRUE(subscriptions_.Of("scans/a").empty());
}

TEST_F(SubscriptionTableTest, ATopicIsWantedWithPreviewsIfAnybodyWantsThem) {
  const auto without = Add({.parent = "scans/a", .previews = false});
  auto wanted = subscriptions_.WantedOf("scans/a", scan_);
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(wanted[0].key, kMip);
  EXPECT_FALSE(wanted[0].previews);
  const auto with = Add({});
  wanted = subscriptions_.WantedOf("scans/a", scan_);
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_TRUE(wanted[0].previews);
}

TEST_F(SubscriptionTableTest, OnlyARateLimitHoldsBack) {
  const auto free = Add({.parent = "scans/a"}),
             limited = Add({.parent = "scans/a", .max_rate_hz = 1});
  Frame frame;
  frame.parent = "scans/a";
  for (const auto& queue : {free, limited})
    (void)queue->Push(kMip, std::make_shared<const Frame>(frame));
  EXPECT_EQ(subscriptions_.HeldBack(), SubscriptionTable::Queues{limited});
}

}  // namespace
}  // namespace octavo::engine
