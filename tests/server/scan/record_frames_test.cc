#include "server/scan/record_frames.h"

#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "server/scan/record_tap.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using scan::RecordCopy;
using scan::RecordFrames;
using scan::RecordTap;
using testing::KnownRecords;
using testing::ResolvedKnown;

/// A tap and its frames; the test is the compute thread. Volumes of 2 lines of 10 records of 64
/// samples.
class RecordFramesTest : public ::testing::Test {
 protected:
  RecordFramesTest() {
    publisher_.ScanStarted("scans/x", {}, {.extents = {2, 10, 32}, .has_records = true});
    for (int64_t r = 0; r < kRecords; ++r) known_.Write(r, raw_.data() + r * 64);
  }
  std::shared_ptr<model::Subscription> Subscribe(publish::TopicKey key) {
    SubscribeSpec spec{.parent = "scans/x", .products = {key.product}};
    spec.plane_index = key.plane_index;
    spec.corrected = key.corrected;
    auto subscription = publisher_.Subscribe(spec, [] {});
    EXPECT_THAT(subscription.status(), octavo::testing::IsOk());
    return *std::move(subscription);
  }
  // Records [first, first + count) of volume 0.
  void Take(int64_t first, int64_t count, int64_t now_ns) {
    if (!tap_.Wants(now_ns)) return;
    tap_.Take(scan_, reinterpret_cast<const uint8_t*>(raw_.data() + first * 64),
              {.volume = 0, .first_record = first, .records = count, .active = count}, nullptr, {},
              now_ns);
  }
  static constexpr int64_t kRecords = 20, kMs = 1'000'000;
  const KnownRecords known_{7, 64};
  std::vector<uint16_t> raw_ = std::vector<uint16_t>(kRecords * 64);
  const SystemClock clock_;
  Publisher publisher_{&clock_};
  RecordFrames frames_{"scans/x", &publisher_};
  RecordTap tap_{"scans/x", &publisher_, &frames_};
  const std::shared_ptr<const ResolvedScan> scan_ = std::make_shared<const ResolvedScan>(
      ResolvedKnown({.ascans_per_bscan = 10, .bscans_per_volume = 2, .volumes = 1}));
};

model::Delivered TakeOne(model::Subscription& subscription) {
  model::Delivered frame;
  for (int i = 0; i < 10'000 && !subscription.Take(&frame); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return frame;
}

TEST_F(RecordFramesTest, ASpectrumIsTheRecord) {
  const auto subscription = Subscribe({.product = Product::kSpectrum});
  std::jthread thread([this] { frames_.Run(); });
  Take(0, 10, 100 * kMs);
  const model::Delivered first = TakeOne(*subscription);
  frames_.Close();
  ASSERT_NE(first.frame, nullptr);
  ASSERT_EQ(first.frame->record->record, 9);
  EXPECT_EQ(first.frame->record->row, 0);
  EXPECT_EQ(first.frame->record->column, 9);
  ASSERT_EQ(first.frame->payload.size, 128);
  EXPECT_EQ(std::memcmp(first.frame->payload.data, raw_.data() + 9 * 64, 128), 0);
}

TEST_F(RecordFramesTest, TheNewestCopyTakesThePlaceOfOneThatWaits) {
  const auto subscription = Subscribe({.product = Product::kSpectrum});
  Take(0, 10, 100 * kMs);
  Take(10, 10, 200 * kMs);  // the thread has not run
  std::jthread thread([this] { frames_.Run(); });
  const model::Delivered one = TakeOne(*subscription);
  frames_.Close();
  ASSERT_NE(one.frame, nullptr);
  EXPECT_EQ(one.frame->record->record, 19);
  EXPECT_EQ(one.dropped_before, 1u);
  model::Stats stats;
  publisher_.AddTo(&stats);
  EXPECT_EQ((stats.frames_dropped[{"spectrum", "superseded"}]), 1);
}

TEST_F(RecordFramesTest, AtMostOneCopyInALook) {
  const auto subscription = Subscribe({.product = Product::kSpectrum});
  for (int64_t ms = 100; ms < 140; ++ms) Take(ms % 20, 1, ms * kMs);
  std::jthread thread([this] { frames_.Run(); });
  const model::Delivered one = TakeOne(*subscription);
  frames_.Close();
  ASSERT_NE(one.frame, nullptr);
  EXPECT_EQ(one.frame->record->record, 0);
  EXPECT_EQ(one.dropped_before, 0u);
}

TEST_F(RecordFramesTest, NobodyIsThere) {
  EXPECT_FALSE(tap_.Wants(100 * kMs));
  {
    const auto gone = Subscribe({.product = Product::kMip});
    EXPECT_FALSE(tap_.Wants(200 * kMs));
  }
  const auto subscription = Subscribe({.product = Product::kAscan, .plane_index = 3});
  EXPECT_FALSE(tap_.Wants(210 * kMs));  // not looked yet
  EXPECT_TRUE(tap_.Wants(240 * kMs));
}

TEST_F(RecordFramesTest, MemoryHasABound) {
  std::vector<std::unique_ptr<RecordCopy>> copies;
  for (;;) {
    auto copy = frames_.NewCopy(RecordTap::kMostBytes);
    if (copy == nullptr) break;
    copies.push_back(std::move(copy));
  }
  EXPECT_EQ(std::ssize(copies), RecordFrames::kMostBytes / RecordTap::kMostBytes);
  frames_.TakeBack(std::move(copies.back()));
  EXPECT_NE(frames_.NewCopy(1000), nullptr);
}

}  // namespace
}  // namespace octavo::engine
