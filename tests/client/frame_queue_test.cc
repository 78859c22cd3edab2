// Frames between a call and its caller: volumes that are to be read wait here, so their delivery
// applies here.

#include "client/cpp/lib/frame_queue.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace octavo::client {
namespace {

Frame Volume(uint64_t sequence, const std::string& parent = "scans/a", uint64_t dropped = 0,
             size_t bytes = 0) {
  Frame frame;
  frame.parent = parent;
  frame.product = Product::kVolume;
  frame.sequence = sequence;
  frame.dropped_before = dropped;
  frame.array.shape = {64, 512, 512};
  frame.array.data.resize(bytes);
  return frame;
}

Frame Image(uint64_t sequence) {
  Frame frame = Volume(sequence, "scans/a", 0, 4);
  frame.product = Product::kMip;
  return frame;
}

Frame Event(uint64_t sequence) {
  Frame frame;
  frame.parent = "scans/a";
  frame.product = Product::kEvent;
  frame.sequence = sequence;
  return frame;
}

FrameQueue Make(v1::Delivery delivery, uint32_t length = 0) {
  v1::SubscribeRequest request;
  request.set_delivery(delivery);
  request.set_queue_length(length);
  return FrameQueue(request);
}

/// "parent sequence/dropped_before" of all that wait.
std::vector<std::string> PopAll(FrameQueue& queue) {
  std::vector<std::string> all;
  while (!queue.empty()) {
    const Frame frame = queue.Pop();
    all.push_back(frame.parent.substr(6) + std::to_string(frame.sequence) + "/" +
                  std::to_string(frame.dropped_before));
  }
  return all;
}
using Strings = std::vector<std::string>;

TEST(FrameQueueTest, OneFrameWithDataWaitsAndAnyNumberOfVolumesToBeRead) {
  FrameQueue queue = Make(v1::DELIVERY_LOSSLESS);
  EXPECT_TRUE(queue.HasRoom());
  for (const auto& with_data : {Image(0), Event(0), Volume(0, "scans/a", 0, 8)}) {
    queue.Push(with_data);
    EXPECT_FALSE(queue.HasRoom());
    (void)queue.Pop();
    EXPECT_TRUE(queue.HasRoom());
  }
  for (uint64_t i = 0; i < 1024; ++i) {
    EXPECT_TRUE(queue.HasRoom());
    queue.Push(Volume(i));
  }
  EXPECT_FALSE(queue.HasRoom());
  (void)queue.Pop();
  EXPECT_TRUE(queue.HasRoom());
}

TEST(FrameQueueTest, LatestKeepsTheNewestVolumeOfEachParentAndCounts) {
  FrameQueue queue = Make(v1::DELIVERY_LATEST);
  EXPECT_FALSE(queue.lossless());
  queue.Push(Volume(3, "scans/a", 2));
  queue.Push(Volume(7, "scans/b", 1));
  queue.Push(Event(0));
  queue.Push(Volume(4, "scans/a"));
  queue.Push(Volume(9, "scans/a", 4));
  EXPECT_EQ(PopAll(queue), Strings({"b7/1", "a0/0", "a9/8"}));
  queue.Push(Volume(10, "scans/a"));
  EXPECT_EQ(PopAll(queue), Strings({"a10/0"})) << "it is told once";
}

TEST(FrameQueueTest, DropOldestKeepsSoMany) {
  for (const uint32_t length : {0u, 1u, 3u}) {
    FrameQueue queue = Make(v1::DELIVERY_DROP_OLDEST, length);
    const uint64_t kept = length == 0 ? 2 : length;
    for (uint64_t i = 0; i < 10; ++i) queue.Push(Volume(i));
    Strings wanted;
    for (uint64_t i = 10 - kept; i < 10; ++i)
      wanted.push_back("a" + std::to_string(i) + "/" + (i == 10 - kept ? std::to_string(i) : "0"));
    EXPECT_EQ(PopAll(queue), wanted);
  }
}

TEST(FrameQueueTest, LosslessDropsNothing) {
  for (const v1::Delivery delivery : {v1::DELIVERY_UNSPECIFIED, v1::DELIVERY_LOSSLESS}) {
    FrameQueue queue = Make(delivery, 1);
    EXPECT_TRUE(queue.lossless());
    for (uint64_t i = 0; i < 3; ++i) queue.Push(Volume(i));
    EXPECT_EQ(PopAll(queue), Strings({"a0/0", "a1/0", "a2/0"}));
  }
}

TEST(FrameQueueTest, AVolumeThatHasGoneIsToldWithTheNextOfItsParent) {
  FrameQueue queue = Make(v1::DELIVERY_DROP_OLDEST, 8);
  queue.Push(Volume(0, "scans/a", 2));
  queue.Push(Volume(1));
  queue.Push(Volume(5, "scans/b"));
  queue.Push(Image(6));
  queue.Push(Volume(2));
  queue.Lost(queue.Pop());
  queue.Lost(queue.Pop());
  EXPECT_EQ(PopAll(queue), Strings({"b5/0", "a6/0", "a2/4"}));
}

}  // namespace
}  // namespace octavo::client
