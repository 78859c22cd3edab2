#include "server/rpc/transport/stall_watch.h"

#include <chrono>
#include <string>
#include <thread>

#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"

namespace octavo::rpc {
namespace {

TEST(StallWatchTest, ATurnThatBreaksOffIsFollowedByTheNext) {
  StallWatch watch(
      std::chrono::hours(1), [] {}, [](const std::string&) {});
  for (int i = 0; i < 2; ++i) {
    ArmFailpoint("stalls_turn:throw=bad_alloc");
    for (int wait = 0; wait < 400 && FailpointArmed(); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    ASSERT_FALSE(FailpointArmed()) << i;
  }
}

}  // namespace
}  // namespace octavo::rpc
