// Which scans go on after a restart: records come before the scans and go with their ends; daemons
// that die early are counted; errors of the disk are told, tried again, and never lose a scan.

#include "server/engine/resume_book.h"

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/resume/resume_folder.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using Fate = ResumeBook::Fate;
using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const security::Owner kAda{.name = "ada", .project = "eyes", .role = security::Role::kOperator};

class ResumeBookTest : public ::testing::Test {
 protected:
  void SetUp() override { NextDaemon(); }
  void TearDown() override { ArmFailpoint(""); }

  /// The last one died; what it left on the disk is all that the next one knows.
  void NextDaemon() {
    book_ = nullptr;
    ResumeBook::Found found;
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(folder_,
                         storage::ResumeFolder::Open(temp_ / "resume", &found.records, &report));
    found.damaged = std::ssize(report);
    book_ = std::make_unique<ResumeBook>(folder_.get(), std::move(found), &clock_);
  }
  void Begin(const std::string& scan) {
    ASSERT_THAT(book_->Begin(scan, kAda, "request of " + scan), IsOk());
    book_->Began(scan);
  }
  /// Resumes the only record as `scan`.
  void Resume(const std::string& scan) {
    ASSERT_EQ(book_->found().size(), 1u);
    std::string given_up;
    ASSERT_OK_AND_ASSIGN(const ScanToResume earlier, book_->TakeUp(book_->found()[0], &given_up));
    book_->Resumed(earlier.record, scan);
  }
  void Tend(Fate fate, bool draining = false) {
    book_->Tend([&](const std::string&) { return fate; }, draining);
  }
  storage::ResumeRecord OnDisk(const std::string& record) {
    auto read = folder_->Get(record);
    EXPECT_THAT(read, IsOk());
    return read.ok() ? *std::move(read) : storage::ResumeRecord{};
  }
  std::vector<std::string> RecordsOnDisk() {
    std::vector<std::string> found, report;
    EXPECT_THAT(storage::ResumeFolder::Open(temp_ / "resume", &found, &report), IsOk());
    return found;
  }
  model::Stats Stats() {
    model::Stats stats;
    book_->AddTo(&stats);
    return stats;
  }

  TempFolder temp_;
  FakeClock clock_;
  std::unique_ptr<storage::ResumeFolder> folder_;
  std::unique_ptr<ResumeBook> book_;
};

TEST_F(ResumeBookTest, ARecordIsThereBeforeItsScanBegins) {
  ASSERT_THAT(book_->Begin("scans/a", kAda, "the request"), IsOk());
  const storage::ResumeRecord record = OnDisk("a");
  EXPECT_EQ(record.scan, "scans/a");
  EXPECT_EQ(record.owner, "ada");
  EXPECT_EQ(record.project, "eyes");
  EXPECT_EQ(record.role, "operator");
  EXPECT_EQ(record.request, "the request");
  EXPECT_TRUE(book_->Has("scans/a"));
  Tend(Fate::kOver);  // it has not begun yet: nobody may take it for ended
  EXPECT_THAT(RecordsOnDisk(), ElementsAre("a"));
}

TEST_F(ResumeBookTest, AScanThatIsOverHasNoRecord) {
  Begin("scans/a");
  Begin("scans/b");
  book_->Drop("scans/a");
  EXPECT_FALSE(book_->Has("scans/a"));
  EXPECT_THAT(RecordsOnDisk(), ElementsAre("b"));
  book_->Drop("scans/a");  // nothing happens
  Tend(Fate::kRuns);
  EXPECT_THAT(RecordsOnDisk(), ElementsAre("b"));
  Tend(Fate::kOver);
  EXPECT_THAT(RecordsOnDisk(), IsEmpty());
}

TEST_F(ResumeBookTest, AScanThatEndsWithItsDaemonKeepsItsRecord) {
  Begin("scans/a");
  Tend(Fate::kEndedByDaemon, /*draining=*/true);
  EXPECT_FALSE(OnDisk("a").early);  // it did not die
  NextDaemon();
  std::string given_up;
  ASSERT_OK_AND_ASSIGN(const ScanToResume earlier, book_->TakeUp("a", &given_up));
  EXPECT_EQ(earlier.scan, "scans/a");
  EXPECT_EQ(earlier.owner, kAda);
  EXPECT_EQ(earlier.owner.role, security::Role::kOperator);
  EXPECT_EQ(earlier.request, "request of scans/a");
  EXPECT_TRUE(OnDisk("a").early);  // from before the scan begins
  EXPECT_EQ(OnDisk("a").scan, "scans/a");
  book_->Resumed("a", "scans/b");
  EXPECT_EQ(OnDisk("a").scan, "scans/b");
  EXPECT_FALSE(book_->Has("scans/a"));
  EXPECT_TRUE(book_->Has("scans/b"));
  EXPECT_EQ(Stats().scans_resumed, 1);
  EXPECT_EQ(Stats().scans_not_resumed, 0);
  book_->Drop("scans/b");
  EXPECT_THAT(RecordsOnDisk(), IsEmpty());
}

TEST_F(ResumeBookTest, TheThirdDaemonInARowThatDiesEarlyIsTheLast) {
  Begin("scans/a");
  NextDaemon();  // the first died
  Resume("scans/b");
  clock_.Advance(59);
  Tend(Fate::kRuns);
  NextDaemon();  // the second died
  Resume("scans/c");
  NextDaemon();  // the third died
  std::string given_up;
  EXPECT_THAT(book_->TakeUp("a", &given_up), IsError(absl::StatusCode::kAborted, "3 daemons"));
  EXPECT_EQ(given_up, "scans/c");
  EXPECT_THAT(RecordsOnDisk(), IsEmpty());
  EXPECT_EQ(Stats().scans_not_resumed, 1);
}

TEST_F(ResumeBookTest, ADaemonThatLivesForAMinuteBeginsTheCountAnew) {
  Begin("scans/a");
  for (int round = 0; round < 4; ++round) {
    NextDaemon();
    Resume(absl::StrCat("scans/early", round));
    NextDaemon();
    Resume(absl::StrCat("scans/late", round));
    clock_.Advance(61);
    Tend(Fate::kRuns);
    EXPECT_EQ(OnDisk("a").early_deaths, 0);
    EXPECT_FALSE(OnDisk("a").early);
  }
  // So does one that ends in order, however early.
  NextDaemon();
  Resume("scans/x");
  NextDaemon();
  Resume("scans/y");
  EXPECT_EQ(OnDisk("a").early_deaths, 1);
  Tend(Fate::kRuns, /*draining=*/true);
  EXPECT_EQ(OnDisk("a").early_deaths, 0);
}

TEST_F(ResumeBookTest, ARefusedScanWaitsForTheNextStartAndItsDeathsStayCounted) {
  Begin("scans/a");
  NextDaemon();
  std::string given_up;
  ASSERT_THAT(book_->TakeUp("a", &given_up), IsOk());
  book_->Refused("a");
  EXPECT_EQ(Stats().scans_not_resumed, 1);
  EXPECT_EQ(OnDisk("a").early_deaths, 1);
  EXPECT_FALSE(OnDisk("a").early);
  ASSERT_TRUE(book_->OwnerOfWaiting("scans/a").has_value());
  Tend(Fate::kOver);                         // it is no scan of this daemon
  for (int round = 0; round < 5; ++round) {  // no daemon that does not run it dies of it
    NextDaemon();
    ASSERT_THAT(book_->TakeUp("a", &given_up), IsOk());
    book_->Refused("a");
  }
  EXPECT_EQ(OnDisk("a").early_deaths, 1);
  book_->Drop("scans/a");  // a client does not want it any more
  EXPECT_THAT(RecordsOnDisk(), IsEmpty());
  EXPECT_EQ(Stats().scans_not_resumed, 0);
  EXPECT_FALSE(book_->OwnerOfWaiting("scans/a").has_value());
}

TEST_F(ResumeBookTest, ADiskThatRefusesTheRecordLeavesNothingBehind) {
  for (const char* point : {"resume_create", "resume_written", "resume_synced", "resume_renamed"}) {
    ArmFailpoint(absl::StrCat(point, ":errno=28"));
    const absl::Status refused = book_->Begin("scans/a", kAda, "r");
    EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "on_restart")) << point;
    EXPECT_EQ(InfoOf(refused).reason, Reason::kDiskFull) << point;
    EXPECT_FALSE(book_->Has("scans/a")) << point;
    EXPECT_THAT(RecordsOnDisk(), IsEmpty()) << point;
  }
  ArmFailpoint("resume_written:throw=bad_alloc");
  EXPECT_FALSE(book_->Begin("scans/a", kAda, "r").ok());
  EXPECT_FALSE(book_->Has("scans/a"));
  EXPECT_THAT(RecordsOnDisk(), IsEmpty());
}

TEST_F(ResumeBookTest, ARecordThatIsNotRemovedIsTriedAgain) {
  Begin("scans/a");
  ArmFailpoint("resume_remove:errno=5");
  book_->Drop("scans/a");
  EXPECT_TRUE(book_->Has("scans/a"));
  EXPECT_THAT(RecordsOnDisk(), ElementsAre("a"));
  Tend(Fate::kRuns);  // not at once: a disk that fails is not asked all the time
  EXPECT_THAT(RecordsOnDisk(), ElementsAre("a"));
  clock_.Advance(11);
  Tend(Fate::kRuns);
  EXPECT_THAT(RecordsOnDisk(), IsEmpty());
}

TEST_F(ResumeBookTest, ASuccessorThatIsNotNotedIsNotedLater) {
  Begin("scans/a");
  NextDaemon();
  std::string given_up;
  ASSERT_THAT(book_->TakeUp("a", &given_up), IsOk());
  ArmFailpoint("resume_synced:errno=5");
  book_->Resumed("a", "scans/b");
  EXPECT_EQ(OnDisk("a").scan, "scans/a");  // the scan is not lost, whatever dies now
  EXPECT_TRUE(book_->Has("scans/b"));
  clock_.Advance(11);
  Tend(Fate::kRuns);
  EXPECT_EQ(OnDisk("a").scan, "scans/b");
}

TEST_F(ResumeBookTest, ADiskThatDoesNotTakeTheAttemptRefusesTheScan) {
  Begin("scans/a");
  NextDaemon();
  ArmFailpoint("resume_synced:errno=28");
  std::string given_up;
  EXPECT_THAT(book_->TakeUp("a", &given_up),
              IsError(absl::StatusCode::kResourceExhausted, "scans/a"));
  EXPECT_EQ(Stats().scans_not_resumed, 1);
  EXPECT_THAT(RecordsOnDisk(), ElementsAre("a"));
  NextDaemon();
  Resume("scans/b");
}

TEST_F(ResumeBookTest, OldNamesLeadToTheScanThatGoesOn) {
  Begin("scans/a");
  EXPECT_EQ(book_->SuccessorOf("scans/a"), "") << "it goes on itself";
  NextDaemon();
  Resume("scans/b");
  EXPECT_EQ(book_->SuccessorOf("scans/a"), "scans/b");
  EXPECT_EQ(book_->SuccessorOf("scans/b"), "");
  NextDaemon();
  Resume("scans/c");
  EXPECT_EQ(book_->SuccessorOf("scans/a"), "scans/c");
  EXPECT_EQ(book_->SuccessorOf("scans/b"), "scans/c");
  EXPECT_EQ(book_->SuccessorOf("scans/c"), "");
  EXPECT_EQ(book_->SuccessorOf("scans/x"), "");
  EXPECT_EQ(book_->SuccessorOf(""), "");
  clock_.Advance(61);  // it did not die early
  Tend(Fate::kRuns);
  NextDaemon();
  std::string given_up;
  ASSERT_OK_AND_ASSIGN(const ScanToResume waits, book_->TakeUp("a", &given_up));
  book_->Refused(waits.record);
  EXPECT_EQ(book_->SuccessorOf("scans/a"), "scans/c") << "which waits for the next start";
  book_->Drop("scans/c");
  EXPECT_EQ(book_->SuccessorOf("scans/a"), "");
}

TEST_F(ResumeBookTest, ThereAreBounds) {
  for (int64_t i = 0; i < ResumeBook::kMost; ++i) {
    const security::Owner owner{.name = absl::StrCat("user", i % 5), .project = "", .role = {}};
    ASSERT_THAT(book_->Begin(absl::StrCat("scans/s", i), owner, "r"), IsOk());
  }
  const absl::Status refused = book_->Begin("scans/more", kAda, "r");
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "allowed 64"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kBusy);
  EXPECT_THAT(book_->CheckRoom(kAda), IsError(absl::StatusCode::kResourceExhausted, "64"));
  book_->Drop("scans/s7");
  EXPECT_THAT(book_->CheckRoom(kAda), IsOk());
  Begin("scans/more");
}

TEST_F(ResumeBookTest, NoOwnerHasMoreThanItsShare) {
  for (int64_t i = 0; i < ResumeBook::kMostOfOwner; ++i) Begin(absl::StrCat("scans/s", i));
  const absl::Status refused = book_->Begin("scans/more", kAda, "r");
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "ada has 16"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kQuota);
  EXPECT_EQ(InfoOf(refused).field, "on_restart");
  EXPECT_THAT(book_->CheckRoom(kAda), IsError(absl::StatusCode::kResourceExhausted, "allowed 16"));
  EXPECT_FALSE(book_->Has("scans/more"));
  const security::Owner bob{.name = "bob", .project = "eyes", .role = security::Role::kOperator};
  EXPECT_THAT(book_->Begin("scans/bobs", bob, "r"), IsOk());
  const security::Owner root{.name = "ada", .project = "", .role = security::Role::kAdmin};
  EXPECT_THAT(book_->CheckRoom(root), IsOk()) << "admins have no share";
  // The next daemon takes them all up, and they count there.
  NextDaemon();
  for (const std::string& record : book_->found()) {
    std::string given_up;
    ASSERT_THAT(book_->TakeUp(record, &given_up), IsOk());
    book_->Resumed(record, "scans/next-" + record);
  }
  EXPECT_THAT(book_->CheckRoom(kAda), IsError(absl::StatusCode::kResourceExhausted, "ada has 16"));
  book_->Drop("scans/next-s3");
  EXPECT_THAT(book_->CheckRoom(kAda), IsOk());
}

TEST_F(ResumeBookTest, WithoutAFolderNothingIsPromised) {
  ResumeBook none(nullptr, {}, &clock_);
  EXPECT_THAT(none.Begin("scans/a", kAda, "r"),
              IsError(absl::StatusCode::kFailedPrecondition, "on_restart"));
  none.Drop("scans/a");
  none.Tend([](const std::string&) { return Fate::kOver; }, true);
  EXPECT_FALSE(none.Has("scans/a"));
}

TEST_F(ResumeBookTest, ADamagedRecordIsPutAsideAndCounted) {
  Begin("scans/a");
  temp_.Write("resume/a.resume", "damaged meanwhile");
  ResumeBook::Found found;
  found.records = {"a"};
  found.damaged = 2;
  ResumeBook late(folder_.get(), found, &clock_);
  std::string given_up;
  EXPECT_THAT(late.TakeUp("a", &given_up), IsError(absl::StatusCode::kDataLoss, "renamed to"));
  model::Stats stats;
  late.AddTo(&stats);
  EXPECT_EQ(stats.scans_not_resumed, 3);
}

// A scan that a client stops while its record is brought up to date must not come back.
TEST_F(ResumeBookTest, UpkeepAndEndsAtOnceLeaveNothing) {
  for (int round = 0; round < 30; ++round) {
    const std::string scan = absl::StrCat("scans/r", round);
    Begin(scan);
    clock_.Advance(61);
    auto upkeep = std::async(std::launch::async, [&] { Tend(Fate::kRuns); });
    auto other = std::async(std::launch::async, [&] { book_->Drop(scan); });
    book_->Drop(scan);
    upkeep.get();
    other.get();
    EXPECT_FALSE(book_->Has(scan));
    EXPECT_THAT(RecordsOnDisk(), IsEmpty());
  }
}

}  // namespace
}  // namespace octavo::engine
