#include "server/volume/spill_metadata.h"

#include "gpu/base/status.h"
#include "server/volume/volume_metadata.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;

VolumeStatus Volume() {
  VolumeStatus volume;
  volume.name = "volumes/a";
  volume.scan = "scans/b";
  volume.shape[0] = volume.shape[1] = volume.shape[2] = 2;
  volume.bytes = 8;
  volume.owner = {.name = "ada", .project = "retina", .role = security::Role::kOperator};
  return volume;
}

TEST(SpillMetadata, AVolumeOnDiskKeepsItsOwner) {
  const VolumeStatus volume = Volume();
  nlohmann::json about = volume::AboutOf(volume, volume::MetaOf(volume, "octavo 0", "a device"));
  ASSERT_OK_AND_ASSIGN(const VolumeStatus again, volume::StatusFromAbout(about));
  EXPECT_EQ(again.owner, volume.owner);
  EXPECT_EQ(again.owner.role, security::Role::kOperator) << "by which its quota goes";
  about["owner"].erase("role");
  ASSERT_OK_AND_ASSIGN(const VolumeStatus without, volume::StatusFromAbout(about));
  EXPECT_EQ(without.owner, volume.owner);
  EXPECT_EQ(without.owner.role, security::Role::kNone);
  about.erase("owner");
  ASSERT_OK_AND_ASSIGN(const VolumeStatus older, volume::StatusFromAbout(about));
  EXPECT_EQ(older.owner, security::Owner{}) << "nobody's";
}

TEST(SpillMetadata, AnOwnerThatIsNoneIsRefused) {
  const VolumeStatus volume = Volume();
  const nlohmann::json about =
      volume::AboutOf(volume, volume::MetaOf(volume, "octavo 0", "a device"));
  for (const char* damage : {"5", "[]", "{}", R"({"name": 5, "project": ""})", R"({"name": "a"})",
                             R"({"name": null, "project": null})"}) {
    nlohmann::json damaged = about;
    damaged["owner"] = nlohmann::json::parse(damage);
    EXPECT_THAT(volume::StatusFromAbout(damaged), IsError(absl::StatusCode::kDataLoss, "owner"))
        << damage;
  }
}

}  // namespace
}  // namespace octavo::engine
