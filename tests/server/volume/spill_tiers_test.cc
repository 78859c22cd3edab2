#include "server/volume/spill_tiers.h"

#include <utility>

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class SpillTiersTest : public ::testing::Test {
 protected:
  SpillTiersTest() {
    volume_.name = "volumes/a";
    volume_.scan = "scans/a";
    volume_.bytes = 4096;
  }
  SpillTiers Make(int64_t host_bytes) {
    return SpillTiers({.devices = DeviceSet({{.device = device_.get()}}),
                       .host_bytes = host_bytes,
                       .folder = folder_.get(),
                       .meta_of = [](const VolumeStatus& volume) {
                         return storage::VolumeMeta{.volume_name = volume.name,
                                                    .scan_name = volume.scan};
                       }});
  }

  octavo::testing::TempFolder temp_;
  std::vector<storage::SpillFolder::Found> found_;
  std::vector<std::string> report_;
  const std::unique_ptr<storage::SpillFolder> folder_ =
      storage::SpillFolder::Open(temp_ / "spill", 1 << 20, &found_, &report_).value();
  const std::unique_ptr<Device> device_ = std::move(OpenDevices("host").value().devices[0]);
  VolumeStatus volume_;
};

TEST_F(SpillTiersTest, ATierWithoutRoomIsOff) {
  SpillTiers tiers = Make(/*host_bytes=*/0);
  const absl::Status off = tiers.Check(Tier::kHost);
  EXPECT_EQ(InfoOf(off).reason, Reason::kSpillOff);
  EXPECT_EQ(tiers.FreeOf(Tier::kHost), 0);
  EXPECT_THAT(tiers.Check(Tier::kDisk), IsOk());
  EXPECT_THAT(tiers.Check(Tier::kDevice),
              IsError(absl::StatusCode::kInvalidArgument, "allowed HOST, DISK"));
}

TEST_F(SpillTiersTest, RoomIsTakenWhileAVolumeIsWrittenAndUntilItsLastReaderIsDone) {
  SpillTiers tiers = Make(/*host_bytes=*/8192);
  const std::string voxels(4096, 'v');
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    {
      ASSERT_OK_AND_ASSIGN(auto unfinished, tiers.Begin(tier, volume_, 0));
      EXPECT_GE(tiers.UseOf(tier).used_bytes, 4096) << Name(tier);
      EXPECT_THAT(unfinished->Append(voxels.data(), 1000), IsOk());
    }
    EXPECT_EQ(tiers.UseOf(tier).used_bytes, 0) << Name(tier);

    ASSERT_OK_AND_ASSIGN(auto writer, tiers.Begin(tier, volume_, 0));
    EXPECT_THAT(writer->Append(voxels.data(), 4000), IsOk());
    EXPECT_THAT(writer->Append(voxels.data(), 96), IsOk());
    ASSERT_OK_AND_ASSIGN(auto spilled, writer->Finish());
    writer = nullptr;
    EXPECT_EQ(spilled->tier(), tier);
    EXPECT_EQ(spilled->bytes(), 4096);
    ASSERT_OK_AND_ASSIGN(auto cursor, spilled->Open());
    spilled->Remove();
    spilled = nullptr;
    std::string read(4096, ' ');
    EXPECT_THAT(cursor->Read(0, 4096, read.data()), IsOk());
    EXPECT_TRUE(read == voxels);
    cursor = nullptr;
    EXPECT_EQ(tiers.UseOf(tier).used_bytes, 0) << Name(tier);
  }
}

TEST_F(SpillTiersTest, AFullTierSaysHowMuchItHas) {
  SpillTiers tiers = Make(/*host_bytes=*/5000);
  ASSERT_OK_AND_ASSIGN(const auto first, tiers.Begin(Tier::kHost, volume_, 0));
  const auto second = tiers.Begin(Tier::kHost, volume_, 0);
  EXPECT_THAT(second, IsError(absl::StatusCode::kResourceExhausted, "4.0 KiB of its 4.9 KiB"));
  EXPECT_EQ(InfoOf(second.status()).reason, Reason::kSpillQuota);
}

}  // namespace
}  // namespace octavo::engine
