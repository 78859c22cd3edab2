// A volume that is sealed while the compute thread looks for a slot: whatever the moment, the next
// volume gets one.

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

// The order of events that is forced for each volume once all slots are taken: the compute thread
// finds no free slot; it asks for one to be moved away, and nothing can be moved, because the last
// volume is still being sealed; that is sealed; the compute thread goes on. The slot can be had by
// moving what has just been sealed: a compute thread that looks only now whether anything is still
// being sealed drops the volume.
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
  std::atomic<int64_t> asked{2};  // the last volume that the compute thread, looking for a slot for
                                  // the next one, may find sealed
  octavo::testing::News news;
  octavo::testing::VolumeCallback observer([&](const VolumeStatus& volume) {
    if (volume.state == VolumeState::kAcquiring) compute = std::this_thread::get_id();
    // The retire thread, which has sealed it and has not said that it is through with it: not
    // before the compute thread has asked.
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
    if (asked <=
        newest.index) {  // for the first time for this volume: nothing to move when we look
      ++looks;
      asked = newest.index + 1;
      news.Tell();
      while (last().state != VolumeState::kHeld) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(
          5));  // and the retire thread is through: what is tested must not depend on that
      return false;
    }
    // Moved: what is held last, as those before it were.
    return newest.state == VolumeState::kHeld && store.Discard(newest.name, "moved").ok();
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
  EXPECT_EQ(end.reason_code, "COMPLETED") << end.reason;
  EXPECT_EQ(looks, kVolumes - 3);
  EXPECT_EQ(end.volumes_dropped, 0);
  EXPECT_EQ(end.volumes_done, kVolumes);
}

INSTANTIATE_TEST_SUITE_P(Backends, SlotWaitTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
