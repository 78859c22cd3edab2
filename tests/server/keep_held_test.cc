#include "server/keep_held.h"

#include <algorithm>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/drain_record.h"
#include "server/engine_shelf.h"
#include "server/stop_forecast.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::drain {
namespace {

using ::octavo::testing::IsOk;
using ::octavo::testing::TempFolder;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

model::VolumeStatus Held(const std::string& name, uint64_t number, int64_t bytes = 100) {
  model::VolumeStatus volume;
  volume.name = absl::StrCat("volumes/", name);
  volume.scan = "scans/s";
  volume.number = number;
  volume.bytes = bytes;
  volume.state = model::VolumeState::kHeld;
  volume.tier = model::Tier::kDevice;
  return volume;
}

std::vector<std::string> Names(const std::vector<model::VolumeStatus>& volumes) {
  std::vector<std::string> names;
  for (const auto& volume : volumes) names.push_back(volume.name.substr(8));
  return names;
}

TEST(DrainTest, WhatWouldNotComeBackIsFirst) {
  auto plain = Held("plain", 5), older = Held("older", 2), derived = Held("derived", 1);
  auto soon = Held("soon", 1), late = Held("late", 9), marked = Held("marked", 3);
  auto scratch = Held("scratch", 1), committing = Held("committing", 1);
  derived.derived_from = "volumes/plain";
  soon.expires_seconds = 10;
  late.expires_seconds = 1000;
  marked.derived_from = "volumes/plain";
  marked.marked = true;
  scratch.job = "jobs/j";
  scratch.job_orphan = model::Orphan::kDiscard;
  committing.state = model::VolumeState::kCommitting;
  std::vector<model::VolumeStatus> volumes = {committing, soon,   late,  scratch,
                                              derived,    marked, plain, older};
  SortByWorth(&volumes);
  EXPECT_THAT(Names(volumes), ElementsAre("older", "marked", "plain", "derived", "scratch", "late",
                                          "soon", "committing"));
}

TEST(DrainTest, OnlyWhatIsCompleteAndNotOnDiskIsAtRisk) {
  auto volume = Held("a", 1);
  EXPECT_TRUE(AtRisk(volume));
  volume.tier = model::Tier::kHost;
  EXPECT_TRUE(AtRisk(volume));
  volume.tier = model::Tier::kDisk;
  EXPECT_FALSE(AtRisk(volume));
  volume.tier = model::Tier::kDevice;
  for (const auto tier : {model::Tier::kDevice, model::Tier::kHost}) {
    volume.tier = tier;
    volume.mirrored = true;
    EXPECT_FALSE(AtRisk(volume)) << "its file is there";
    volume.state = model::VolumeState::kCommitting;
    EXPECT_FALSE(AtRisk(volume)) << "whatever becomes of its commit";
    volume.state = model::VolumeState::kHeld;
    volume.mirrored = false;
    EXPECT_TRUE(AtRisk(volume));
  }
  volume.tier = model::Tier::kDevice;
  for (const auto state : {model::VolumeState::kAcquiring, model::VolumeState::kCommitted,
                           model::VolumeState::kDiscarded, model::VolumeState::kFailed}) {
    volume.state = state;
    EXPECT_FALSE(AtRisk(volume)) << Name(state);
  }
  volume.state = model::VolumeState::kCommitting;
  EXPECT_TRUE(AtRisk(volume)) << "its commit may fail";
}

TEST(DrainTest, ABoundEndsTheWritingHoweverItGoes) {
  const TimeOnClock begin{seconds(1000)};
  WriteBounds bounds(10, begin);
  EXPECT_EQ(bounds.SecondsLeft(begin), 10);
  bounds.Written(100, begin + seconds(9));
  EXPECT_EQ(bounds.Over(begin + milliseconds(9999)), "");
  EXPECT_EQ(bounds.SecondsLeft(begin + seconds(9)), 1);
  EXPECT_EQ(bounds.Over(begin + seconds(10)), "drain.spill_seconds (10) were over");
  EXPECT_EQ(bounds.SecondsLeft(begin + seconds(11)), 0);
}

TEST(DrainTest, WithoutABoundOnlyAStandstillEndsIt) {
  const TimeOnClock begin{seconds(1000)};
  const auto patience = WriteBounds::kPatience;
  WriteBounds bounds(0, begin);
  TimeOnClock now = begin;
  for (int64_t bytes = 1; bytes < 100; ++bytes) {
    now += patience - seconds(1);
    EXPECT_EQ(bounds.Over(now), "");
    bounds.Written(bytes, now);
    EXPECT_EQ(bounds.SecondsLeft(now), static_cast<double>(patience.count()));
  }
  bounds.Written(99, now + seconds(60));  // the same bytes are no progress
  EXPECT_EQ(bounds.SecondsLeft(now + seconds(60)), static_cast<double>(patience.count() - 60));
  EXPECT_EQ(bounds.Over(now + patience), "nothing was written for 120 s");
}

/// Volumes whose writing takes some looks.
class FakeShelf final : public Shelf {
 public:
  std::vector<model::VolumeStatus> Volumes() override {
    std::vector<model::VolumeStatus> all;
    for (const auto& [name, volume] : volumes) all.push_back(volume);
    return all;
  }
  bool Busy() override { return busy > 0 && busy-- > 0; }
  absl::StatusOr<std::string> Begin(const model::VolumeStatus& volume, Way way) override {
    const std::string name = Names({volume})[0];
    begun.push_back(absl::StrCat(way == Way::kCommit ? "commit " : "spill ", name));
    if (const auto it = refused.find(name); it != refused.end()) {
      const absl::Status status = it->second;
      refused.erase(it);
      return status;
    }
    const std::string operation = absl::StrCat("operations/", begun.size());
    operations[operation] = {.volume = volume.name, .way = way};
    most = std::max(most, Running());
    return operation;
  }
  absl::StatusOr<operation::OperationStatus> Look(const std::string& name) override {
    One& one = operations.at(name);
    operation::OperationStatus status{.name = name};
    const bool hangs = hang.contains(one.volume.substr(8));
    if (one.cancelled && !hangs) {
      one.over = true;
      status.state = operation::OperationState::kCancelled;
      status.error = absl::CancelledError("cancelled");
    } else if (hangs || one.looks++ < 2) {
      status.progress.done_bytes = hangs ? 0 : 50;
    } else {
      one.over = true;
      const auto failure = failures.find(
          absl::StrCat(one.way == Way::kCommit ? "commit " : "spill ", one.volume.substr(8)));
      if (failure != failures.end()) {
        status.state = operation::OperationState::kFailed;
        status.error = WithInfo(absl::ResourceExhaustedError(failure->second),
                                {.reason = Reason::kDiskFull, .field = "", .numbers = {}});
      } else {
        status.state = operation::OperationState::kSucceeded;
        if (one.way == Way::kCommit)
          volumes.erase(one.volume);
        else if (volumes.contains(one.volume))
          volumes[one.volume].tier = model::Tier::kDisk;
      }
    }
    return status;
  }
  void Cancel(const std::string& operation) override { operations.at(operation).cancelled = true; }

  void Add(const model::VolumeStatus& volume) { volumes[volume.name] = volume; }
  int Running() const {
    return static_cast<int>(std::count_if(operations.begin(), operations.end(),
                                          [](const auto& one) { return !one.second.over; }));
  }

  struct One {
    std::string volume;
    Way way = Way::kSpill;
    int looks = 0;
    bool cancelled = false, over = false;
  };
  std::map<std::string, model::VolumeStatus> volumes;
  std::map<std::string, One> operations;
  std::map<std::string, absl::Status> refused;  // volume → once
  std::map<std::string, std::string> failures;  // "spill a" → why
  std::set<std::string> hang;
  std::vector<std::string> begun;
  int busy = 0, most = 0;
};

class KeepHeldTest : public ::testing::Test {
 protected:
  Kept Keep() {
    return KeepHeld(shelf_, options_,
                    {.hurry = [this] { return ++looks_ > hurry_after_; },
                     .progress = [this](const Progress& now) { progress_.push_back(now); },
                     .at_risk = [this](const auto& volume) { at_risk_.insert(volume.name); },
                     .safe = [this](const std::string& name) { at_risk_.erase(name); }});
  }
  static std::map<std::string, std::string> Reasons(const Kept& kept) {
    std::map<std::string, std::string> reasons;
    for (const Lost& one : kept.lost) reasons[one.volume.name.substr(8)] = one.reason;
    return reasons;
  }

  FakeShelf shelf_;
  KeepOptions options_{.ways = {Way::kSpill}, .at_once = 2, .settle = milliseconds(50)};
  int looks_ = 0, hurry_after_ = 1'000'000;
  std::vector<Progress> progress_;
  std::set<std::string> at_risk_;
};

TEST_F(KeepHeldTest, WritesAllInOrderAFewAtOnce) {
  for (const char* name : {"a", "b", "c", "d", "e"}) shelf_.Add(Held(name, 10 - name[0] % 8));
  const Kept kept = Keep();
  EXPECT_THAT(kept.lost, IsEmpty());
  EXPECT_EQ(kept.volumes, 5);
  EXPECT_EQ(kept.bytes, 500);
  EXPECT_THAT(shelf_.begun, ElementsAre("spill e", "spill d", "spill c", "spill b", "spill a"));
  EXPECT_EQ(shelf_.most, 2);
  EXPECT_THAT(at_risk_, IsEmpty());
  EXPECT_EQ(progress_.back().volumes, 5);
  EXPECT_EQ(progress_.back().of_volumes, 5);
  EXPECT_EQ(progress_.back().bytes, 500);
  for (size_t i = 1; i < progress_.size(); ++i)
    EXPECT_GE(progress_[i].bytes, progress_[i - 1].bytes);
}

TEST_F(KeepHeldTest, AFailureCostsItsVolumeAlone) {
  for (const char* name : {"a", "b", "c"}) shelf_.Add(Held(name, 1));
  shelf_.failures["spill b"] = "the disk is full";
  shelf_.refused["c"] = absl::FailedPreconditionError("no such tier");
  const Kept kept = Keep();
  EXPECT_THAT(Reasons(kept), UnorderedElementsAre(std::pair("b", "the disk is full"),
                                                  std::pair("c", "no such tier")));
  EXPECT_EQ(kept.volumes, 1);
  EXPECT_THAT(at_risk_, UnorderedElementsAre("volumes/b", "volumes/c"));
}

TEST_F(KeepHeldTest, WhatIsBeingMovedIsTriedAgain) {
  shelf_.Add(Held("a", 1));
  shelf_.refused["a"] = WithInfo(absl::FailedPreconditionError("is being moved"),
                                 {.reason = Reason::kMoving, .numbers = {{"retryable", "true"}}});
  EXPECT_THAT(Keep().lost, IsEmpty());
  EXPECT_THAT(shelf_.begun, ElementsAre("spill a", "spill a"));
}

TEST_F(KeepHeldTest, AShortageOfMemoryPasses) {
  shelf_.Add(Held("a", 1));
  shelf_.refused["a"] = absl::ResourceExhaustedError("no host memory left");
  EXPECT_THAT(Keep().lost, IsEmpty());
  EXPECT_THAT(shelf_.begun, ElementsAre("spill a", "spill a"));
}

TEST_F(KeepHeldTest, WhatCannotBeCommittedIsSpilled) {
  options_.ways = {Way::kCommit, Way::kSpill};
  for (const char* name : {"a", "b", "c"}) shelf_.Add(Held(name, 1));
  shelf_.failures["commit b"] = "exists";
  shelf_.failures["commit c"] = "exists";
  shelf_.failures["spill c"] = "full";
  const Kept kept = Keep();
  EXPECT_THAT(Reasons(kept), UnorderedElementsAre(std::pair("c", "full")));
  EXPECT_EQ(kept.volumes, 2);
  EXPECT_EQ(shelf_.volumes.count("volumes/a"), 0u);
  EXPECT_EQ(shelf_.volumes.at("volumes/b").tier, model::Tier::kDisk);
}

TEST_F(KeepHeldTest, WithoutAWayAllAreLostAndNamed) {
  options_.ways.clear();
  options_.why_none = "drain.on_held is lose";
  options_.settle = {};
  for (const char* name : {"a", "b"}) shelf_.Add(Held(name, 1));
  EXPECT_THAT(Reasons(Keep()), UnorderedElementsAre(std::pair("a", "drain.on_held is lose"),
                                                    std::pair("b", "drain.on_held is lose")));
  EXPECT_THAT(shelf_.begun, IsEmpty());
}

TEST_F(KeepHeldTest, TheTimeEnds) {
  options_.seconds = 3;
  for (const char* name : {"a", "b", "c"}) shelf_.Add(Held(name, 1));
  shelf_.hang = {"a"};
  const Kept kept = Keep();
  EXPECT_THAT(Reasons(kept),
              UnorderedElementsAre(std::pair("a", "drain.spill_seconds (3) were over")));
  EXPECT_EQ(kept.volumes, 2);
  EXPECT_TRUE(shelf_.operations.at("operations/1").cancelled);
}

TEST_F(KeepHeldTest, ASecondRequestEndsItAtOnce) {
  for (const char* name : {"a", "b", "c", "d"}) shelf_.Add(Held(name, 1));
  hurry_after_ = 1;
  const Kept kept = Keep();
  EXPECT_EQ(kept.volumes, 0);
  EXPECT_EQ(kept.lost.size(), 4u);
  for (const auto& [name, reason] : Reasons(kept))
    EXPECT_EQ(reason, "the server was told a second time to end") << name;
  EXPECT_EQ(shelf_.Running(), 0);
}

TEST_F(KeepHeldTest, WaitsForWorkThatStillLeavesVolumesButNotForEver) {
  const auto settle = std::exchange(options_.settle, std::chrono::seconds(20));
  shelf_.busy = 3;
  EXPECT_THAT(Keep().lost, IsEmpty());
  EXPECT_EQ(shelf_.busy, 0);
  options_.settle = settle;
  shelf_.busy = 1'000'000;
  EXPECT_LT(Keep().seconds, 10);
}

TEST_F(KeepHeldTest, ACommitThatHangsLosesNothing) {
  auto volume = Held("a", 1);
  volume.state = model::VolumeState::kCommitting;
  shelf_.Add(volume);
  shelf_.busy = 1'000'000;
  const Kept kept = Keep();
  EXPECT_THAT(kept.lost, IsEmpty());
  EXPECT_GE(kept.seconds, 0.05) << "the commit had its chance";
  EXPECT_THAT(shelf_.begun, ElementsAre("spill a"));
}

TEST_F(KeepHeldTest, WhatAClientTakesAwayIsNotLost) {
  for (const char* name : {"a", "b"}) shelf_.Add(Held(name, 1));
  shelf_.hang = {"b"};
  hurry_after_ = 20;
  options_.at_once = 1;
  const Kept kept = KeepHeld(shelf_, options_, {.hurry = [this] {
                               if (++looks_ == 10) shelf_.volumes.erase("volumes/b");
                               return looks_ > hurry_after_;
                             }});
  EXPECT_EQ(kept.volumes, 1);
  EXPECT_THAT(kept.lost, IsEmpty());
}

TEST(DrainRecordTest, NamesWhatAKilledDaemonHadNotWritten) {
  const TempFolder folder;
  {
    DrainRecord record(folder.path());
    auto volume = Held("a", 1, 3 << 20);
    volume.title = "left \"eye\"\n";
    volume.owner.name = "ada";
    record.AtRisk(volume);
    record.AtRisk(Held("b", 2));
    record.AtRisk(Held("c", 3));
    record.AtRisk(Held("d", 4));
    record.Safe("volumes/b");
    record.Lost("volumes/d", "the disk is full");
  }  // killed here
  std::ofstream(folder / "held_at_stop.jsonl", std::ios::app) << "{\"at_risk\":\"volumes/torn";
  const auto lost = DrainRecord::ReadLost(folder.path(), {"volumes/c"});
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_THAT(
      lost[0].line,
      AllOf(StartsWith("volumes/a ("), HasSubstr("left \"eye\""), HasSubstr("3.0 MiB, of scans/s"),
            HasSubstr("was killed before it had written it to disk; owner: ada")));
  EXPECT_EQ(lost[0].name, "volumes/a");
  EXPECT_EQ(lost[0].bytes, 3 << 20);
  EXPECT_EQ(lost[0].owner, "ada");
  EXPECT_TRUE(lost[0].killed);
  EXPECT_THAT(lost[1].line, AllOf(StartsWith("volumes/d (100 B"), HasSubstr("disk is full")));
  EXPECT_EQ(lost[1].reason, "the disk is full");
  EXPECT_FALSE(lost[1].killed) << "that end said what it loses";
  EXPECT_EQ(DrainRecord::ReadLost(folder.path(), {}).size(), 3u) << "until they have been told";
  DrainRecord::Forget(folder.path());
  EXPECT_THAT(DrainRecord::ReadLost(folder.path(), {}), IsEmpty());
}

TEST(DrainRecordTest, AnEndThatLosesNothingLeavesNoFile) {
  const TempFolder folder;
  DrainRecord record(folder.path());
  record.AtRisk(Held("a", 1));
  record.Safe("volumes/a");
  record.Close();
  EXPECT_FALSE(std::ifstream(folder / "held_at_stop.jsonl").is_open());
}

TEST(DrainRecordTest, AHostileFileIsNoHarm) {
  const TempFolder folder;
  std::ofstream(folder / "held_at_stop.jsonl")
      << "[1]\n{}\nnull\n{\"at_risk\":7}\n{\"lost\":\"volumes/none\",\"reason\":\"x\"}\n"
      << std::string(100, '[') << "\n\xff\xfe\n{\"at_risk\":\"volumes/a\",\"bytes\":\"many\"}\n";
  const auto lost = DrainRecord::ReadLost(folder.path(), {});
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(lost[0].line, StartsWith("volumes/a (?"));
  EXPECT_EQ(lost[0].bytes, 0);
  // A folder where the state should be: no record, no crash.
  DrainRecord record(folder / "none");
  record.AtRisk(Held("a", 1));
  record.Close();
}

TEST(DestinationAtStopTest, NoTwoVolumesHaveOneName) {
  auto volume = Held("v1", 1);
  volume.index = 7;
  EXPECT_EQ(DestinationAtStop(volume, "/data", "npy"), "/data/held_at_stop/s_00007.npy");
  volume.is_raw = true;
  EXPECT_EQ(DestinationAtStop(volume, "/data", "npy"), "/data/held_at_stop/s_00007_raw.npy");
  volume.is_raw = false;
  volume.derived_from = "volumes/v0";
  EXPECT_EQ(DestinationAtStop(volume, "/d", "ome.zarr"), "/d/held_at_stop/s_00007_v1.ome.zarr");
  volume.derived_from = "";
  volume.job = "jobs/j";
  EXPECT_EQ(DestinationAtStop(volume, "/d", "h5"), "/d/held_at_stop/j_00007_v1.h5");
}

TEST(StopForecastTest, CountsWhatAStopWouldLose) {
  auto on_disk = Held("disk", 1), acquiring = Held("acquiring", 2);
  on_disk.tier = model::Tier::kDisk;
  acquiring.state = model::VolumeState::kAcquiring;
  const auto forecast =
      ForecastStop({Held("a", 3, 1000), Held("b", 4, 500), on_disk, acquiring}, 77, 300, 20);
  EXPECT_EQ(forecast.volumes, 2);
  EXPECT_EQ(forecast.bytes, 1500);
  EXPECT_EQ(forecast.room_bytes, 77);
  EXPECT_EQ(forecast.seconds, 5);
  EXPECT_EQ(forecast.limit_seconds, 20);
  EXPECT_EQ(ForecastStop({Held("a", 1)}, 77, 0, 20).seconds, 0) << "no rate is known";
}

TEST(StopForecastTest, TheRateIsMeasuredAndThenThatOfTheSpills) {
  const TempFolder folder;
  const auto rate = MeasureDisk(folder.path(), (1 << 20) + 7);
  ASSERT_THAT(rate.status(), IsOk());
  EXPECT_GT(*rate, 0);
  EXPECT_FALSE(MeasureDisk(folder / "none", 1).ok());
  const DiskRate none("");
  model::Stats stats;
  EXPECT_EQ(none.BytesPerSecond(stats), 0);
  stats.tiers = {{.tier = model::Tier::kDisk, .spilled_bytes = DiskRate::kEnoughBytes - 1}};
  stats.spill_seconds["DISK"].Add(4);
  EXPECT_EQ(none.BytesPerSecond(stats), 0) << "too few to tell";
  stats.tiers[0].spilled_bytes = DiskRate::kEnoughBytes;
  EXPECT_EQ(none.BytesPerSecond(stats), static_cast<double>(DiskRate::kEnoughBytes) / 4);
  // Held volumes that are to be committed go to another disk than the tier's.
  const DiskRate of_commits("", DiskRate::Of::kCommits);
  EXPECT_EQ(of_commits.BytesPerSecond(stats), 0);
  stats.commit_bytes = DiskRate::kEnoughBytes;
  stats.commit_seconds.Add(8);
  EXPECT_EQ(of_commits.BytesPerSecond(stats), static_cast<double>(DiskRate::kEnoughBytes) / 8);
}

TEST(StopForecastTest, NoMeasurementExceedsWhatAnEarlierDaemonWrote) {
  for (const double measured : {3.0, 9.0}) {
    std::promise<void> ended;
    const DiskRate rate("there", DiskRate::Of::kSpills, 5,
                        [&](const std::string&, int64_t) -> absl::StatusOr<double> {
                          ended.set_value_at_thread_exit();
                          return measured;
                        });
    ended.get_future().wait();
    EXPECT_EQ(rate.BytesPerSecond({}), std::min(measured, 5.0));
  }
  EXPECT_EQ(DiskRate("", DiskRate::Of::kSpills, 5).BytesPerSecond({}), 5);
}

TEST(StopForecastTest, ADiskThatHangsHoldsUpNoEnd) {
  std::promise<void> wakes;
  const auto hang = wakes.get_future().share();
  std::promise<void> begun, ended;
  auto rate =
      std::make_unique<DiskRate>("there", DiskRate::Of::kSpills, 0,
                                 [&, hang](const std::string&, int64_t) -> absl::StatusOr<double> {
                                   begun.set_value();
                                   hang.wait();
                                   ended.set_value_at_thread_exit();
                                   return 5.0;
                                 });
  begun.get_future().wait();
  EXPECT_EQ(rate->BytesPerSecond({}), 0);
  rate = nullptr;  // returns although the measurement does not
  wakes.set_value();
  ended.get_future().wait();
}

}  // namespace
}  // namespace octavo::drain
