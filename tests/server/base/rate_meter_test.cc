#include "server/base/rate_meter.h"

#include <gtest/gtest.h>

#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(RateMeterTest, FallsToZeroWhenNothingComesAnyMore) {
  RateMeter meter;
  EXPECT_EQ(meter.PerSecond(0), 0);
  for (int64_t t = 0; t <= 4 * kSecond; t += kSecond / 100) meter.Add(t, 5);
  EXPECT_NEAR(meter.PerSecond(4 * kSecond), 500, 15);
  EXPECT_GT(meter.PerSecond(5 * kSecond), 200);
  EXPECT_EQ(meter.PerSecond(6 * kSecond + 1), 0);
}

// Each volume takes many seconds: between two of them the rate does not fall to 0.
TEST(RateMeterTest, RareEventsHaveARateAllTheTime) {
  RateMeter meter;
  for (int64_t volume = 1; volume <= 10; ++volume) {
    const int64_t at = volume * 41 * kSecond / 10;
    meter.Add(at, 1);
    if (volume < 2) continue;
    for (const double later : {0.0, 1.0, 2.5, 4.0}) {
      const double rate = meter.PerSecond(at + static_cast<int64_t>(later * kSecond));
      EXPECT_GT(rate, 0.1) << volume << " " << later;
      EXPECT_LT(rate, 0.25) << volume << " " << later;
    }
  }
  EXPECT_EQ(meter.PerSecond(41 * kSecond + 9 * kSecond), 0);
}

}  // namespace
}  // namespace octavo::engine
