#include "server/base/periodic_thread.h"

#include <atomic>
#include <chrono>
#include <pthread.h>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"

namespace octavo::base {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

void WaitFor(const std::atomic<int>& turns, int most) {
  for (int seen = turns; seen < most; seen = turns) turns.wait(seen);
}

TEST(PeriodicThreadTest, ItWorksAgainAndAgainUnderItsName) {
  std::atomic<int> turns{0};
  std::string name(16, '\0');
  const auto began = steady_clock::now();
  {
    const PeriodicThread thread("oct-here", milliseconds(5), [&] {
      if (turns == 0) pthread_getname_np(pthread_self(), name.data(), name.size());
      ++turns;
      turns.notify_all();
    });
    WaitFor(turns, 4);
  }
  EXPECT_GE(steady_clock::now() - began, milliseconds(20));
  EXPECT_STREQ(name.c_str(), "oct-here");
  const int after = turns;
  EXPECT_EQ(turns, after) << "it has ended";
}

TEST(PeriodicThreadTest, AnExceptionEndsOneTurn) {
  std::atomic<int> turns{0};
  const PeriodicThread thread("oct-throws", milliseconds(1), [&] {
    ++turns;
    turns.notify_all();
    throw std::runtime_error("of this turn");
  });
  WaitFor(turns, 3);
}

TEST(PeriodicThreadTest, ItsEndWaitsForNoPauseAndDoesNoTurn) {
  std::atomic<int> turns{0};
  const auto began = steady_clock::now();
  {
    const PeriodicThread thread("oct-sleeps", hours(1), [&] { ++turns; });
  }
  EXPECT_LT(steady_clock::now() - began, std::chrono::minutes(1));
  EXPECT_EQ(turns, 0);
}

}  // namespace
}  // namespace octavo::base
