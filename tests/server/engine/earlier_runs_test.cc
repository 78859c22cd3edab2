#include "server/engine/earlier_runs.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/history_recorder.h"
#include "server/engine/history_rows.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using storage::HistoryKind;
using storage::HistoryRow;
using ::testing::ElementsAre;
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
    EXPECT_EQ(back.volumes.size(), state == job::JobState::kDone ? 1u : 0u);
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
  EXPECT_EQ(settled.lost, (std::map<std::string, int64_t>{{"scan", 1}, {"job", 1}, {"commit", 1}}));
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

TEST_F(HistoryRecorderTest, RecordsWhatChanges) {
  model::ScanStatus scan = Scan();
  AuditRecorder audit(nullptr);
  HistoryRecorder recorder(writer_.get(), &audit, &clock_, 10);
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
                      }});
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
  HistoryRecorder recorder(writer_.get(), &audit, &clock_, 0);
  std::atomic<bool> there{true}, seen{false};
  recorder.Start({.scan = [&](const std::string& name) -> absl::StatusOr<model::ScanStatus> {
                    seen = true;
                    if (!there) return absl::NotFoundError(name);
                    return Scan();
                  },
                  .jobs = [](uint64_t*) { return std::vector<job::JobStatus>(); }});
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

}  // namespace
}  // namespace octavo::engine
