#include "server/scan/scan_memory.h"

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::Captures;
using testing::FewAscans;
using testing::ScanSurroundings;

class ScanMemoryTest : public ::testing::Test {
 protected:
  int64_t Reserved() { return of_.ledger.UseOf(0).reserved; }
  Device& device_ = SharedDevice("host");
  const Stream stream_ = device_.NewStream(StreamPriority::kNormal).value();
  void Allocate(ScanMemory& memory) {
    ASSERT_THAT(memory.AllocateSlots(stream_.ref()), IsOk());
    ASSERT_THAT(memory.AllocateChains(), IsOk());
    ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  }
  ScanSurroundings of_{FewAscans(Captures(3))};
};

TEST_F(ScanMemoryTest, BeforeItBeginsTheChargesAreTheCallers) {
  const std::vector<ScanDevice> devices = of_.Charge({&device_});
  const int64_t reserved = Reserved();
  EXPECT_GT(reserved, 0);
  {
    ScanMemory memory(of_.scan, &of_.ledger, nullptr, devices);
    Allocate(memory);
    EXPECT_EQ(memory.slots().TryTake(), nullptr);
    EXPECT_FALSE(memory.begun());
  }
  EXPECT_EQ(Reserved(), reserved);
}

TEST_F(ScanMemoryTest, AChargeEndsWithWhatItIsFor) {
  ScanMemory memory(of_.scan, &of_.ledger, nullptr, of_.Charge({&device_}));
  Allocate(memory);
  EXPECT_EQ(memory.chains(), nullptr);
  EXPECT_EQ(memory.raw_slots(), nullptr);
  memory.Begin();
  EXPECT_EQ(memory.slots().Free(), 3);
  std::shared_ptr<VolumeSlot> taken = memory.slots().TryTake();
  ASSERT_NE(taken, nullptr);
  memory.CloseSlots();
  memory.ReleaseCharges();
  EXPECT_EQ(Reserved(), LayoutOf(of_.scan, 0).sum());  // still held by a caller
  taken = nullptr;
  EXPECT_EQ(Reserved(), 0);
}

TEST_F(ScanMemoryTest, ASlotOfTheCacheIsScrubbed) {
  SlotCache cache(&of_.ledger, int64_t{1} << 30);
  const SlotLayout layout = LayoutOf(of_.scan, 0);
  for (int use = 0; use < 2; ++use) {
    auto grant = of_.ledger.ReserveReusing(0, "scans/x", "", Needs(of_.scan, device_),
                                           cache.Find(layout), nullptr);
    ASSERT_THAT(grant.status(), IsOk());
    EXPECT_EQ(grant->reused, use == 0 ? 0u : 3u);
    ScanMemory memory(of_.scan, &of_.ledger, &cache,
                      {{.device = &device_, .index = 0, .charges = grant->charges}});
    Allocate(memory);
    memory.Begin();
    for (int i = 0; i < 3; ++i) {
      const std::shared_ptr<VolumeSlot> slot = memory.slots().TryTake();
      ASSERT_NE(slot, nullptr);
      auto* const bytes = slot->volume.as<uint8_t>();  // host backend
      if (use == 1)
        EXPECT_TRUE(
            std::all_of(bytes, bytes + slot->volume.bytes(), [](uint8_t b) { return b == 0; }));
      std::fill(bytes, bytes + slot->volume.bytes(), 0x5A);
    }
    memory.CloseSlots();
    memory.ReleaseCharges();
  }
}

}  // namespace
}  // namespace octavo::engine
