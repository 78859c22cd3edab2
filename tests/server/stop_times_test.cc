#include "server/stop_times.h"

#include <cstdlib>
#include <string>
#include <unistd.h>

#include "gtest/gtest.h"

#include "server/systemd.h"

namespace octavo {
namespace {

TEST(StopTimesTest, SystemdWaitsLongerThanTheBackstop) {
  for (const double drain : {0.0, 0.5, 20.0, 3600.0}) {
    const StopTimes times{drain};
    EXPECT_EQ(times.ForWork(), drain + 5);
    EXPECT_EQ(times.ForSettling(), drain + 10);
    EXPECT_GT(times.AskedForWork(), times.ForWork());
    EXPECT_GE(times.AskedForWork(), times.ForSettling());
    for (const double left : {0.0, 1.0, 500.0}) {
      EXPECT_EQ(StopTimes::ForWriting(left), left + 10);
      EXPECT_GE(times.AskedForWriting(left), StopTimes::ForWriting(left));
    }
  }
}

TEST(StopTimesTest, WritingWithoutALimitMayTakeAnyTime) {
  const StopTimes times{20};
  EXPECT_TRUE(times.MayTake(90, true, 0)) << "0 = as long as it makes progress";
  EXPECT_FALSE(times.MayTake(90, false, 0)) << "nothing is written";
  EXPECT_FALSE(times.MayTake(90, true, 60));
  EXPECT_TRUE(times.MayTake(90, true, 65));
  EXPECT_TRUE(StopTimes{85}.MayTake(90, false, 0));
}

TEST(StopTimesTest, OnlyTheProcessThatSystemdStartedIsItsOwn) {
  ::unsetenv("SYSTEMD_EXEC_PID");
  EXPECT_FALSE(SystemdStartedThis());
  ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getppid()).c_str(), 1);
  EXPECT_FALSE(SystemdStartedThis()) << "a shell of a service passes its variables on";
  ::setenv("SYSTEMD_EXEC_PID", "", 1);
  EXPECT_FALSE(SystemdStartedThis());
  ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getpid()).c_str(), 1);
  EXPECT_TRUE(SystemdStartedThis());
  ::unsetenv("SYSTEMD_EXEC_PID");
}

}  // namespace
}  // namespace octavo
