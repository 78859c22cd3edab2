// Repeated requests for derived volumes, and those that are cancelled.

#include "gmock/gmock.h"

#include "tests/server/engine/memory_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class DeriverTest : public testing::MemoryTest {
 protected:
  /// Derives one plane of a volume.
  static DeriveSpec Plane(const std::string& volume) {
    return {.name = volume, .operations = {OpSpec{CropOp{.start = {}, .count = {1, 0, 0}}}}};
  }
};

TEST_F(DeriverTest, ARetryGetsWhatTheFirstOneMade) {
  Finished(Submit(Spec(1)).name);
  const std::string source = Held().at(0).name;
  ASSERT_OK_AND_ASSIGN(const VolumeStatus first, Derive(Plane(source), {"one", "plane"}));
  ASSERT_OK_AND_ASSIGN(const VolumeStatus again, Derive(Plane(source), {"one", "plane"}));
  EXPECT_EQ(again.name, first.name);
  const auto other = Derive(Plane(source), {"one", "another"});
  EXPECT_THAT(other, IsError(absl::StatusCode::kAlreadyExists, "another body"));
  EXPECT_EQ(InfoOf(other.status()).reason, Reason::kIdempotencyMismatch);
  // A refused request leaves no trace.
  EXPECT_EQ(InfoOf(Derive(Plane("volumes/none"), {"two", "none"}).status()).reason,
            Reason::kNoVolume);
  EXPECT_THAT(Derive(Plane(source), {"two", "plane"}), IsOk());
  EXPECT_EQ(engine_->operations().List().size(), 2u);
}

// The answer comes when the work is planned: the operation names the new volume, which is listed.
TEST_F(DeriverTest, ThePlannedVolumeIsKnownBeforeItIsMade) {
  Finished(Submit(Spec(1)).name);
  ASSERT_OK_AND_ASSIGN(const std::string name, BeginDerive(Plane(Held().at(0).name)));
  ASSERT_OK_AND_ASSIGN(const OperationStatus begun, engine_->operations().Get(name));
  ASSERT_EQ(begun.volumes.size(), 1u);
  EXPECT_THAT(engine_->volumes().Get(begun.volumes[0]), IsOk());
  ASSERT_OK_AND_ASSIGN(const OperationStatus end, Ended(name));
  EXPECT_EQ(end.state, OperationState::kSucceeded);
  EXPECT_EQ(end.kind, OperationKind::kDerive);
  EXPECT_EQ(end.progress.fraction, 1);
  EXPECT_EQ(engine_->volumes().Get(end.volumes[0])->state, VolumeState::kHeld);
}

// Cancelled at once, the new volume fails or was complete already; nothing else is left.
TEST_F(DeriverTest, ACancelledDerivationLeavesNoVolume) {
  Finished(Submit(Spec(1)).name);
  const std::string source = Held().at(0).name;
  DeriveSpec spec = Plane(source);
  for (int i = 0; i < 7; ++i) spec.operations.push_back(spec.operations[0]);
  const int64_t used = Device().held_bytes;
  int cancelled = 0;
  for (int round = 0; round < 200 && cancelled < 5; ++round) {
    ASSERT_OK_AND_ASSIGN(const std::string name, BeginDerive(spec));
    ASSERT_THAT(engine_->operations().Cancel(name), IsOk());
    const auto end = Ended(name);
    ASSERT_OK_AND_ASSIGN(const OperationStatus now, engine_->operations().Get(name));
    const VolumeStatus made = *engine_->volumes().Get(now.volumes.at(0));
    if (end.ok()) {
      EXPECT_EQ(made.state, VolumeState::kHeld);
      EXPECT_THAT(engine_->volumes().Discard(made.name), IsOk());
      continue;
    }
    ++cancelled;
    EXPECT_EQ(now.state, OperationState::kCancelled);
    EXPECT_THAT(end, IsError(absl::StatusCode::kCancelled, "no new volume"));
    EXPECT_EQ(made.state, VolumeState::kFailed);
    EXPECT_THAT(made.reason, ::testing::HasSubstr("cancelled"));
  }
  EXPECT_GT(cancelled, 0);
  Until([&] { return Device().held_bytes == used; });
  EXPECT_EQ(engine_->volumes().Get(source)->state, VolumeState::kHeld);
}

}  // namespace
}  // namespace octavo::engine
