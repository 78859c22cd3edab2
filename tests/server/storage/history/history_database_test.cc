#include "server/storage/history/history_database.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HistoryRow Row(uint64_t number, bool ended = true, HistoryKind kind = HistoryKind::kScan) {
  return {.kind = kind,
          .name = absl::StrCat(Name(kind), "s/", number),
          .number = number,
          .state = ended ? "DONE" : "RUNNING",
          .ended = ended,
          .reason_code = ended ? "COMPLETED" : "",
          .reason = "why; 'quoted'",
          .title = "Ü \"eye\"",
          .owner = "uid:1000",
          .project = "retina",
          .request_id = absl::StrCat("id-", number),
          .request_digest = std::string(64, 'a'),
          .created_unix_ns = 1'000 + static_cast<int64_t>(number),
          .started_unix_ns = 2'000,
          .ended_unix_ns = ended ? static_cast<int64_t>(number) * 1'000'000'000 : 0,
          .details = R"({"records": 12})"};
}

class HistoryDatabaseTest : public ::testing::Test {
 protected:
  void TearDown() override { ArmFailpoint(""); }

  std::unique_ptr<HistoryDatabase> Open() {
    report_.clear();
    auto opened = HistoryDatabase::Open(folder_, &report_);
    EXPECT_THAT(opened, IsOk());
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  std::vector<HistoryRow> Load(HistoryDatabase& database) {
    auto rows = database.Load();
    EXPECT_THAT(rows, IsOk());
    return rows.ok() ? *std::move(rows) : std::vector<HistoryRow>();
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    auto database = Open();
    for (const HistoryRow& row : Load(*database)) names.push_back(row.name);
    return names;
  }
  /// The files that were put aside.
  std::vector<std::string> Aside() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("history.sqlite.")) found.push_back(name);
    }
    return found;
  }
  void Execute(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(Path().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  std::string Path() const { return folder_ + "/history.sqlite"; }

  TempFolder temp_;
  const std::string folder_ = temp_ / "history";
  std::vector<std::string> report_;
};

TEST_F(HistoryDatabaseTest, RowsComeBackAsTheyWere) {
  const std::vector<HistoryRow> rows = {Row(1), Row(2, false), Row(1, true, HistoryKind::kJob),
                                        Row(7, false, HistoryKind::kCommit),
                                        Row(3, false, HistoryKind::kVolume)};
  EXPECT_THAT(Open()->Write({rows[4], rows[3], rows[1], rows[2], rows[0]}), IsOk());
  const auto database = Open();
  EXPECT_EQ(Load(*database), rows);
  EXPECT_THAT(report_, IsEmpty());
}

TEST_F(HistoryDatabaseTest, ARowReplacesThatOfItsName) {
  const auto database = Open();
  EXPECT_THAT(database->Write({Row(1, false)}), IsOk());
  EXPECT_THAT(database->Write({Row(1)}), IsOk());
  EXPECT_EQ(Load(*database), std::vector<HistoryRow>{Row(1)});
}

TEST_F(HistoryDatabaseTest, NobodyElseReadsIt) {
  const ::mode_t before = ::umask(0);
  const auto database = Open();
  EXPECT_THAT(database->Write({Row(1)}), IsOk());
  for (const char* name : {"history.sqlite", "history.sqlite-wal", "history.lock"}) {
    struct stat found {};
    ASSERT_EQ(::stat(absl::StrCat(folder_, "/", name).c_str(), &found), 0) << name;
    EXPECT_EQ(found.st_mode & 0777, 0600u) << name;
  }
  struct stat folder {};
  ASSERT_EQ(::stat(folder_.c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 0777, 0700u);
  ::umask(before);
}

TEST_F(HistoryDatabaseTest, ASecondProcessIsRefused) {
  const auto database = Open();
  EXPECT_THAT(HistoryDatabase::Open(folder_, nullptr),
              IsError(absl::StatusCode::kFailedPrecondition, "is used by another process"));
  EXPECT_THAT(database->Write({Row(1)}), IsOk());
}

TEST_F(HistoryDatabaseTest, ADamagedDatabaseIsPutAside) {
  const auto overwrite = [&](std::streamoff at, size_t bytes) {
    std::fstream file(Path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << std::string(bytes, '\xA5');
  };
  const std::pair<const char*, std::function<void()>> damages[] = {
      {"no database", [&] { std::ofstream(Path(), std::ios::trunc) << std::string(9000, 'x'); }},
      {"its first page", [&] { overwrite(0, 200); }},
      {"its tables", [&] { overwrite(4096, 4096 * 2); }},
      {"cut", [&] { std::filesystem::resize_file(Path(), 4096 + 100); }},
      {"another program's",
       [&] {
         std::filesystem::remove(Path());
         Execute("CREATE TABLE work (kind INTEGER)");
       }},
      {"without its columns",
       [&] { Execute("DROP TABLE work; CREATE TABLE work (kind INTEGER)"); }},
  };
  size_t aside = 0;
  for (const auto& [name, damage] : damages) {
    SCOPED_TRACE(name);
    {
      const auto database = Open();
      std::vector<HistoryRow> rows;
      for (uint64_t n = 1; n <= 200; ++n) rows.push_back(Row(n));
      ASSERT_THAT(database->Write(rows), IsOk());
    }
    damage();
    const auto database = Open();
    ASSERT_NE(database, nullptr);
    EXPECT_THAT(report_, ElementsAre(HasSubstr("history.sqlite.damaged-")));
    EXPECT_THAT(Load(*database), IsEmpty());
    EXPECT_THAT(database->Write({Row(1)}), IsOk());
    EXPECT_GT(Aside().size(), aside);
    aside = Aside().size();
  }
}

TEST_F(HistoryDatabaseTest, ANewerSchemaIsPutAsideUnchanged) {
  EXPECT_THAT(Open()->Write({Row(1)}), IsOk());
  Execute("ALTER TABLE work ADD COLUMN mood TEXT; PRAGMA user_version=2");
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_THAT(report_, ElementsAre(HasSubstr("has schema 2, of a newer version")));
  const std::vector<std::string> aside = Aside();
  ASSERT_THAT(aside, ElementsAre(HasSubstr("history.sqlite.newer-")));
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(absl::StrCat(folder_, "/", aside[0]).c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, "SELECT mood FROM work WHERE name = 'scans/1'", nullptr, nullptr,
                         nullptr),
            SQLITE_OK);
  sqlite3_close(database);
}

TEST_F(HistoryDatabaseTest, WhatOthersMayWriteIsRefused) {
  { (void)Open(); }
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(HistoryDatabase::Open(folder_, &report_),
              IsError(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat(folder_, " has mode 0777 and can be written by others")));
  EXPECT_THAT(HistoryDatabase::Open(folder_, &report_),
              IsError(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("then: chmod 700 '", folder_, "')")));
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0) << "others may look into it";
  EXPECT_NE(Open(), nullptr);
  if (::geteuid() != 0) return;  // cannot give it away
  ASSERT_EQ(::chown(Path().c_str(), 65534, 65534), 0);
  EXPECT_THAT(HistoryDatabase::Open(folder_, &report_),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "/history.sqlite belongs to user 65534; allowed is a file of user 0"));
  ASSERT_EQ(::chown(Path().c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(folder_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(HistoryDatabase::Open(folder_, &report_),
              IsError(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("then: chown 0 '", folder_, "')")));
}

TEST_F(HistoryDatabaseTest, ALinkIsNoDatabase) {
  std::filesystem::create_directory(folder_);
  temp_.Write("elsewhere", "");
  std::filesystem::create_symlink(temp_ / "elsewhere", Path());
  EXPECT_FALSE(HistoryDatabase::Open(folder_, &report_).ok());
  EXPECT_EQ(std::filesystem::file_size(temp_ / "elsewhere"), 0u);
}

TEST_F(HistoryDatabaseTest, WhatIsNotOursIsPutAside) {
  for (const char* planted :
       {"CREATE TRIGGER t BEFORE INSERT ON work BEGIN SELECT RAISE(ABORT, 'no'); END",
        "CREATE VIEW v AS SELECT 1", "CREATE TABLE other (x)"}) {
    { ASSERT_NE(Open(), nullptr); }
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(Path().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, planted, nullptr, nullptr, nullptr), SQLITE_OK) << planted;
    sqlite3_close(database);
    ASSERT_NE(Open(), nullptr);
    EXPECT_EQ(report_.size(), 1u) << planted;
  }
}

TEST_F(HistoryDatabaseTest, RowsThatNoClientCouldBeToldAreLeftOut) {
  { ASSERT_NE(Open(), nullptr); }
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(Path().c_str(), &database), SQLITE_OK);
  for (const char* row :
       {"1, 'scans/fine', 1", "1, CAST(x'ff' AS TEXT), 2", "1, 'scans/negative', -1",
        "1, 'scans/huge', 9223372036854775807", "1, 'no name', 3"}) {
    const std::string sql =
        std::string("INSERT INTO work VALUES (") + row +
        ", 'DONE', 1, '', '', CAST(x'ff' AS TEXT), '', '', '', '', 0, 0, 0, '{}')";
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << row;
  }
  sqlite3_close(database);
  const auto opened = Open();
  ASSERT_NE(opened, nullptr);
  const std::vector<HistoryRow> rows = Load(*opened);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "scans/fine");
  EXPECT_EQ(rows[0].title, "?") << "no UTF-8";
}

TEST_F(HistoryDatabaseTest, AFileThatWasRemovedIsNoticed) {
  const auto database = Open();
  ASSERT_NE(database, nullptr);
  ASSERT_THAT(database->Write({Row(1)}), IsOk());
  std::filesystem::remove(Path());
  EXPECT_FALSE(database->Write({Row(2)}).ok());
  std::ofstream(Path()) << "another";
  EXPECT_THAT(database->Write({Row(2)}),
              IsError(absl::StatusCode::kUnavailable, "not the file that this daemon opened"));
}

TEST_F(HistoryDatabaseTest, NobodyPushesOutTheRowsOfOthers) {
  const auto database = Open();
  ASSERT_NE(database, nullptr);
  std::vector<HistoryRow> rows;
  for (uint64_t n = 1; n <= 20; ++n) {
    rows.push_back(Row(n));
    rows.back().owner = n == 1 ? "anna" : "bob";
  }
  ASSERT_THAT(database->Write(rows), IsOk());
  ASSERT_THAT(database->Prune({.kept = 5, .days = 0}, 0).status(), IsOk());
  rows = Load(*database);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0].owner, "anna");
}

TEST_F(HistoryDatabaseTest, VolumesThatWereDiscardedPushOutNoneThatWasLost) {
  const auto database = Open();
  ASSERT_NE(database, nullptr);
  std::vector<HistoryRow> rows;
  for (uint64_t n = 1; n <= 20; ++n) {
    rows.push_back(Row(n, true, HistoryKind::kVolume));
    rows.back().state = n <= 2 ? "LOST" : n <= 4 ? "COMMITTED" : "DISCARDED";
  }
  ASSERT_THAT(database->Write(rows), IsOk());
  ASSERT_THAT(database->Prune({.kept = 3, .days = 0}, 0).status(), IsOk());
  std::vector<uint64_t> numbers;
  for (const HistoryRow& row : Load(*database)) numbers.push_back(row.number);
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 4, 18, 19, 20));
}

TEST_F(HistoryDatabaseTest, RowsOfKindsThatAreNotKnownAreLeftOutAndStay) {
  const auto database = Open();
  ASSERT_NE(database, nullptr);
  HistoryRow newer = Row(1);
  newer.kind = static_cast<HistoryKind>(99);
  ASSERT_THAT(database->Write({newer, Row(2)}), IsOk());
  ASSERT_THAT(database->Prune({.kept = 1, .days = 0}, 0).status(), IsOk());
  EXPECT_EQ(Load(*database), std::vector<HistoryRow>{Row(2)});
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(Path().c_str(), &other), SQLITE_OK);
  int rows = 0;
  EXPECT_EQ(sqlite3_exec(
                other, "SELECT name FROM work WHERE kind = 99",
                [](void* counted, int, char**, char**) {
                  ++*static_cast<int*>(counted);
                  return 0;
                },
                &rows, nullptr),
            SQLITE_OK);
  sqlite3_close(other);
  EXPECT_EQ(rows, 1);
}

TEST_F(HistoryDatabaseTest, TheWayToItMayLeadThroughALink) {
  std::filesystem::create_directory(temp_ / "elsewhere");
  std::filesystem::create_directory_symlink(temp_ / "elsewhere", temp_ / "link");
  EXPECT_THAT(HistoryDatabase::Open(temp_ / "link/history", &report_), IsOk());
  EXPECT_TRUE(std::filesystem::exists(temp_ / "elsewhere/history/history.sqlite"));
}

TEST_F(HistoryDatabaseTest, AFullDiskIsAnErrorAndTheRowsBeforeItStay) {
  const auto database = Open();
  ASSERT_THAT(database->Write({Row(1)}), IsOk());
  std::vector<HistoryRow> rows;
  for (uint64_t n = 2; n < 500; ++n) {
    rows.push_back(Row(n));
    rows.back().details = std::string(2000, 'd');
  }
  // A file may not grow as on a disk that is full.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = database->Write(rows);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(full.ok());
  EXPECT_FALSE(absl::IsDataLoss(full)) << full;
  EXPECT_EQ(Load(*database), std::vector<HistoryRow>{Row(1)});
  EXPECT_THAT(database->Write(rows), IsOk());
  EXPECT_EQ(Load(*database).size(), 499u);
}

TEST_F(HistoryDatabaseTest, ErrorsOfTheDiskKeepTheirReason) {
  const auto database = Open();
  ArmFailpoint("history_write:errno=28");
  const absl::Status full = database->Write({Row(1)});
  EXPECT_EQ(InfoOf(full).reason, Reason::kDiskFull) << full;
}

TEST_F(HistoryDatabaseTest, AKillLeavesAllRowsOfAWriteOrNone) {
  for (const char* point : {"history_write", "history_commit", "history_committed"}) {
    SCOPED_TRACE(point);
    std::filesystem::remove_all(folder_);
    const ::pid_t child = ::fork();
    if (child == 0) {
      auto database = HistoryDatabase::Open(folder_, nullptr);
      (void)(*database)->Write({Row(1)});
      ArmFailpoint(absl::StrCat(point, ":kill"));
      (void)(*database)->Write({Row(2), Row(3)});
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (std::string(point) == "history_committed") {
      EXPECT_THAT(Names(), ElementsAre("scans/1", "scans/2", "scans/3"));
    } else {
      EXPECT_THAT(Names(), ElementsAre("scans/1"));
    }
    EXPECT_THAT(report_, IsEmpty());
  }
}

TEST_F(HistoryDatabaseTest, OldRowsAreRemoved) {
  const auto database = Open();
  std::vector<HistoryRow> rows;
  for (uint64_t n = 1; n <= 10; ++n) {
    rows.push_back(Row(n, n != 2));
    rows.push_back(Row(n, true, HistoryKind::kJob));
  }
  ASSERT_THAT(database->Write(rows), IsOk());
  // By number: of each kind the newest that have ended, and what has not ended.
  ASSERT_OK_AND_ASSIGN(int64_t removed, database->Prune({.kept = 3, .days = 0}, 0));
  EXPECT_EQ(removed, 6 + 7);
  std::vector<std::string> names;
  for (const HistoryRow& row : Load(*database)) names.push_back(row.name);
  EXPECT_THAT(names, ElementsAre("scans/2", "scans/8", "scans/9", "scans/10", "jobs/8", "jobs/9",
                                 "jobs/10"));
  // By age: they ended in the seconds of their numbers.
  ASSERT_OK_AND_ASSIGN(removed,
                       database->Prune({.kept = 100, .days = 1.0 / 86'400}, 10'500'000'000));
  EXPECT_EQ(removed, 4);
  names.clear();
  for (const HistoryRow& row : Load(*database)) names.push_back(row.name);
  EXPECT_THAT(names, ElementsAre("scans/2", "scans/10", "jobs/10"));
}

}  // namespace
}  // namespace octavo::storage
