// Watchers of volumes: every change that a client can see is told, and the last one told is how the
// volume is.

#include "server/volume/volume_watchers.h"

#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "server/volume/retention_ring.h"
#include "server/volume/volume_commit.h"
#include "server/volume/volume_expiry.h"
#include "server/volume/volume_store.h"
#include "server/volume/volume_tiers.h"
#include "tests/server/volume/table_fixture.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsOk;

using VolumePtr = VolumeWatchers::VolumePtr;

class VolumeWatchersTest : public TableFixture {
 protected:
  VolumeWatchersTest() { table_.AddObserver(&watchers_); }
  std::shared_ptr<void> Watch() {
    return watchers_.Watch(
        [this](ChangeKind kind, const VolumePtr& volume) { news_.emplace_back(kind, *volume); },
        [this] {
          MutexLock lock(table_.mutex());
          std::vector<VolumeStatus> all;
          for (const VolumeEntry& entry : table_.InMemory()) all.push_back(table_.StatusOf(entry));
          return all;
        });
  }
  /// The news since the last call.
  std::vector<std::pair<ChangeKind, VolumeStatus>> News() {
    watchers_.Flush();
    return std::exchange(news_, {});
  }
  /// The one change of the volume since the last call.
  VolumeStatus Change(ChangeKind kind = ChangeKind::kChanged) {
    const auto news = News();
    EXPECT_EQ(news.size(), 1u);
    if (news.empty()) return {};
    EXPECT_EQ(news[0].first, kind);
    EXPECT_EQ(news[0].second.revision, Get(news[0].second.name).revision);
    return news[0].second;
  }

  VolumeWatchers watchers_;
  std::vector<std::pair<ChangeKind, VolumeStatus>> news_;
  RetentionRing ring_{table_};
  VolumeTiers tiers_{table_};
  VolumeExpiry expiry_{table_};
};

TEST_F(VolumeWatchersTest, EachVerbIsToldOnce) {
  Held("volumes/a", {.session = "sessions/1", .of_ring = true});
  const auto watch = Watch();
  EXPECT_EQ(Change(ChangeKind::kExists).name, "volumes/a");

  ASSERT_THAT(ring_.Mark("volumes/a", 2), IsOk());
  EXPECT_TRUE(Change().marked);
  ASSERT_THAT(ring_.Mark("volumes/a", 2), IsOk());
  EXPECT_TRUE(News().empty()) << "it was held already";
  ASSERT_THAT(ring_.Unmark("volumes/a", nullptr), IsOk());
  EXPECT_FALSE(Change().kept);
  {
    ASSERT_OK_AND_ASSIGN(const VolumeHold loan, ring_.Lend("volumes/a", 2));
    EXPECT_TRUE(Change().kept);
  }
  EXPECT_FALSE(Change().kept);
  ring_.KeepAll("scans/a");
  EXPECT_TRUE(Change().kept);

  {
    ASSERT_OK_AND_ASSIGN(VolumeMove move, tiers_.BeginSpill("volumes/a"));
    EXPECT_EQ(Change().moving, Move::kSpilling);
    EXPECT_FALSE(std::move(move).Finish(absl::DataLossError("a disk")));
    const VolumeStatus failed = Change();
    EXPECT_EQ(failed.moving, Move::kNone);
    EXPECT_EQ(failed.last_error, "a disk");
  }
  {
    ASSERT_OK_AND_ASSIGN(const VolumeMove move, tiers_.BeginRelocate("volumes/a"));
    EXPECT_EQ(Change().moving, Move::kRelocating);
  }
  EXPECT_EQ(Change().moving, Move::kNone) << "an abandoned one";
  ASSERT_THAT(tiers_.BeginRestore("volumes/a"), IsOk());
  EXPECT_TRUE(News().empty()) << "it is where it should be";

  bool gone = true;
  (void)expiry_.Tick([&](const std::string&) { return gone; });
  EXPECT_TRUE(Change().orphaned);
  (void)expiry_.Tick([&](const std::string&) { return gone; });
  EXPECT_TRUE(News().empty());
  expiry_.Adopt("sessions/1");
  EXPECT_FALSE(Change().orphaned);
  expiry_.Adopt("sessions/1");
  EXPECT_TRUE(News().empty());
}

TEST_F(VolumeWatchersTest, NothingIsToldUnderTheLock) {
  Held("volumes/a", {.of_ring = true});
  const auto watch = watchers_.Watch(
      [this](ChangeKind, const VolumePtr& volume) {
        EXPECT_EQ(Get(volume->name).name, volume->name);  // takes the lock
        news_.emplace_back();
      },
      [] { return std::vector<VolumeStatus>(); });
  ASSERT_THAT(ring_.Mark("volumes/a", 2), IsOk());
  ASSERT_THAT(ring_.Unmark("volumes/a", nullptr), IsOk());
  ASSERT_THAT(tiers_.BeginSpill("volumes/a"), IsOk());
  EXPECT_EQ(News().size(), 4u);
}

TEST_F(VolumeWatchersTest, AWatchThatEndsFreesWhatItHad) {
  Held("volumes/a", {});
  const auto held = std::make_shared<int>(0);
  auto watch = watchers_.Watch([held](ChangeKind, const VolumePtr&) { ++*held; },
                               [] { return std::vector<VolumeStatus>(); });
  ASSERT_THAT(ring_.Mark("volumes/a", 2), IsOk());
  watchers_.Flush();
  EXPECT_EQ(*held, 1);
  EXPECT_GT(held.use_count(), 1);
  watch = nullptr;
  EXPECT_EQ(held.use_count(), 1);
  ASSERT_THAT(ring_.Unmark("volumes/a", nullptr), IsOk());
  watchers_.Flush();
  EXPECT_EQ(*held, 1);
}

// A thread that made a change may tell of it late.
TEST_F(VolumeWatchersTest, WhatIsToldAfterTheEndIsNotHeard) {
  Held("volumes/a", {.of_ring = true});
  ASSERT_THAT(ring_.Mark("volumes/a", 2), IsOk());
  const VolumeStatus before = Get("volumes/a");
  for (const bool told_to_someone : {false, true}) {
    std::shared_ptr<void> first;
    if (told_to_someone) first = Watch();
    VolumeStatus gone = before;
    gone.name = told_to_someone ? "volumes/b" : "volumes/c";
    VolumeStatus late = gone;
    ++gone.revision;
    gone.state = VolumeState::kDiscarded;
    watchers_.OnVolumeChanged(gone);
    (void)News();
    first = nullptr;
    const auto watch = watchers_.Watch(
        [this](ChangeKind kind, const VolumePtr& volume) { news_.emplace_back(kind, *volume); },
        [] { return std::vector<VolumeStatus>(); });
    watchers_.OnVolumeChanged(late);
    EXPECT_TRUE(News().empty());
  }
}

TEST_F(VolumeWatchersTest, WhatLeavesMemoryMovesNoMore) {
  Held("volumes/a", {});
  const auto watch = Watch();
  ASSERT_OK_AND_ASSIGN(VolumeMove move, tiers_.BeginRelocate("volumes/a"));
  (void)News();
  {
    MutexLock lock(table_.mutex());
    VolumeEntry& entry = **table_.Find("volumes/a");
    (void)table_.Leave(entry, VolumeState::kDiscarded, Reason::kDiscarded, "", "discarded");
    EXPECT_EQ(table_.StatusOf(entry).moving, Move::kNone);
  }
  EXPECT_FALSE(std::move(move).Finish(VolumeBytes{}));
}

// Threads make changes of the same volumes while watches begin and end.
TEST_F(VolumeWatchersTest, WhatIsToldLastIsHowTheVolumesAre) {
  VolumeStore store(&ledger_, &clock_);
  VolumeWatchers watchers;
  store.AddObserver(&watchers);
  constexpr int kVolumes = 12;
  const auto name = [](size_t i) { return "volumes/" + std::to_string(i); };
  for (size_t i = 0; i < kVolumes; ++i) {
    VolumeStatus volume;
    volume.name = name(i);
    volume.scan = "scans/a";
    store.Add(volume, Slot(), 0);
    store.Seal(volume, /*kept=*/false);
  }
  struct Seen {
    Mutex mutex;
    std::map<std::string, VolumeStatus> last ABSL_GUARDED_BY(mutex);
    std::map<std::string, int> gone ABSL_GUARDED_BY(mutex);
  };
  std::vector<std::shared_ptr<Seen>> all;
  std::vector<std::shared_ptr<void>> watches;
  const auto begin = [&] {
    auto seen = std::make_shared<Seen>();
    watches.push_back(watchers.Watch(
        [seen](ChangeKind kind, const VolumePtr& volume) {
          MutexLock lock(seen->mutex);
          EXPECT_LE(seen->last[volume->name].revision, volume->revision);
          EXPECT_EQ(seen->gone[volume->name], 0) << "gone is the last";
          seen->gone[volume->name] += kind == ChangeKind::kGone;
          seen->last[volume->name] = *volume;
        },
        [&] { return store.List({.in_memory = true}); }));
    all.push_back(seen);
  };
  begin();
  const uint32_t seed = FreshSeed();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      for (int i = 0; i < 2000; ++i) {
        const std::string which = name(random() % kVolumes);
        switch (random() % 6) {
          case 0: (void)store.ring().Mark(which, kVolumes); break;
          case 1: (void)store.ring().Unmark(which, nullptr); break;
          case 2: (void)store.tiers().BeginRelocate(which); break;
          case 3: (void)store.ring().Lend(which, kVolumes); break;
          case 4:
            if (auto commit = store.BeginCommit(which); commit.ok())
              std::move(*commit).Finish(absl::DataLossError("by the test"));
            break;
          default:
            if (random() % 100 == 0) (void)store.Discard(which, Reason::kDiscarded, "by the test");
        }
      }
    });
  }
  for (int i = 0; i < 20; ++i) begin();
  for (std::thread& thread : threads) thread.join();
  watchers.Flush();
  for (const auto& seen : all) {
    MutexLock lock(seen->mutex);
    for (size_t i = 0; i < kVolumes; ++i) {
      const VolumeStatus now = *store.Get(name(i));
      const auto it = seen->last.find(now.name);
      if (it == seen->last.end()) {
        EXPECT_EQ(now.state, VolumeState::kDiscarded) << "gone before the watch began";
        continue;
      }
      EXPECT_EQ(it->second.revision, now.revision) << now.name;
      EXPECT_EQ(it->second.state, now.state);
      EXPECT_EQ(it->second.kept, now.kept);
      EXPECT_EQ(it->second.moving, now.moving);
      EXPECT_EQ(seen->gone[now.name], now.state == VolumeState::kDiscarded ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace octavo::engine
