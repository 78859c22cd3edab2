// A volume is sealed while the compute thread searches for a slot: at any moment of the search, the
// next volume must get a slot.

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/volume_callback.h"

namespace octavo::engine {
namespace {

using octavo::testing::SharedDevice;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::RunToTheEnd;

class SlotWaitTest : public ::testing::TestWithParam<std::string> {};

// Once all slots are taken, the test forces this order of events for each volume. The compute
// thread finds no free slot. It requests a move, but no volume can be moved, because the last one
// is still being sealed. Then that volume is sealed, and the compute thread continues. It can get
// the slot by moving the volume just sealed. If it checked only now whether a volume is still being
// sealed, it would drop the next volume.
TEST_P(SlotWaitTest, AVolumeSealedBetweenTwoLooksIsFound) {
  constexpr int64_t kVolumes = 9;
  const ResolvedScan scan = ResolvedKnown(
      {.ascans_per_bscan = 24, .bscans_per_volume = 10, .volumes = kVolumes}, [](ScanSpec& spec) {
        spec.retention.mode = RetentionMode::kCapture;
        spec.retention.hold_slots = 3;
        spec.retention.on_full = OnFull::kSpillHost;
        spec.retention.on_tier_full = OnFull::kDropNew;
      });
  const SystemClock clock;
  Ledger ledger({int64_t{1} << 30});
  Publisher publisher(&clock);
  std::atomic<std::thread::id> compute{};
  // Last volume that may be sealed when the compute thread searches for a slot.
  std::atomic<int64_t> asked{2};
  octavo::testing::News news;
  octavo::testing::VolumeCallback observer([&](const VolumeStatus& volume) {
    if (volume.state == VolumeState::kAcquiring) compute = std::this_thread::get_id();
    // The retire thread has sealed the volume but has not reported the end of its work: it waits
    // here until the compute thread has requested the move.
    if (volume.state == VolumeState::kHeld && volume.index >= 2 && volume.index + 1 < kVolumes)
      news.Await([&] { return asked > volume.index; });
  });
  VolumeStore store(&ledger, &clock);
  store.AddObserver(&observer);
  const auto last = [&store] { return store.List().back(); };
  int64_t looks = 0;
  SessionContext context{.device = &SharedDevice(GetParam()),
                         .ledger = &ledger,
                         .store = &store,
                         .publisher = &publisher,
                         .clock = &clock};
  const auto spill = [&] {
    if (std::this_thread::get_id() != compute.load()) return false;
    const VolumeStatus newest = last();
    if (asked <= newest.index) {  // the first search for this volume: no volume to move yet
      ++looks;
      asked = newest.index + 1;
      news.Tell();
      while (last().state != VolumeState::kHeld) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(
          5));  // the retire thread finishes; the result must not depend on it
      return false;
    }
    // Moves the volume that was held last, like those before it.
    return newest.state == VolumeState::kHeld &&
           store.Discard(newest.name, Reason::kDiscarded, "moved").ok();
  };
  class Moving final : public testing::NoRelief {
   public:
    explicit Moving(std::function<bool()> spill) : spill_(std::move(spill)) {}
    bool Spill(const std::string&, Tier) override { return spill_(); }

   private:
    const std::function<bool()> spill_;
  };
  context.relief = std::make_shared<Moving>(spill);
  const ScanStatus end =
      RunToTheEnd("scans/x", scan,
                  std::make_unique<KnownSource>(KnownRecords(octavo::testing::FreshSeed(), 64),
                                                scan.volume_records * kVolumes, nullptr, nullptr),
                  context);
  EXPECT_EQ(end.reason_code, Reason::kCompleted) << end.reason;
  EXPECT_EQ(looks, kVolumes - 3);
  EXPECT_EQ(end.volumes_dropped, 0);
  EXPECT_EQ(end.volumes_done, kVolumes);
}

INSTANTIATE_TEST_SUITE_P(Backends, SlotWaitTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
