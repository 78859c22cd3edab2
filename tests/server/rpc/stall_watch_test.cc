#include "server/rpc/transport/stall_watch.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"

namespace octavo::rpc {
namespace {

// Waits until the watch has begun so many turns. Each fails for lack of memory, which ends no
// watch.
void LetTurnsPass(int turns) {
  for (int i = 0; i < turns; ++i) {
    ArmFailpoint("stalls_turn:throw=bad_alloc");
    for (int wait = 0; wait < 400 && FailpointArmed(); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
}

TEST(StallWatchTest, ATurnThatBreaksOffIsFollowedByTheNext) {
  StallWatch watch(
      std::chrono::hours(1), [](const std::string&) {}, [](const std::string&) {});
  for (int i = 0; i < 2; ++i) {
    ArmFailpoint("stalls_turn:throw=bad_alloc");
    for (int wait = 0; wait < 400 && FailpointArmed(); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    ASSERT_FALSE(FailpointArmed()) << i;
  }
}

/// A stream that waits for a message.
struct Waiting {
  Mutex mutex;
  int ends ABSL_GUARDED_BY(mutex) = 0;
  absl::Status end ABSL_GUARDED_BY(mutex);
  const std::shared_ptr<MessageTimer> timer =
      std::make_shared<MessageTimer>("ipv4:192.0.2.1:1", [this](const absl::Status& status) {
        MutexLock lock(mutex);
        ++ends;
        end = status;
      });
  int Ends() {
    MutexLock lock(mutex);
    return ends;
  }
};

TEST(StallWatchTest, AStreamWithoutAFirstMessageIsEndedOnceAndCounted) {
  Waiting silent, spoken, not_begun, gone;
  for (Waiting* one : {&silent, &spoken, &not_begun}) StallWatch::Add(one->timer);
  {
    const auto dead = std::make_shared<MessageTimer>("", [&](const absl::Status&) {
      MutexLock lock(gone.mutex);
      ++gone.ends;
    });
    StallWatch::Add(dead);
    dead->Begin();
  }
  silent.timer->Begin();
  spoken.timer->Begin();
  EXPECT_TRUE(spoken.timer->Came());
  std::atomic<int> counted{0}, others{0};
  StallWatch watch(
      std::chrono::milliseconds(100),
      [&](const std::string& reason) { ++(reason == "no_first_message" ? counted : others); },
      [&](const std::string&) { ++others; });
  for (int wait = 0; wait < 400 && counted == 0; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  // Two turns more: nothing is ended twice, and no other one is.
  LetTurnsPass(2);
  EXPECT_EQ(counted, 1);
  EXPECT_EQ(others, 0);
  EXPECT_EQ(silent.Ends(), 1);
  EXPECT_EQ(spoken.Ends() + not_begun.Ends() + gone.Ends(), 0);
  EXPECT_FALSE(silent.timer->Came());  // too late
  EXPECT_TRUE(spoken.timer->Came());   // the messages after the first one
  MutexLock lock(silent.mutex);
  EXPECT_EQ(silent.end.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(silent.end.message().find("listen.stalled_seconds"), std::string::npos) << silent.end;
  EXPECT_EQ(InfoOf(silent.end).reason, Reason::kProtocol);
}

TEST(StallWatchTest, AStreamThatCouldNotBeEndedForLackOfMemoryIsEndedLater) {
  Waiting other;
  std::atomic<int> tries{0}, ends{0}, counted{0};
  const auto hungry = std::make_shared<MessageTimer>("", [&](const absl::Status&) {
    if (++tries < 3) throw std::bad_alloc();
    ++ends;
  });
  for (const auto& timer : {hungry, other.timer}) {
    StallWatch::Add(timer);
    timer->Begin();
  }
  StallWatch watch(
      std::chrono::milliseconds(0), [&](const std::string&) { ++counted; },
      [](const std::string&) {});
  for (int wait = 0; wait < 400 && tries == 0; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(hungry->Came());  // whoever is to be ended stays so
  for (int wait = 0; wait < 400 && counted < 2; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  // A turn more: an end is told once.
  LetTurnsPass(1);
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(counted, 2);
  EXPECT_EQ(other.Ends(), 1);
}

TEST(StallWatchTest, AStreamThatReadsOnIsEndedWhereNoNextMessageComes) {
  Waiting silent, spoken, at_work;
  for (Waiting* one : {&silent, &spoken, &at_work}) {
    StallWatch::Add(one->timer);
    one->timer->Begin();
    EXPECT_TRUE(one->timer->Came());
  }
  for (Waiting* one : {&silent, &spoken}) {
    one->timer->Again();
    one->timer->Begin();
  }
  EXPECT_TRUE(spoken.timer->Came());
  std::atomic<int> counted{0}, others{0};
  StallWatch watch(
      std::chrono::milliseconds(50),
      [&](const std::string& reason) { ++(reason == "no_message" ? counted : others); },
      [&](const std::string&) { ++others; });
  for (int wait = 0; wait < 400 && counted == 0; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  LetTurnsPass(2);
  EXPECT_EQ(counted, 1);
  EXPECT_EQ(others, 0);
  EXPECT_EQ(silent.Ends(), 1);
  EXPECT_EQ(spoken.Ends() + at_work.Ends(), 0);
  EXPECT_FALSE(silent.timer->Came());  // too late
  silent.timer->Again();
  silent.timer->Begin();  // an end is an end
  EXPECT_FALSE(silent.timer->Came());
  MutexLock lock(silent.mutex);
  EXPECT_EQ(silent.end.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(silent.end.message().find("the next message"), std::string::npos) << silent.end;
  EXPECT_NE(silent.end.message().find("listen.stalled_seconds"), std::string::npos) << silent.end;
  EXPECT_EQ(InfoOf(silent.end).reason, Reason::kProtocol);
}

TEST(StallWatchTest, AMessageThatIsFasterThanTheBeginningCounts) {
  Waiting fast;
  StallWatch::Add(fast.timer);
  EXPECT_TRUE(fast.timer->Came());
  fast.timer->Begin();
  std::atomic<int> counted{0};
  StallWatch watch(
      std::chrono::milliseconds(0), [&](const std::string&) { ++counted; },
      [](const std::string&) {});
  for (int i = 0; i < 2; ++i) {
    ArmFailpoint("stalls_turn:throw=bad_alloc");
    for (int wait = 0; wait < 400 && FailpointArmed(); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    ASSERT_FALSE(FailpointArmed());
  }
  EXPECT_EQ(counted, 0);
  EXPECT_EQ(fast.Ends(), 0);
}

}  // namespace
}  // namespace octavo::rpc
