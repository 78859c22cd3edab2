#include "server/engine/earlier_runs.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/history_recorder.h"
#include "server/engine/history_rows.h"
#include "server/engine/volume_recorder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using storage::HistoryKind;
using storage::HistoryRow;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TimePoint kNow{.monotonic_ns = 5'000'000'000, .unix_ns = 1'800'000'000'000'000'000};

model::ScanStatus Scan() {
  model::ScanStatus scan;
  scan.name = "scans/abc-1";
  scan.number = 7;
  scan.spec.request_id = "mine";
  scan.spec.request_digest = "digest\nowner:uid:1\nsessions/s1";
  scan.spec.session = "sessions/s1";
  scan.spec.title = "eye";
  scan.spec.labels = {{"eye", "OD"}};
  scan.spec.subject.id = "patient 12";
  scan.spec.source = model::PushSource{};
  scan.spec.queue.name = "main";
  scan.spec.owner = {.name = "uid:1", .project = "retina"};
  scan.state = model::ScanState::kRunning;
  scan.created = {.monotonic_ns = 1, .unix_ns = kNow.unix_ns - 60'000'000'000};
  scan.started = scan.created;
  scan.records = 1234;
  scan.volumes_done = 3;
  scan.clipped_above = 9;
  scan.device = "devices/0";
  scan.warnings = {"mind the gap"};
  return scan;
}

job::JobStatus Job(job::JobState state) {
  job::JobStatus job;
  job.name = "jobs/abc-2";
  job.number = 4;
  job.kind = job::JobKind::kReprocess;
  job.spec.request_id = "mine";
  job.spec.request_digest = "digest";
  job.spec.caller.principal.name = "uid:1";
  job.state = state;
  job.reason_code = state == job::JobState::kFailed ? Reason::kNoVolume : Reason::kCompleted;
  job.reason = "as it is";
  if (state == job::JobState::kFailed) job.error = absl::NotFoundError("as it is");
  job.created = {.monotonic_ns = 1, .unix_ns = kNow.unix_ns - 60'000'000'000};
  job.volumes = {"volumes/v1"};
  job.commits = {"/data/b.npy", "/data/a.npy"};
  job.commit_failures = 2;
  return job;
}

volume::CommitNews Commit(const std::string& operation) {
  return {.volume = "volumes/v1",
          .title = "eye",
          .scan = "scans/abc-1",
          .destination = "a/b.npy",
          .commit_id = "v1",
          .origin = {.operation = operation,
                     .request_id = operation.empty() ? "" : "mine",
                     .request_digest = LastingDigest("body", ""),
                     .owner = {.name = "uid:1", .project = ""}},
          .begun = {.monotonic_ns = 1, .unix_ns = kNow.unix_ns - 1'000'000'000}};
}

model::VolumeStatus Volume(const std::string& name,
                           model::VolumeState state = model::VolumeState::kHeld) {
  model::VolumeStatus volume;
  volume.name = name;
  volume.title = "eye";
  volume.scan = "scans/abc-1";
  volume.index = 3;
  volume.shape[0] = 4;
  volume.bytes = 3 << 20;
  volume.owner = {.name = "uid:1", .project = "retina"};
  volume.labels = {{"patient", "12"}};
  volume.state = state;
  volume.kept = true;
  volume.held_unix_ns = kNow.unix_ns - 60'000'000'000;
  return volume;
}

HistoryRow VolumeRow(const std::string& name, uint64_t number = 1) {
  return RowOf(Volume(name), number);
}

TEST(HistoryRows, AScanComesBack) {
  model::ScanStatus scan = Scan();
  scan.state = model::ScanState::kDone;
  scan.reason_code = Reason::kCompleted;
  scan.reason = "all volumes were made";
  scan.ended = {.monotonic_ns = 2, .unix_ns = kNow.unix_ns - 30'000'000'000};
  const HistoryRow row = RowOf(scan);
  EXPECT_TRUE(row.ended);
  EXPECT_THAT(row.details, ::testing::Not(HasSubstr("patient"))) << "subjects are confidential";
  const model::ScanStatus back = EarlierScan(row, kNow);
  EXPECT_TRUE(back.earlier_run);
  EXPECT_EQ(back.name, scan.name);
  EXPECT_EQ(back.number, 7u);
  EXPECT_EQ(back.state, model::ScanState::kDone);
  EXPECT_EQ(back.reason_code, Reason::kCompleted);
  EXPECT_EQ(back.reason, scan.reason);
  EXPECT_EQ(back.spec.title, "eye");
  EXPECT_EQ(back.spec.labels, scan.spec.labels);
  EXPECT_EQ(back.spec.owner, scan.spec.owner);
  EXPECT_EQ(back.spec.queue.name, "main");
  EXPECT_TRUE(std::holds_alternative<model::PushSource>(back.spec.source));
  EXPECT_EQ(back.records, 1234);
  EXPECT_EQ(back.volumes_done, 3);
  EXPECT_EQ(back.clipped_above, 9);
  EXPECT_EQ(back.warnings, scan.warnings);
  EXPECT_EQ(back.created.unix_ns, scan.created.unix_ns);
  EXPECT_EQ(back.ended.monotonic_ns - back.created.monotonic_ns, 30'000'000'000);
}

TEST(HistoryRows, AJobComesBack) {
  for (const auto state :
       {job::JobState::kDone, job::JobState::kFailed, job::JobState::kCancelled}) {
    const job::JobStatus back = EarlierJob(RowOf(Job(state)), kNow);
    EXPECT_EQ(back.state, state);
    EXPECT_EQ(back.kind, job::JobKind::kReprocess);
    EXPECT_EQ(back.reason, "as it is");
    if (state == job::JobState::kFailed) {
      EXPECT_THAT(back.error, IsError(absl::StatusCode::kNotFound, "as it is"));
      EXPECT_EQ(InfoOf(back.error).reason, Reason::kNoVolume);
    } else {
      EXPECT_THAT(back.error, IsOk());
    }
    // One that failed or was cancelled has those that it had completed before.
    EXPECT_THAT(back.volumes, ElementsAre("volumes/v1"));
    EXPECT_THAT(back.commits, ElementsAre("/data/b.npy", "/data/a.npy"));
    EXPECT_EQ(back.commit_failures, 2);
  }
}

TEST(HistoryRows, ACommitComesBack) {
  const absl::StatusOr<storage::CommitOutcome> good = storage::CommitOutcome{
      .path = "/data/a/b.npy", .format = storage::Format::kNpy, .raw_bytes = 5, .checksum = "c"};
  const auto done = EarlierCommit(RowOf(Commit("operations/o"), 3, &good, kNow), kNow);
  EXPECT_EQ(done.state, operation::OperationState::kSucceeded);
  EXPECT_EQ(done.target, "volumes/v1");
  ASSERT_TRUE(done.commit.has_value());
  EXPECT_EQ(done.commit->path, "/data/a/b.npy");
  EXPECT_EQ(done.commit->format, storage::Format::kNpy);
  EXPECT_EQ(done.elapsed_seconds, 1);
  const absl::StatusOr<storage::CommitOutcome> bad =
      WithInfo(absl::ResourceExhaustedError("full"),
               {.reason = Reason::kDiskFull, .field = "", .numbers = {}});
  const auto failed = EarlierCommit(RowOf(Commit("operations/o"), 3, &bad, kNow), kNow);
  EXPECT_EQ(failed.state, operation::OperationState::kFailed);
  EXPECT_THAT(failed.error, IsError(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_EQ(InfoOf(failed.error).reason, Reason::kDiskFull);
  const absl::StatusOr<storage::CommitOutcome> stopped = absl::CancelledError("stop");
  EXPECT_EQ(EarlierCommit(RowOf(Commit("operations/o"), 3, &stopped, kNow), kNow).state,
            operation::OperationState::kCancelled);
}

TEST(HistoryRows, DetailsThatAreNotOursAreLeftOut) {
  HistoryRow row = RowOf(Scan());
  for (const char* details :
       {"", "no JSON", "[1]", R"({"records": "many", "labels": 3, "warnings": [1, "a"]})"}) {
    row.details = details;
    EXPECT_EQ(EarlierScan(row, kNow).records, 0) << details;
    row.kind = HistoryKind::kJob;
    EXPECT_EQ(EarlierJob(row, kNow).kind, job::JobKind::kNone);
    EXPECT_EQ(EarlierCommit(row, kNow).target, "");
  }
}

TEST(SettleEarlier, WhatHadNoEndIsLost) {
  model::ScanStatus done = Scan();
  done.state = model::ScanState::kDone;
  std::vector<HistoryRow> rows = {RowOf(Scan()), RowOf(Job(job::JobState::kQueued)),
                                  RowOf(Commit("operations/o"), 1, nullptr, kNow), RowOf(done)};
  rows[3].name = "scans/done";
  const Settled settled = SettleEarlier(&rows, {}, kNow);
  EXPECT_EQ(settled.changed.size(), 3u);
  EXPECT_EQ(settled.lost, (std::map<std::string, int64_t>{
                              {"scan", 1}, {"job", 1}, {"commit", 1}, {"volume", 0}}));
  EXPECT_THAT(settled.lines, ElementsAre(HasSubstr("scans/abc-1 (scan 'eye', was RUNNING): LOST"),
                                         HasSubstr("jobs/abc-2"), HasSubstr("operations/o")));
  EXPECT_EQ(rows[3].state, "DONE");
  const EarlierRuns earlier(rows, kNow);
  const auto* scan = earlier.FindScan("scans/abc-1");
  ASSERT_NE(scan, nullptr);
  EXPECT_EQ(scan->state, model::ScanState::kLost);
  EXPECT_EQ(scan->reason_code, Reason::kLost);
  EXPECT_EQ(scan->ended.unix_ns, kNow.unix_ns);
  EXPECT_EQ(earlier.FindJob("jobs/abc-2")->state, job::JobState::kLost);
  EXPECT_THAT(earlier.FindJob("jobs/abc-2")->volumes, IsEmpty());
  const auto* commit = earlier.FindCommit("operations/o");
  ASSERT_NE(commit, nullptr);
  EXPECT_EQ(commit->state, operation::OperationState::kFailed);
  EXPECT_EQ(InfoOf(commit->error).reason, Reason::kLost);
  // Once.
  EXPECT_THAT(SettleEarlier(&rows, {}, kNow).changed, IsEmpty());
}

TEST(SettleEarlier, ACommitWhoseFilesAreThereHasSucceeded) {
  std::vector<HistoryRow> rows = {RowOf(Commit("operations/o"), 1, nullptr, kNow)};
  const Settled settled =
      SettleEarlier(&rows,
                    {{.commit_id = "v0", .path = "/data/0.npy"},
                     {.commit_id = "v1", .path = "/data/a/b.npy", .format = storage::Format::kNpy}},
                    kNow);
  EXPECT_EQ(settled.lost.at("commit"), 0);
  EXPECT_THAT(settled.lines, IsEmpty());
  EXPECT_EQ(settled.changed, rows);
  const EarlierRuns earlier(rows, kNow);
  EXPECT_EQ(earlier.FindCommit("operations/o")->state, operation::OperationState::kSucceeded);
  EXPECT_EQ(earlier.FindCommit("operations/o")->commit->path, "/data/a/b.npy");
}

TEST(SettleEarlier, TheFilesOfACommitSayWhatTheJournalHasForgotten) {
  std::vector<HistoryRow> rows = {RowOf(Commit("operations/o"), 1, nullptr, kNow)};
  std::vector<HistoryRow> again = rows;
  const Settled settled = SettleEarlier(
      &rows, {}, kNow,
      [](const std::string& commit, const std::string& volume, const std::string& destination) {
        EXPECT_EQ(volume + " " + destination,
                  Commit("operations/o").volume + " " + Commit("operations/o").destination);
        return storage::PublishedCommit{
            .commit_id = commit, .path = "/data/a/b.npy", .format = storage::Format::kNpy};
      });
  EXPECT_EQ(settled.lost.at("commit"), 0);
  EXPECT_EQ(EarlierRuns(rows, kNow).FindCommit("operations/o")->commit->path, "/data/a/b.npy");
  EXPECT_EQ(SettleEarlier(&again, {}, kNow,
                          [](const auto&, const auto&, const auto&) { return std::nullopt; })
                .lost.at("commit"),
            1);
}

TEST(SettleEarlier, AHeldVolumeIsLostAndSaysWhatItWas) {
  std::vector<HistoryRow> rows = {RowOf(Scan()), VolumeRow("volumes/v1")};
  EXPECT_THAT(rows[1].details, ::testing::Not(HasSubstr("patient")))
      << "labels may be confidential";
  const Settled settled = SettleEarlier(&rows, {}, kNow);
  EXPECT_EQ(settled.lost.at("volume"), 1);
  ASSERT_EQ(settled.lost_volumes.size(), 1u);
  EXPECT_EQ(BytesOfVolume(settled.lost_volumes[0]), 3 << 20);
  EXPECT_EQ(settled.lost_volumes[0].owner, "uid:1");
  EXPECT_THAT(settled.lines.back(), EndsWith("; owner: uid:1"));
  EXPECT_THAT(
      settled.lines.back(),
      HasSubstr(
          "volumes/v1 (volume 'eye', 3.0 MiB, of scans/abc-1, was HELD): LOST: the server died"));
  EXPECT_THAT(settled.lines.back(), HasSubstr("or spill.dir named another folder then"));
  const EarlierRuns earlier(rows, kNow);
  const absl::Status lost = earlier.FindVolume("volumes/v1");
  EXPECT_THAT(lost,
              IsError(absl::StatusCode::kDataLoss,
                      "volumes/v1 is LOST ('eye', 3.0 MiB, of scans/abc-1, held since 2027-01"));
  EXPECT_EQ(InfoOf(lost).reason, Reason::kLost);
  EXPECT_THAT(InfoOf(lost).numbers, ElementsAre(::testing::Pair("volume", "volumes/v1")));
  EXPECT_THAT(earlier.FindVolume("volumes/v2"), IsOk()) << "nothing is known of it";
  EXPECT_THAT(earlier.FindScan("scans/abc-1")->warnings,
              ElementsAre("mind the gap", HasSubstr("1 held volume of it is LOST")));
  // Once.
  EXPECT_THAT(SettleEarlier(&rows, {}, kNow).changed, IsEmpty());
  // Its disk was not there, and is back.
  const Settled again =
      SettleEarlier(&rows, {}, kNow, nullptr, {.held = {"volumes/v1"}, .lost_at_stop = {}});
  ASSERT_EQ(again.changed.size(), 1u);
  EXPECT_EQ(again.changed[0], VolumeRow("volumes/v1"));
  EXPECT_THAT(again.lines, IsEmpty());
  const EarlierRuns regained(rows, kNow);
  EXPECT_THAT(regained.FindVolume("volumes/v1"), IsOk());
  EXPECT_THAT(regained.FindScan("scans/abc-1")->warnings, ElementsAre("mind the gap"));
}

TEST(SettleEarlier, WhatIsHeldAgainOrCommittedIsNotLost) {
  const absl::StatusOr<storage::CommitOutcome> good =
      storage::CommitOutcome{.path = "/data/b.npy", .format = storage::Format::kNpy};
  volume::CommitNews ended = Commit("operations/o"), under_way = Commit("operations/p");
  ended.volume = "volumes/ended";
  ended.commit_id = "ended";
  under_way.volume = "volumes/found";
  under_way.commit_id = "found";
  volume::CommitNews own = Commit("");  // AUTO_COMMIT
  own.volume = own.commit_id = "volumes/own";
  std::vector<HistoryRow> rows = {
      VolumeRow("volumes/held", 1),       VolumeRow("volumes/ended", 2),
      VolumeRow("volumes/found", 3),      VolumeRow("volumes/own", 4),
      VolumeRow("volumes/unrecorded", 5), VolumeRow("volumes/failed", 6),
      RowOf(ended, 1, &good, kNow),       RowOf(under_way, 2, nullptr, kNow),
      RowOf(own, 3, &good, kNow)};
  const Settled settled =
      SettleEarlier(&rows,
                    {{.commit_id = "found", .path = "/data/found.npy"},
                     {.commit_id = "unrecorded", .path = "/data/unrecorded.npy"}},
                    kNow, nullptr, {.held = {"volumes/held"}, .lost_at_stop = {}});
  EXPECT_EQ(settled.lost.at("volume"), 1);
  EXPECT_THAT(settled.lines, ElementsAre(HasSubstr("volumes/failed")));
  const EarlierRuns earlier(rows, kNow);
  EXPECT_THAT(earlier.FindVolume("volumes/held"), IsOk());
  ASSERT_EQ(earlier.held().size(), 1u);
  EXPECT_EQ(earlier.held()[0].name, "volumes/held");
  EXPECT_FALSE(earlier.held()[0].ended);
  for (const auto& [name, path] :
       {std::pair{"volumes/ended", "/data/b.npy"}, std::pair{"volumes/found", "/data/found.npy"},
        std::pair{"volumes/own", "/data/b.npy"},
        std::pair{"volumes/unrecorded", "/data/unrecorded.npy"}}) {
    const absl::Status gone = earlier.FindVolume(name);
    EXPECT_THAT(gone, IsError(absl::StatusCode::kNotFound,
                              absl::StrCat(name, " has left memory: COMMITTED (", path, ")")));
    EXPECT_EQ(InfoOf(gone).reason, Reason::kVolumeGone);
    EXPECT_THAT(InfoOf(gone).numbers, ElementsAre(::testing::Pair("state", "COMMITTED")));
  }
  EXPECT_EQ(earlier.LastNumber(HistoryKind::kVolume), 6u);
}

TEST(EarlierRuns, ACommitTellsOfAVolumeThatHadNoRow) {
  const absl::StatusOr<storage::CommitOutcome> good =
      storage::CommitOutcome{.path = "/data/b.npy", .format = storage::Format::kNpy};
  const EarlierRuns earlier({RowOf(Commit("operations/o"), 1, &good, kNow)}, kNow);
  EXPECT_THAT(earlier.FindVolume("volumes/v1"),
              IsError(absl::StatusCode::kNotFound, "COMMITTED (/data/b.npy), in an earlier run"));
}

volume::CommitNews CommitFor(const std::string& job, const std::string& volume) {
  volume::CommitNews commit = Commit("");
  commit.job = job;
  commit.volume = absl::StrCat("volumes/", volume);
  commit.commit_id = volume;
  commit.destination = absl::StrCat(volume, ".npy");
  return commit;
}

TEST(SettleEarlier, ALostJobHasItsVolumesThatWereHeld) {
  job::JobStatus job = Job(job::JobState::kRunning);
  job.volumes = {"volumes/committed", "volumes/held", "volumes/gone", "volumes/found",
                 "volumes/half"};
  std::vector<HistoryRow> rows = {RowOf(job), VolumeRow("volumes/gone", 1),
                                  VolumeRow("volumes/held", 2), VolumeRow("volumes/of_others", 3)};
  const Settled settled =
      SettleEarlier(&rows, {{.commit_id = "committed", .path = "/data/c.npy"}}, kNow, nullptr,
                    {.held = {"volumes/held", "volumes/found", "volumes/last"},
                     .held_of_jobs = {{job.name, {"volumes/found", "volumes/last"}}},
                     .lost_at_stop = {}});
  EXPECT_THAT(EarlierRuns(rows, kNow).FindJob(job.name)->volumes,
              ElementsAre("volumes/committed", "volumes/held", "volumes/gone", "volumes/found",
                          "volumes/last"))
      << "in the order of the job, without the one that was not complete";
  // The row that is written again says the same.
  std::vector<HistoryRow> written = settled.changed;
  ASSERT_EQ(std::erase_if(written, [](const auto& row) { return row.kind != HistoryKind::kJob; }),
            settled.changed.size() - 1);
  EXPECT_EQ(written[0], rows[0]);
  EXPECT_THAT(SettleEarlier(&rows, {}, kNow, nullptr, {.held = {"volumes/held"}}).changed,
              IsEmpty());
}

TEST(SettleEarlier, AJobHasTheCommitsThatItsRowLacks) {
  const auto good = [](const char* path) {
    return absl::StatusOr<storage::CommitOutcome>(storage::CommitOutcome{.path = path});
  };
  const absl::StatusOr<storage::CommitOutcome> bad = absl::ResourceExhaustedError("full");
  for (const auto state : {job::JobState::kRunning, job::JobState::kDone}) {
    job::JobStatus job = Job(state);
    volume::CommitNews asked = CommitFor(job.name, "asked");
    asked.origin.operation = "operations/o";  // a client's, which is not the job's
    volume::CommitNews begun = CommitFor(job.name, "first");
    begun.origin.operation = "operations/p";  // of the job's request
    begun.origin.request_id = begun.origin.request_digest = "";
    const auto first = good("/data/first.npy"), known = good("/data/a.npy"),
               of_asked = good("/data/asked.npy"), of_others = good("/data/others.npy");
    std::vector<HistoryRow> rows = {
        RowOf(CommitFor(job.name, "cut"), 4, nullptr, kNow),
        RowOf(CommitFor(job.name, "late"), 3, nullptr, kNow),
        RowOf(begun, 2, &first, kNow),
        RowOf(CommitFor(job.name, "known"), 1, &known, kNow),
        RowOf(CommitFor(job.name, "failed"), 5, &bad, kNow),  // its row has counted that
        RowOf(CommitFor("jobs/other", "others"), 6, &of_others, kNow),
        RowOf(asked, 7, &of_asked, kNow),
        RowOf(job)};
    const Settled settled =
        SettleEarlier(&rows, {{.commit_id = "late", .path = "/data/late.npy"}}, kNow);
    const EarlierRuns earlier(rows, kNow);
    const job::JobStatus& back = *earlier.FindJob(job.name);
    EXPECT_THAT(back.commits,
                ElementsAre("/data/b.npy", "/data/a.npy", "/data/first.npy", "/data/late.npy"));
    EXPECT_EQ(back.commit_failures, 3);
    EXPECT_THAT(back.warnings,
                ElementsAre("volumes/cut was not committed to cut.npy: the server died before its "
                            "end"));
    EXPECT_EQ(std::count(settled.changed.begin(), settled.changed.end(), rows.back()), 1);
    // Once.
    EXPECT_THAT(SettleEarlier(&rows, {}, kNow).changed, IsEmpty());
  }
}

TEST(SettleEarlier, AJobIsNotFloodedWithWarnings) {
  job::JobStatus job = Job(job::JobState::kDone);
  std::vector<HistoryRow> rows = {RowOf(job)};
  for (int i = 0; i < 100; ++i)
    rows.push_back(RowOf(CommitFor(job.name, absl::StrCat("v", i)), i, nullptr, kNow));
  (void)SettleEarlier(&rows, {}, kNow);
  const EarlierRuns earlier(rows, kNow);
  EXPECT_EQ(earlier.FindJob(job.name)->commit_failures, 102);
  EXPECT_EQ(earlier.FindJob(job.name)->warnings.size(), job::kJobWarningsKept);
}

TEST(SettleEarlier, WhatAStopHasToldIsNotToldTwice) {
  std::vector<HistoryRow> rows = {VolumeRow("volumes/v1"), VolumeRow("volumes/v2", 2)};
  const Settled settled = SettleEarlier(
      &rows, {}, kNow, nullptr,
      {.held = {}, .lost_at_stop = {{"volumes/v1", "the disk is full"}, {"volumes/none", "x"}}});
  EXPECT_THAT(settled.lines, ElementsAre(HasSubstr("volumes/v2")));
  EXPECT_EQ(settled.lost.at("volume"), 1);
  EXPECT_EQ(settled.changed.size(), 2u);
  EXPECT_THAT(EarlierRuns(rows, kNow).FindVolume("volumes/v1"),
              IsError(absl::StatusCode::kDataLoss, "the disk is full"));
}

TEST(SettleEarlier, PlantedRowsOfVolumesAreNoHarm) {
  std::vector<HistoryRow> rows;
  for (const char* name : {"scans/abc-1", "operations/o", "volumes/v1"})
    rows.push_back(VolumeRow(name));
  for (const char* details :
       {"", "no JSON", "[1]", R"({"parent": 7, "bytes": "many", "path": [1]})"}) {
    rows.push_back(VolumeRow(absl::StrCat("volumes/d", rows.size())));
    rows.back().details = details;
    rows.back().started_unix_ns = -1;
    rows.push_back(VolumeRow(absl::StrCat("volumes/e", rows.size())));
    rows.back().details = details;
    rows.back().ended = true;
    rows.back().state = "??";
  }
  const Settled settled = SettleEarlier(&rows, {}, kNow);
  EXPECT_EQ(settled.lost.at("volume"), 5);
  const EarlierRuns earlier(rows, kNow);
  EXPECT_EQ(earlier.FindScan("scans/abc-1"), nullptr);
  EXPECT_THAT(earlier.FindVolume("scans/abc-1"), IsOk()) << "no volume has such a name";
  for (const HistoryRow& row : rows) EXPECT_FALSE(earlier.FindVolume(row.name).ok()) << row.name;
}

TEST(EarlierRuns, AnswersRequests) {
  std::vector<HistoryRow> rows = {RowOf(Scan()), RowOf(Commit("operations/o"), 1, nullptr, kNow),
                                  RowOf(Commit(""), 2, nullptr, kNow)};
  (void)SettleEarlier(&rows, {}, kNow);
  const EarlierRuns earlier(rows, kNow);
  const std::string digest = LastingDigest("digest\nowner:uid:1\nsessions/s2", "sessions/s2");
  const auto answer = [&](HistoryKind kind, const std::string& id, const std::string& of) {
    return earlier.AnswerTo(kind, id, of, std::nullopt);
  };
  EXPECT_EQ(*answer(HistoryKind::kScan, "mine", digest), "scans/abc-1")
      << "the session of a retry is another one";
  EXPECT_EQ(*answer(HistoryKind::kScan, "other", digest), "");
  EXPECT_EQ(*answer(HistoryKind::kScan, "", digest), "");
  EXPECT_EQ(*answer(HistoryKind::kJob, "mine", digest), "");
  const auto mismatch = answer(HistoryKind::kScan, "mine", LastingDigest("another", ""));
  EXPECT_THAT(mismatch, IsError(absl::StatusCode::kAlreadyExists, "scans/abc-1"));
  EXPECT_EQ(InfoOf(mismatch.status()).reason, Reason::kIdempotencyMismatch);
  // A commit's owner is beside its body.
  operation::RequestKey key{.id = "mine", .body = "body", .owner = {.name = "uid:1"}};
  EXPECT_EQ(*EarlierCommitOf(earlier, key), "operations/o");
  key.owner.name = "uid:2";
  EXPECT_THAT(EarlierCommitOf(earlier, key),
              IsError(absl::StatusCode::kAlreadyExists, "operations/o"));
  // An id that is used again, after its operation was forgotten, answers with what came last.
  std::vector<HistoryRow> twice = {RowOf(Commit("operations/a"), 1, nullptr, kNow),
                                   RowOf(Commit("operations/b"), 2, nullptr, kNow)};
  KeepNewest({.kept = 10, .days = 0}, kNow, &twice);
  key.owner.name = "uid:1";
  EXPECT_EQ(*EarlierCommitOf(EarlierRuns(twice, kNow), key), "operations/b");
  EXPECT_EQ(earlier.LastNumber(HistoryKind::kScan), 7u);
  EXPECT_EQ(earlier.LastNumber(HistoryKind::kJob), 0u);
  EXPECT_EQ(earlier.Commits().size(), 1u) << "the server's own commits are no operations";
}

TEST(EarlierRuns, ListsTheNewestFirst) {
  std::vector<HistoryRow> rows;
  for (uint64_t n = 1; n <= 5; ++n) {
    rows.push_back(RowOf(Scan()));
    rows.back().name = absl::StrCat("scans/", n);
    rows.back().number = n;
  }
  (void)SettleEarlier(&rows, {}, kNow);
  const EarlierRuns earlier(rows, kNow);
  const auto numbers = [&](uint64_t before, size_t most) {
    std::vector<uint64_t> out;
    for (const auto& scan : earlier.Scans(before, most)) out.push_back(scan.number);
    return out;
  };
  EXPECT_THAT(numbers(100, 3), ElementsAre(5, 4, 3));
  EXPECT_THAT(numbers(3, 100), ElementsAre(2, 1));
  EXPECT_THAT(numbers(1, 100), IsEmpty());
  EXPECT_THAT(numbers(100, 0), IsEmpty());
}

TEST(KeepNewest, BoundsTheirNumberAndAge) {
  std::vector<HistoryRow> rows;
  for (uint64_t n = 1; n <= 5; ++n) {
    for (const auto kind : {HistoryKind::kScan, HistoryKind::kJob}) {
      rows.push_back({.kind = kind,
                      .name = absl::StrCat(Name(kind), n),
                      .number = n,
                      .ended = true,
                      .ended_unix_ns = static_cast<int64_t>(n) * 86'400'000'000'000});
    }
  }
  const auto names = [&] {
    std::vector<std::string> out;
    for (const HistoryRow& row : rows) out.push_back(row.name);
    return out;
  };
  KeepNewest({.kept = 3, .days = 0}, {.unix_ns = 6 * 86'400'000'000'000}, &rows);
  EXPECT_THAT(names(), ElementsAre("scan5", "scan4", "scan3", "job5", "job4", "job3"));
  KeepNewest({.kept = 3, .days = 1.5}, {.unix_ns = 6 * 86'400'000'000'000}, &rows);
  EXPECT_THAT(names(), ElementsAre("scan5", "job5"));
}

TEST(KeepNewest, LeavesVolumesThatAreHeldAgainAndOfEachStateTheNewest) {
  std::vector<HistoryRow> rows;
  for (uint64_t n = 1; n <= 9; ++n) {
    rows.push_back(VolumeRow(absl::StrCat("volumes/v", n), n));
    rows.back().ended = n > 1;
    rows.back().state = n == 1 ? "HELD" : n <= 3 ? "LOST" : "DISCARDED";
    rows.back().ended_unix_ns = n == 1 ? 0 : kNow.unix_ns;
  }
  KeepNewest({.kept = 2, .days = 1}, kNow, &rows);
  std::vector<uint64_t> numbers;
  for (const HistoryRow& row : rows) numbers.push_back(row.number);
  EXPECT_THAT(numbers, ElementsAre(9, 8, 3, 2, 1));
}

class HistoryRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto database = storage::HistoryDatabase::Open(folder_, nullptr);
    ASSERT_THAT(database, IsOk());
    writer_ = std::make_unique<storage::HistoryWriter>(*std::move(database),
                                                       storage::HistoryLimits{.days = 0});
  }
  std::vector<HistoryRow> Written() {
    EXPECT_EQ(writer_->Close(std::chrono::seconds(20)), 0u);
    writer_.reset();
    auto database = storage::HistoryDatabase::Open(folder_, nullptr);
    EXPECT_THAT(database, IsOk());
    auto rows = (*database)->Load();
    EXPECT_THAT(rows, IsOk());
    return *rows;
  }

  octavo::testing::TempFolder temp_;
  const std::string folder_ = temp_ / "history";
  SystemClock clock_;
  std::unique_ptr<storage::HistoryWriter> writer_;
};

absl::StatusOr<model::VolumeStatus> NoVolume(const std::string& name) {
  return absl::NotFoundError(name);
}

TEST_F(HistoryRecorderTest, RecordsWhatChanges) {
  model::ScanStatus scan = Scan();
  AuditRecorder audit(nullptr);
  HistoryRow last = RowOf(Commit("operations/last"), 10, nullptr, kNow);
  last.ended = true;
  HistoryRecorder recorder(writer_.get(), &audit, &clock_, EarlierRuns({last}, kNow));
  Mutex mutex;
  recorder.Start({.scan = [&](const std::string& name) -> absl::StatusOr<model::ScanStatus> {
                    MutexLock lock(mutex);
                    if (name != scan.name) return absl::NotFoundError(name);
                    return scan;
                  },
                  .jobs =
                      [](uint64_t* seen) {
                        return std::exchange(*seen, 1) == 1
                                   ? std::vector<job::JobStatus>()
                                   : std::vector{Job(job::JobState::kDone)};
                      },
                  .volume = NoVolume});
  recorder.OnScanChanged(scan.name);
  recorder.OnScanChanged("scans/unknown");
  recorder.OnJobsChanged();
  {
    MutexLock lock(mutex);
    scan.state = model::ScanState::kDone;
    scan.ended = clock_.Now();
  }
  recorder.OnScanChanged(scan.name);
  recorder.OnCommitBegun(Commit("operations/o"));
  recorder.Stop();
  const absl::StatusOr<storage::CommitOutcome> outcome = absl::CancelledError("the server ends");
  recorder.OnCommitEnded(Commit("operations/o"), outcome);  // after the scans
  const std::vector<HistoryRow> rows = Written();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name + rows[0].state, "scans/abc-1DONE");
  EXPECT_EQ(rows[1].name + rows[1].state, "jobs/abc-2DONE");
  EXPECT_EQ(rows[2].name + rows[2].state, "operations/oCANCELLED");
  EXPECT_EQ(rows[2].number, 11u);
}

TEST_F(HistoryRecorderTest, AScanThatCouldNotBeginIsNotLost) {
  AuditRecorder audit(nullptr);
  HistoryRecorder recorder(writer_.get(), &audit, &clock_, EarlierRuns({}, kNow));
  std::atomic<bool> there{true}, seen{false};
  recorder.Start({.scan = [&](const std::string& name) -> absl::StatusOr<model::ScanStatus> {
                    seen = true;
                    if (!there) return absl::NotFoundError(name);
                    return Scan();
                  },
                  .jobs = [](uint64_t*) { return std::vector<job::JobStatus>(); },
                  .volume = NoVolume});
  recorder.OnScanChanged("scans/abc-1");
  while (!seen) std::this_thread::yield();
  there = false;
  recorder.OnScanWithdrawn("scans/abc-1");
  recorder.Stop();
  const std::vector<HistoryRow> rows = Written();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].state, "FAILED");
  EXPECT_TRUE(rows[0].ended);
  EXPECT_EQ(rows[0].request_id, "");
}

TEST_F(HistoryRecorderTest, ItsThreadRecordsHeldVolumesAndItsEndTheLastOnes) {
  AuditRecorder audit(nullptr);
  HistoryRecorder recorder(writer_.get(), &audit, &clock_, EarlierRuns({}, kNow));
  recorder.volumes().OnVolumeChanged(Volume("volumes/early"));  // before anything is followed
  recorder.Start({.scan = [](const std::string& name) -> absl::StatusOr<model::ScanStatus> {
                    return absl::NotFoundError(name);
                  },
                  .jobs = [](uint64_t*) { return std::vector<job::JobStatus>(); },
                  .volume = [](const std::string& name) -> absl::StatusOr<model::VolumeStatus> {
                    return Volume(name);
                  }});
  recorder.volumes().OnVolumeChanged(Volume("volumes/kept"));
  while (writer_->Count().written < 2) std::this_thread::yield();
  model::VolumeStatus of_ring = Volume("volumes/ring");
  of_ring.kept = false;
  recorder.volumes().OnVolumeChanged(of_ring);
  recorder.Stop();
  // A commit that ends with the server.
  model::VolumeStatus committed = Volume("volumes/kept", model::VolumeState::kCommitted);
  committed.has_commit = true;
  committed.commit.path = "/data/a.npy";
  recorder.volumes().OnVolumeChanged(committed);
  std::map<std::string, std::string> states;
  for (const HistoryRow& row : Written()) states[row.name] = row.state;
  EXPECT_EQ(states, (std::map<std::string, std::string>{{"volumes/early", "HELD"},
                                                        {"volumes/kept", "COMMITTED"},
                                                        {"volumes/ring", "HELD"}}));
}

/// A clock that tests set.
class SetClock final : public Clock {
 public:
  TimePoint Now() const override { return {.monotonic_ns = now, .unix_ns = now}; }
  std::atomic<int64_t> now{1'000'000'000'000};
};

class VolumeRecorderTest : public HistoryRecorderTest {
 protected:
  void Follow(VolumeRecorder& recorder) {
    recorder.Start(
        [this](const std::string& name) -> absl::StatusOr<model::VolumeStatus> {
          if (at_look_) std::exchange(at_look_, nullptr)(name);
          const auto it = volumes_.find(name);
          if (it == volumes_.end()) return absl::NotFoundError(name);
          return it->second;
        },
        [this] { ++woken_; });
  }
  void Change(VolumeRecorder& recorder, model::VolumeStatus volume) {
    volumes_[volume.name] = volume;
    recorder.OnVolumeChanged(volume);
  }
  void Pass(int64_t ns) { time_.now += ns; }
  std::map<std::string, std::string> States() {
    std::map<std::string, std::string> states;
    for (const HistoryRow& row : Written()) states[row.name] = row.state;
    return states;
  }

  using States_ = std::map<std::string, std::string>;
  SetClock time_;
  std::map<std::string, model::VolumeStatus> volumes_;
  std::function<void(const std::string&)> at_look_;
  int woken_ = 0;
};

TEST_F(VolumeRecorderTest, AVolumeThatComesAndGoesCostsNothing) {
  VolumeRecorder recorder(writer_.get(), &time_, EarlierRuns({}, kNow));
  Follow(recorder);
  // A LIVE ring of four, and volumes that are discarded at once, a thousand of each a second.
  for (int i = 0; i < 20'000; ++i) {
    model::VolumeStatus ring = Volume(absl::StrCat("volumes/r", i));
    ring.kept = false;
    Change(recorder, ring);
    if (i >= 4)
      Change(recorder, Volume(absl::StrCat("volumes/r", i - 4), model::VolumeState::kDiscarded));
    Change(recorder, Volume(absl::StrCat("volumes/d", i)));
    Change(recorder, Volume(absl::StrCat("volumes/d", i), model::VolumeState::kDiscarded));
    Pass(1'000'000);
    if (i % 10 == 0) (void)recorder.Turn(false);
  }
  EXPECT_EQ(recorder.left_out(), 0);
  EXPECT_THAT(States(), IsEmpty());
}

TEST_F(VolumeRecorderTest, ManyAtOnceWaitUntilTheyHaveStayed) {
  VolumeRecorder recorder(writer_.get(), &time_, EarlierRuns({}, kNow));
  Follow(recorder);
  constexpr int kMany = 1000;
  for (int i = 0; i < kMany; ++i) Change(recorder, Volume(absl::StrCat("volumes/v", i)));
  EXPECT_EQ(woken_, 1) << "the next turn is due once";
  EXPECT_FALSE(recorder.Turn(false) == std::nullopt);
  Pass(VolumeRecorder::kFreshNs);
  const auto next = recorder.Turn(false);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->count(), VolumeRecorder::kSettledNs - VolumeRecorder::kFreshNs);
  // Those that leave before have no row; the first ones had theirs at once.
  for (int i = kMany / 2; i < kMany; ++i)
    Change(recorder, Volume(absl::StrCat("volumes/v", i), model::VolumeState::kDiscarded));
  Pass(VolumeRecorder::kSettledNs);
  EXPECT_EQ(recorder.Turn(false), std::nullopt);
  const auto states = States();
  EXPECT_EQ(states.size(), static_cast<size_t>(kMany / 2));
  for (const auto& [name, state] : states) EXPECT_EQ(state, "HELD") << name;
}

TEST_F(VolumeRecorderTest, AVolumeOfARingGetsItsRowWhenItIsKept) {
  VolumeRecorder recorder(writer_.get(), &time_, EarlierRuns({}, kNow));
  Follow(recorder);
  for (const char* name : {"volumes/marked", "volumes/old", "volumes/new"}) {
    model::VolumeStatus volume = Volume(name);
    volume.kept = false;
    if (std::string(name) == "volumes/new")
      Pass(VolumeRecorder::kRingNs - VolumeRecorder::kFreshNs);
    Change(recorder, volume);
  }
  model::VolumeStatus marked = Volume("volumes/marked");
  volumes_[marked.name] = marked;
  woken_ = 0;
  recorder.OnVolumeDetails(marked);
  EXPECT_EQ(woken_, 1);
  Pass(VolumeRecorder::kFreshNs);
  (void)recorder.Turn(false);
  EXPECT_EQ(States(), (States_{{"volumes/marked", "HELD"}, {"volumes/old", "HELD"}}));
}

TEST_F(VolumeRecorderTest, ItsEndFollowsItsRowWhateverThreadTellsIt) {
  VolumeRecorder recorder(writer_.get(), &time_, EarlierRuns({}, kNow));
  Follow(recorder);
  // It leaves while its row is made: no row of it stays open.
  Change(recorder, Volume("volumes/leaves"));
  Pass(VolumeRecorder::kFreshNs);
  at_look_ = [&](const std::string& name) {
    Change(recorder, Volume(name, model::VolumeState::kDiscarded));
  };
  (void)recorder.Turn(false);
  // It has left, and the news that it is held comes late.
  volumes_["volumes/late"] = Volume("volumes/late", model::VolumeState::kDiscarded);
  recorder.OnVolumeChanged(volumes_["volumes/late"]);
  recorder.OnVolumeChanged(Volume("volumes/late"));
  // It is forgotten altogether.
  recorder.OnVolumeChanged(Volume("volumes/unknown"));
  // A commit that fails, and one that succeeds.
  Change(recorder, Volume("volumes/committed"));
  Pass(VolumeRecorder::kSettledNs);
  (void)recorder.Turn(false);
  Change(recorder, Volume("volumes/committed", model::VolumeState::kCommitting));
  Change(recorder, Volume("volumes/committed"));
  model::VolumeStatus committed = Volume("volumes/committed", model::VolumeState::kCommitted);
  committed.has_commit = true;
  committed.commit.path = "/data/a.npy";
  Change(recorder, committed);
  Change(recorder, committed);
  (void)recorder.Turn(true);
  const std::vector<HistoryRow> rows = Written();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name + rows[0].state, "volumes/committedCOMMITTED");
  EXPECT_TRUE(rows[0].ended);
  EXPECT_THAT(rows[0].details, HasSubstr("/data/a.npy"));
}

TEST_F(VolumeRecorderTest, WhatIsHeldAgainGoesOnWithItsRow) {
  HistoryRow before = VolumeRow("volumes/again", 41);
  VolumeRecorder recorder(writer_.get(), &time_, EarlierRuns({before}, kNow));
  Follow(recorder);
  Change(recorder, Volume("volumes/again"));
  Change(recorder, Volume("volumes/new"));
  (void)recorder.Turn(true);
  EXPECT_EQ(writer_->Close(std::chrono::seconds(20)), 0u);
  EXPECT_EQ(writer_->Count().written, 1) << "the row that there is stands";
  writer_.reset();
  SetUp();  // another daemon's
  VolumeRecorder next(writer_.get(), &time_, EarlierRuns({before}, kNow));
  Follow(next);
  Change(next, Volume("volumes/again", model::VolumeState::kDiscarded));
  const std::vector<HistoryRow> rows = Written();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name + rows[0].state, "volumes/againDISCARDED");
  EXPECT_EQ(rows[0].number, 41u);
  EXPECT_EQ(rows[1].number, 42u);
}

TEST_F(VolumeRecorderTest, AtMostSoManyHaveARowAndTheOthersAreCounted) {
  VolumeRecorder recorder(writer_.get(), &time_, EarlierRuns({}, kNow), 2);
  Follow(recorder);
  for (const char* name : {"volumes/a", "volumes/b", "volumes/c"}) Change(recorder, Volume(name));
  (void)recorder.Turn(true);
  EXPECT_EQ(recorder.left_out(), 1);
  Change(recorder, Volume("volumes/c", model::VolumeState::kDiscarded));
  Change(recorder, Volume("volumes/a", model::VolumeState::kDiscarded));
  Change(recorder, Volume("volumes/d"));
  (void)recorder.Turn(true);
  EXPECT_EQ(recorder.left_out(), 1);
  EXPECT_EQ(States(),
            (States_{{"volumes/a", "DISCARDED"}, {"volumes/b", "HELD"}, {"volumes/d", "HELD"}}));
}

TEST_F(VolumeRecorderTest, ManyThreadsTellItAndNoRowIsWrong) {
  VolumeRecorder recorder(writer_.get(), &clock_, EarlierRuns({}, kNow));
  Mutex mutex;
  std::map<std::string, model::VolumeStatus> volumes;
  recorder.Start(
      [&](const std::string& name) -> absl::StatusOr<model::VolumeStatus> {
        MutexLock lock(mutex);
        return volumes.at(name);
      },
      [] {});
  std::atomic<bool> over{false};
  std::thread turns([&] {
    while (!over) (void)recorder.Turn(true);
    (void)recorder.Turn(true);
  });
  std::vector<std::thread> tellers;
  for (int t = 0; t < 4; ++t) {
    tellers.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string name = absl::StrCat("volumes/t", t, "-", i);
        for (const auto state : {model::VolumeState::kHeld, model::VolumeState::kDiscarded}) {
          if (state == model::VolumeState::kDiscarded && i % 2 == 1) break;
          const model::VolumeStatus now = Volume(name, state);
          {
            MutexLock lock(mutex);
            volumes[name] = now;
          }
          recorder.OnVolumeChanged(now);
        }
      }
    });
  }
  for (std::thread& teller : tellers) teller.join();
  over = true;
  turns.join();
  int held = 0;
  for (const HistoryRow& row : Written()) {
    const bool stays = (row.name.back() - '0') % 2 == 1;
    EXPECT_EQ(row.state, stays ? "HELD" : "DISCARDED") << row.name;
    held += stays;
  }
  EXPECT_EQ(held, 4 * 100) << "each that stays has one";
}

}  // namespace
}  // namespace octavo::engine
