#include "server/volume/volume_waiters.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;

// A client waits again and again, with a deadline each time, while the volume is not complete.
TEST(VolumeWaitsTest, WhoHasGoneAwayIsForgottenBeforeTheVolumeIsComplete) {
  VolumeWaiters waits;
  VolumeStatus volume;
  volume.name = "volumes/a";
  volume.state = VolumeState::kAcquiring;
  const auto get = [&](const std::string&) -> absl::StatusOr<VolumeStatus> { return volume; };
  const auto kept = std::make_shared<int>(0);
  int told = 0;
  const auto tell = [kept, &told](const absl::StatusOr<VolumeStatus>&) { ++told; };
  const auto before = kept.use_count();
  for (int i = 0; i < 100; ++i)
    ASSERT_THAT(waits.Add("volumes/a", get, tell, [] { return true; }), IsOk());
  EXPECT_LE(kept.use_count(), before + 1);
  ASSERT_THAT(waits.Add("volumes/a", get, tell, [] { return false; }), IsOk());
  ASSERT_THAT(waits.Add("volumes/a", get, tell), IsOk());
  volume.state = VolumeState::kHeld;
  waits.OnVolumeChanged(volume);
  waits.Flush();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(kept.use_count(), before);
}

// The thread that completes a volume may be one of a running scan.
TEST(VolumeWaitsTest, WhoCompletesAVolumeAnswersNobody) {
  VolumeWaiters waits;
  VolumeStatus volume;
  volume.name = "volumes/a";
  volume.state = VolumeState::kAcquiring;
  const auto get = [&](const std::string&) -> absl::StatusOr<VolumeStatus> { return volume; };
  std::vector<std::thread::id> threads;
  const auto tell = [&](const absl::StatusOr<VolumeStatus>& told) {
    threads.push_back(std::this_thread::get_id());
    EXPECT_THAT(told, octavo::testing::IsError(absl::StatusCode::kDataLoss, "volumes/a failed"));
    throw std::runtime_error("by the test");  // the others get their answers
  };
  for (int i = 0; i < 3; ++i) ASSERT_THAT(waits.Add("volumes/a", get, tell), IsOk());
  volume.state = VolumeState::kFailed;
  waits.OnVolumeChanged(volume);
  waits.Flush();
  ASSERT_EQ(threads.size(), 3u);
  for (const std::thread::id thread : threads) EXPECT_NE(thread, std::this_thread::get_id());
}

}  // namespace
}  // namespace octavo::engine
