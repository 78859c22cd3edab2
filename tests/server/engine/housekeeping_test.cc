#include "server/engine/housekeeping.h"

#include <atomic>
#include <chrono>
#include <stdexcept>

#include "gtest/gtest.h"

#include "tests/support/news.h"

namespace octavo::engine {
namespace {

using std::chrono::milliseconds;

TEST(HousekeepingTest, EachTaskRunsAtItsOwnPeriod) {
  octavo::testing::News news;
  std::atomic<int> often{0}, seldom{0};
  Housekeeping housekeeping(
      "test", {{.name = "often",
                .period = milliseconds(1),
                .run =
                    [&] {
                      ++often;
                      news.Tell();
                    }},
               {.name = "seldom", .period = std::chrono::hours(1), .run = [&] { ++seldom; }}});
  news.Await([&] { return often >= 20; });
  EXPECT_EQ(seldom, 1);
  housekeeping.Stop();
  const int stopped = often;
  housekeeping.Stop();
  EXPECT_EQ(often, stopped);
}

TEST(HousekeepingTest, ATaskThatThrowsTakesNoTurnFromTheOthers) {
  octavo::testing::News news;
  std::atomic<int> thrown{0}, run{0};
  Housekeeping housekeeping("test", {{.name = "broken",
                                      .period = milliseconds(1),
                                      .run =
                                          [&] {
                                            ++thrown;
                                            throw std::bad_alloc();
                                          }},
                                     {.name = "whole", .period = milliseconds(1), .run = [&] {
                                        ++run;
                                        news.Tell();
                                      }}});
  news.Await([&] { return run >= 3 && thrown >= 3; });
  housekeeping.RunNow();
}

TEST(HousekeepingTest, RunNowRunsAllTasksBesideNoOther) {
  std::atomic<int> inside{0}, most{0}, runs{0};
  const auto task = [&] {
    most = std::max(most.load(), ++inside);
    ++runs;
    std::this_thread::yield();
    --inside;
  };
  Housekeeping housekeeping("test", {{.name = "a", .period = milliseconds(0), .run = task},
                                     {.name = "b", .period = std::chrono::hours(1), .run = task}});
  for (int i = 0; i < 200; ++i) housekeeping.RunNow();
  EXPECT_GE(runs, 400);
  EXPECT_EQ(most, 1);
}

TEST(HousekeepingTest, ItEndsBetweenTwoTurnsThatAreFarApart) {
  std::atomic<int> runs{0};
  octavo::testing::News news;
  Housekeeping housekeeping("test",
                            {{.name = "daily", .period = std::chrono::hours(24), .run = [&] {
                                ++runs;
                                news.Tell();
                              }}});
  news.Await([&] { return runs == 1; });
  // The destructor returns at once.
}

}  // namespace
}  // namespace octavo::engine
