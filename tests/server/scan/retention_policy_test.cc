#include "server/scan/retention_policy.h"

#include <thread>

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::SharedDevice;
using testing::FewAscans;
using testing::NoRelief;
using testing::ScanSurroundings;

/// Gives prepared answers and counts the calls.
class Relief final : public NoRelief {
 public:
  bool Spill(const std::string&, Tier) override {
    ++asked;
    return spills && spills();
  }
  int64_t SpillFailures(const std::string&) override { return failures; }
  bool CommitsPending(const std::string&) override { return commits && commits(); }
  std::function<bool()> spills, commits;
  int64_t failures = 0;
  int asked = 0;
};

TEST(RetentionStayTest, HowLongVolumesCanBeRead) {
  using enum publish::VolumesStay;
  using enum Disposition;
  const struct {
    RetentionMode mode;
    Disposition disposition;
    publish::VolumesStay stay;
  } cases[] = {{RetentionMode::kCapture, kAsk, kUntilAsked},
               {RetentionMode::kCapture, kAutoCommit, kAWhile},
               {RetentionMode::kCapture, kAutoDiscard, kNot},
               {RetentionMode::kLive, kAsk, kAWhile},
               {RetentionMode::kLive, kAutoCommit, kAWhile},
               {RetentionMode::kLive, kAutoDiscard, kNot}};
  for (const auto& one : cases)
    EXPECT_EQ(scan::StayOf({.mode = one.mode, .disposition = one.disposition}), one.stay);
}

class RetentionPolicyTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSlots = 2;

  void SetUp() override {
    for (int64_t i = 0; i < kSlots; ++i) {
      auto slot = std::make_unique<VolumeSlot>();
      slot->volume = SharedDevice("host").Allocate(256).value();
      pool_->Add(std::move(slot));
    }
  }
  RetentionPolicy Policy(const Retention& retention) {
    return RetentionPolicy(retention, kSlots,
                           {.scan = "scans/x",
                            .store = &of_.store,
                            .relief = &relief_,
                            .observer = &of_.told,
                            .source_waits = source_waits_,
                            .ring_occupancy = [this] { return occupancy_; },
                            .slots_return = [this] { return slots_return_ && slots_return_(); },
                            .aborted = abort_.get_token()});
  }
  /// Holds a volume in a slot of the pool; sealed if `seal`.
  std::string Hold(RetentionPolicy& policy, bool seal = true) {
    auto volume = std::make_shared<ActiveVolume>(AscanCoverage({}));
    volume->slot = policy.TakeSlot(*pool_);
    EXPECT_NE(volume->slot, nullptr);
    volume->index = volumes_++;
    volume->status.name = "volumes/" + std::to_string(volume->index);
    volume->status.scan = "scans/x";
    volume->status.index = volume->index;
    of_.store.Add(volume->status, volume->slot, 0);
    if (seal) policy.Seal(*volume);
    last_ = volume;
    const std::string name = volume->status.name;
    volume->slot = nullptr;
    return name;
  }
  static std::function<int64_t()> ToCome(int64_t volumes) {
    return [volumes] { return volumes; };
  }
  VolumeState StateOf(const std::string& name) { return of_.store.Get(name)->state; }

  ScanSurroundings of_{FewAscans()};
  const std::shared_ptr<SlotPool> pool_ = std::make_shared<SlotPool>(&of_.ledger);
  Relief relief_;
  bool source_waits_ = false;
  double occupancy_ = 0;
  std::function<bool()> slots_return_;
  std::stop_source abort_;
  int64_t volumes_ = 0;
  std::shared_ptr<ActiveVolume> last_;
};

TEST_F(RetentionPolicyTest, WithoutAFreeSlotACaptureStopsOrDrops) {
  RetentionPolicy stops = Policy({.mode = RetentionMode::kCapture,
                                  .on_full = OnFull::kStopAtVolume,
                                  .disposition = Disposition::kAsk});
  const std::string first = Hold(stops);
  Hold(stops);
  EXPECT_EQ(stops.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(stops.EndOfScan(),
            "all 2 hold slots are full: commit or discard volumes, or submit with more "
            "retention.hold_slots");
  RetentionPolicy drops = Policy({.mode = RetentionMode::kCapture,
                                  .on_full = OnFull::kDropNew,
                                  .disposition = Disposition::kAsk});
  EXPECT_EQ(drops.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(drops.EndOfScan(), std::nullopt);
  ASSERT_TRUE(of_.store.Discard(first, Reason::kDiscarded, "asked").ok());
  EXPECT_NE(drops.TakeSlot(*pool_), nullptr);
}

TEST_F(RetentionPolicyTest, ALiveScanOverwritesItsOldestVolumeThatNobodyKeeps) {
  RetentionPolicy policy = Policy({.mode = RetentionMode::kLive});
  const std::string first = Hold(policy), second = Hold(policy);
  ASSERT_TRUE(of_.store.ring().Mark(first, 1).ok());
  EXPECT_NE(policy.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(StateOf(first), VolumeState::kHeld);
  EXPECT_EQ(StateOf(second), VolumeState::kDiscarded);
}

TEST_F(RetentionPolicyTest, WithKeepLastOlderOnesGoWhenANewOneIsPublished) {
  RetentionPolicy policy = Policy({.mode = RetentionMode::kLive, .keep_last = 1});
  const std::string first = Hold(policy);
  policy.Dispose(*last_, *pool_, ToCome(-1));
  EXPECT_EQ(StateOf(first), VolumeState::kHeld);
  const std::string second = Hold(policy);
  policy.Dispose(*last_, *pool_, ToCome(-1));
  EXPECT_EQ(StateOf(first), VolumeState::kDiscarded);
  EXPECT_EQ(StateOf(second), VolumeState::kHeld);
}

TEST_F(RetentionPolicyTest, ASlotIsWaitedForWhileOneIsOnItsWay) {
  RetentionPolicy policy = Policy({.mode = RetentionMode::kCapture,
                                   .on_full = OnFull::kDropNew,
                                   .disposition = Disposition::kAutoDiscard});
  const std::string first = Hold(policy);
  Hold(policy);
  int looks = 0;
  slots_return_ = [&] {
    if (++looks == 3) EXPECT_TRUE(of_.store.Discard(first, Reason::kDiscarded, "through").ok());
    return true;
  };
  EXPECT_NE(policy.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(looks, 3);
}

TEST_F(RetentionPolicyTest, AnAbortEndsTheWait) {
  RetentionPolicy policy = Policy({.mode = RetentionMode::kLive, .keep_last = 2});
  Hold(policy);
  Hold(policy);
  int looks = 0;
  slots_return_ = [&] {
    if (++looks == 3) abort_.request_stop();
    return true;
  };
  EXPECT_EQ(policy.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(looks, 3);
}

TEST_F(RetentionPolicyTest, CommitsAreWaitedForOnlyIfTheSourceWaits) {
  const Retention commits{.mode = RetentionMode::kCapture,
                          .on_full = OnFull::kDropNew,
                          .disposition = Disposition::kAutoCommit};
  RetentionPolicy impatient = Policy(commits);
  const std::string first = Hold(impatient);
  Hold(impatient);
  int looks = 0;
  relief_.commits = [&] {
    if (++looks == 2) EXPECT_TRUE(of_.store.Discard(first, Reason::kDiscarded, "committed").ok());
    return true;
  };
  EXPECT_EQ(impatient.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(looks, 0);
  source_waits_ = true;
  EXPECT_NE(Policy(commits).TakeSlot(*pool_), nullptr);
  EXPECT_EQ(looks, 2);
}

TEST_F(RetentionPolicyTest, SpillsWhileTheRingHasRoomAndTheTierWorks) {
  const Retention spills{.mode = RetentionMode::kCapture,
                         .on_full = OnFull::kSpillHost,
                         .disposition = Disposition::kAsk,
                         .on_tier_full = OnFull::kStopAtVolume};
  RetentionPolicy policy = Policy(spills);
  const std::string first = Hold(policy);
  Hold(policy);
  EXPECT_EQ(policy.TakeSlot(*pool_), nullptr);  // the tier accepts no volume
  EXPECT_EQ(relief_.asked, 1);
  ASSERT_TRUE(policy.EndOfScan().has_value());
  EXPECT_NE(policy.EndOfScan()->find("and the tier HOST is full"), std::string::npos);
  occupancy_ = 0.6;  // the ring fills while the tier is busy: no time to wait for it
  relief_.spills = [] { return true; };
  EXPECT_EQ(policy.TakeSlot(*pool_), nullptr);
  occupancy_ = 0.4;
  int looks = 0;
  relief_.spills = [&] {
    if (++looks == 2) EXPECT_TRUE(of_.store.Discard(first, Reason::kDiscarded, "moved").ok());
    return true;
  };
  EXPECT_NE(policy.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(looks, 2);
}

TEST_F(RetentionPolicyTest, AMoveThatFailsMeanwhileIsNotWaitedFor) {
  RetentionPolicy policy = Policy({.mode = RetentionMode::kCapture,
                                   .on_full = OnFull::kSpillHost,
                                   .disposition = Disposition::kAsk});
  Hold(policy);
  Hold(policy);
  relief_.spills = [&] {
    ++relief_.failures;
    return true;
  };
  EXPECT_EQ(policy.TakeSlot(*pool_), nullptr);
  EXPECT_EQ(relief_.asked, 1);
}

TEST_F(RetentionPolicyTest, DisposesOfAHeldVolumeAsItsClientChose) {
  RetentionPolicy discards =
      Policy({.mode = RetentionMode::kCapture, .disposition = Disposition::kAutoDiscard});
  const std::string gone = Hold(discards);
  discards.Dispose(*last_, *pool_, ToCome(-1));
  EXPECT_EQ(StateOf(gone), VolumeState::kDiscarded);
  EXPECT_TRUE(of_.told.commits.empty());

  CommitOptions options;
  options.destination = "a/{index}";
  RetentionPolicy commits = Policy({.mode = RetentionMode::kCapture,
                                    .disposition = Disposition::kAutoCommit,
                                    .auto_commit = options});
  const std::string wanted = Hold(commits);
  last_->raw_slot = std::make_shared<VolumeSlot>();
  last_->raw_status.name = "volumes/raw";
  commits.Dispose(*last_, *pool_, ToCome(-1));
  EXPECT_EQ(of_.told.commits, (std::vector<std::pair<std::string, std::string>>{
                                  {wanted, "a/{index}"}, {"volumes/raw", "a/{index}_raw"}}));
  EXPECT_EQ(StateOf(wanted), VolumeState::kHeld);
  EXPECT_EQ(relief_.asked, 0);
}

TEST_F(RetentionPolicyTest, MovesOneAwayAheadOfTheNeedAndNotWithoutNeed) {
  RetentionPolicy policy = Policy({.mode = RetentionMode::kCapture,
                                   .on_full = OnFull::kSpillHost,
                                   .disposition = Disposition::kAsk});
  Hold(policy);
  policy.Dispose(*last_, *pool_, ToCome(1));  // it has a slot
  EXPECT_EQ(relief_.asked, 0);
  policy.Dispose(*last_, *pool_, ToCome(2));
  EXPECT_EQ(relief_.asked, 1);
  policy.Dispose(*last_, *pool_, ToCome(-1));
  EXPECT_EQ(relief_.asked, 2);
}

}  // namespace
}  // namespace octavo::engine
