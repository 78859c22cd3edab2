#include "server/volume/volume_expiry.h"

#include "tests/server/volume/table_fixture.h"

namespace octavo::engine {
namespace {

class VolumeExpiryTest : public TableFixture {
 protected:
  VolumeExpiry::Due Tick() {
    return expiry_.Tick([this](const std::string& session) {
      ++asked_;
      return session == gone_;
    });
  }
  static std::vector<std::string> Names(const std::vector<VolumeStatus>& volumes) {
    std::vector<std::string> names;
    names.reserve(volumes.size());
    for (const VolumeStatus& volume : volumes) names.push_back(volume.name);
    return names;
  }
  std::string gone_;
  int asked_ = 0;
  VolumeExpiry expiry_{table_};
};

using Volumes = std::vector<std::string>;

TEST_F(VolumeExpiryTest, AVolumeIsWarnedOfOnceAndThenDiscarded) {
  const auto slot = Held("volumes/a", {.ttl_seconds = 10, .ttl_warning_seconds = 3});
  Held("volumes/marked", {.ttl_seconds = 10});
  Held("volumes/moving", {.ttl_seconds = 10});
  Held("volumes/forever", {});
  With("volumes/marked", [](VolumeEntry& entry) { entry.marked = true; });
  With("volumes/moving", [](VolumeEntry& entry) { entry.moving = Move::kSpilling; });
  clock_.Advance(6);
  EXPECT_TRUE(Tick().warned.empty());
  clock_.Advance(2);
  const auto warned = Tick().warned;
  ASSERT_EQ(Names(warned), Volumes{"volumes/a"});
  EXPECT_NEAR(warned[0].expires_seconds, 2, 1e-6);
  EXPECT_TRUE(Tick().warned.empty());
  clock_.Advance(3);
  EXPECT_EQ(Names(Tick().expired), Volumes{"volumes/a"});
  EXPECT_TRUE(slot.expired());
  EXPECT_EQ(Get("volumes/a").reason, "its time to live of 10 s was over");
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_TRUE(Tick().expired.empty());
}

TEST_F(VolumeExpiryTest, ALeaseKeepsAVolumeWhoseTimeIsOver) {
  LeaseTable leases(&clock_);
  table_.SetProtections({.leases = &leases, .mappings = nullptr});
  Held("volumes/a", {.ttl_seconds = 10});
  const auto lease = leases.TryAcquire({.resource = "volumes/a", .holder = "a viewer"});
  clock_.Advance(11);
  EXPECT_TRUE(Tick().expired.empty());
  ASSERT_TRUE(leases.Release(lease->token).ok());
  EXPECT_EQ(Names(Tick().expired), Volumes{"volumes/a"});
}

TEST_F(VolumeExpiryTest, AnOrphanIsToldOnceUnlessItIsToBeToldAgain) {
  Held("volumes/a", {.session = "sessions/a"});
  Held("volumes/b", {.session = "sessions/a"});
  Held("volumes/c", {.session = "sessions/c"});
  EXPECT_TRUE(Tick().orphans.empty());
  EXPECT_EQ(asked_, 2) << "each session once";
  gone_ = "sessions/a";
  EXPECT_EQ(Names(Tick().orphans), (Volumes{"volumes/a", "volumes/b"}));
  EXPECT_TRUE(Tick().orphans.empty());
  expiry_.TellOrphanAgain("volumes/b");
  expiry_.TellOrphanAgain("volumes/none");
  EXPECT_EQ(Names(Tick().orphans), Volumes{"volumes/b"});
  EXPECT_TRUE(Get("volumes/a").orphaned);
  expiry_.Adopt("sessions/a");
  EXPECT_FALSE(Get("volumes/a").orphaned);
}

}  // namespace
}  // namespace octavo::engine
