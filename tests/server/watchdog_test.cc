#include "server/watchdog.h"

#include <atomic>
#include <cstdlib>
#include <future>
#include <string>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/rooms.h"

namespace octavo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

engine::ScanStatus Scan(const std::string& name, int64_t records, double ring,
                        engine::ScanState state = engine::ScanState::kRunning) {
  engine::ScanStatus scan;
  scan.name = name;
  scan.records = records;
  scan.ring_occupancy = ring;
  scan.state = state;
  return scan;
}

TEST(StallDetectorTest, OnlyAScanThatLeavesRecordsWaitingIsStuck) {
  StallDetector detector(seconds(30));
  EXPECT_EQ(detector.Look({Scan("scans/a", 100, 0.5), Scan("scans/b", 7, 0), Scan("scans/c", 1, 1)},
                          seconds(0)),
            "");
  EXPECT_EQ(detector.Look({Scan("scans/a", 200, 0.5), Scan("scans/b", 7, 0), Scan("scans/c", 1, 1)},
                          seconds(29)),
            "");
  const std::string problem = detector.Look(
      {Scan("scans/a", 300, 1), Scan("scans/b", 7, 0), Scan("scans/c", 1, 1)}, seconds(31));
  EXPECT_THAT(problem, HasSubstr("scans/c has not processed a record for 31 s"));
  EXPECT_THAT(problem, HasSubstr("100 % full"));
  // The scan continues: the problem is over. An ended scan is no problem either, nor is a source
  // that was idle and has just filled a slot.
  EXPECT_EQ(detector.Look({Scan("scans/a", 300, 1), Scan("scans/b", 7, 0.1), Scan("scans/c", 2, 1)},
                          seconds(40)),
            "");
  EXPECT_THAT(detector.Look({Scan("scans/a", 300, 1), Scan("scans/b", 7, 0),
                             Scan("scans/c", 2, 1, engine::ScanState::kFailed)},
                            seconds(69)),
              HasSubstr("scans/a"));
  EXPECT_EQ(detector.Look({Scan("scans/b", 7, 0.1)}, seconds(72)),
            "");  // idle for 72 s, and now a slot is filled
  EXPECT_EQ(detector.Look({}, seconds(100)), "");
  EXPECT_EQ(detector.Look({Scan("scans/a", 300, 1)}, seconds(200)),
            "");  // absent for a while: a fresh start
}

TEST(WatchdogTest, BeatsWhileAllIsWellAndNotOtherwise) {
  std::atomic<int> looks = 0, beats = 0;
  std::atomic<bool> well = true;
  std::promise<void> fourth, later;
  {
    Watchdog watchdog(
        milliseconds(30),
        [&]() -> std::string {
          if (++looks == 40) later.set_value();
          return well ? "" : "stuck";
        },
        [&] {
          EXPECT_TRUE(well);
          if (++beats == 4) {
            well = false;
            fourth.set_value();
          }
        });
    fourth.get_future().wait();
    later.get_future().wait();
    EXPECT_EQ(beats, 4);
    EXPECT_GE(looks, 40);
  }
  const int last = looks;
  EXPECT_EQ(looks, last);  // the thread has ended
}

TEST(WatchdogTest, ALookThatHangsIsNoSignOfLife) {
  std::atomic<int> beats = 0;
  std::promise<void> entered, release;
  auto released = release.get_future();
  int looks = 0;
  {
    Watchdog watchdog(
        milliseconds(3),
        [&]() -> std::string {
          if (++looks == 1) return "";
          if (looks == 2) {
            entered.set_value();
            released.wait();  // a lock that nobody releases
          }
          return "over";
        },
        [&] { ++beats; });
    entered.get_future().wait();
    EXPECT_EQ(beats, 1);
    // The destructor waits for the check in progress, because the checked objects must outlive it.
    release.set_value();
  }
  EXPECT_EQ(beats, 1);
}

TEST(WatchdogTest, ThePeriodIsSystemds) {
  ::unsetenv("WATCHDOG_USEC");
  ::unsetenv("WATCHDOG_PID");
  EXPECT_FALSE(Watchdog::PeriodFromEnvironment().has_value());
  ::setenv("WATCHDOG_USEC", "20000000", 1);
  EXPECT_EQ(Watchdog::PeriodFromEnvironment(), seconds(20));
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  EXPECT_EQ(Watchdog::PeriodFromEnvironment(), seconds(20));
  for (const char* other : {"1", "x", ""}) {
    ::setenv("WATCHDOG_PID", other, 1);
    EXPECT_FALSE(Watchdog::PeriodFromEnvironment().has_value()) << other;
  }
  ::unsetenv("WATCHDOG_PID");
  for (const char* nonsense : {"0", "-5", "soon", ""}) {
    ::setenv("WATCHDOG_USEC", nonsense, 1);
    EXPECT_FALSE(Watchdog::PeriodFromEnvironment().has_value()) << nonsense;
  }
  ::unsetenv("WATCHDOG_USEC");
}

}  // namespace
}  // namespace octavo
