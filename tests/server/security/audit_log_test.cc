#include "server/security/audit_log.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stop_token>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "gpu/base/failpoint.h"
#include "server/security/audit_file.h"
#include "server/security/lost_lines.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using nlohmann::json;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class AuditLogTest : public ::testing::Test {
 protected:
  void TearDown() override { ArmFailpoint(""); }
  std::unique_ptr<AuditLog> Open(const AuditLog::Limits& limits = {}) {
    auto log = AuditLog::Open(folder_, limits);
    EXPECT_THAT(log.status(), IsOk());
    return *std::move(log);
  }
  static std::vector<std::string> LinesOf(const std::string& path) {
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::vector<json> Lines() const {
    std::vector<json> lines;
    for (const std::string& line : LinesOf(current_)) lines.push_back(json::parse(line));
    return lines;
  }
  std::vector<std::string> Aside() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("audit-", 0) == 0) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // Waits until so many lines are written, without a fixed sleep.
  static void Await(const AuditLog& log, int64_t written) {
    for (int i = 0; i < 2000 && log.Count().written < written; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_GE(log.Count().written, written);
  }

  const TempFolder dir_;
  const std::string folder_ = dir_ / "audit", current_ = folder_ + "/audit.jsonl";
};

TEST_F(AuditLogTest, LinesHaveTimeAndNumberAndKeepTheirOrder) {
  {
    auto log = Open();
    for (int i = 0; i < 5; ++i)
      log->Write({{"event", "call"}, {"i", i}, {"object", "volumes/ä\xFF"}});
    EXPECT_EQ(log->Close(std::chrono::seconds(10)), 0u);
    log->Write({{"event", "too late"}});
    EXPECT_EQ(log->Count().dropped, 1);
    EXPECT_EQ(log->Count().written, 5);
  }
  const std::vector<std::string> lines = LinesOf(current_);
  ASSERT_THAT(lines, SizeIs(5));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(lines[i], ::testing::MatchesRegex(
                              R"(\{"time":"20..-..-..T..:..:..\.......Z","n":.,"event":"call".*)"));
    EXPECT_EQ(json::parse(lines[i])["i"], i);
    EXPECT_EQ(json::parse(lines[i])["n"], i + 1);
  }
  struct stat folder {
  }, file{};
  ASSERT_EQ(::stat(folder_.c_str(), &folder), 0);
  ASSERT_EQ(::stat(current_.c_str(), &file), 0);
  EXPECT_EQ(folder.st_mode & 0777, 0700u);
  EXPECT_EQ(file.st_mode & 0777 & ~0040u, 0600u);
}

TEST_F(AuditLogTest, AppendsToWhatIsThereAndEndsATornLine) {
  std::filesystem::create_directory(folder_);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  std::ofstream(current_) << "{\"old\":1}\n{\"torn\":";
  Open()->Write({{"event", "new"}});
  const std::vector<std::string> lines = LinesOf(current_);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[0], "{\"old\":1}");
  EXPECT_EQ(lines[1], "{\"torn\":");
  EXPECT_EQ(json::parse(lines[2])["event"], "new");
}

TEST_F(AuditLogTest, AFolderHasOneWriterAndNoOtherOwner) {
  auto log = Open();
  EXPECT_THAT(AuditLog::Open(folder_, {}).status(),
              IsError(absl::StatusCode::kFailedPrecondition, "used by another process"));
  log = nullptr;
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  EXPECT_THAT(AuditLog::Open(folder_, {}).status(),
              IsError(absl::StatusCode::kFailedPrecondition, "nobody else may write"));
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  std::filesystem::remove(current_);
  std::filesystem::create_symlink(dir_ / "elsewhere", current_);
  EXPECT_FALSE(AuditLog::Open(folder_, {}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "elsewhere"));
  std::ofstream(dir_ / "file") << "x";
  EXPECT_FALSE(AuditLog::Open(dir_ / "file", {}).ok());
}

TEST_F(AuditLogTest, AFullDiskDelaysLinesAndLosesNone) {
  auto log = Open();
  log->Write({{"i", 0}});
  Await(*log, 1);
  ArmFailpoint("audit_write:errno=28:*");
  log->Write({{"i", 1}});
  for (int i = 0; i < 20'000 && log->Count().errors == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(log->Count().failing);
  EXPECT_THAT(log->Count().error, HasSubstr("audit.jsonl"));
  EXPECT_EQ(log->Count().waiting, 1);
  log->Write({{"i", 2}});
  ArmFailpoint("");
  Await(*log, 3);
  EXPECT_FALSE(log->Count().failing);
  EXPECT_EQ(log->Count().error, "");
  const auto lines = Lines();
  ASSERT_THAT(lines, SizeIs(3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lines[i]["i"], i);
}

TEST_F(AuditLogTest, LinesWithoutAPlaceAreCountedInTheFile) {
  auto log = Open({.most_waiting = 10});
  ArmFailpoint("audit_write:errno=5:*");
  log->Write({{"i", 0}});
  for (int i = 0; i < 20'000 && log->Count().errors == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 1; i < 10'000 && log->Count().dropped < 20; ++i) log->Write({{"i", i}});
  const int64_t dropped = log->Count().dropped;
  EXPECT_EQ(dropped, 20);
  ArmFailpoint("");
  EXPECT_EQ(log->Close(std::chrono::seconds(60)), 0u);
  const auto lines = Lines();
  int64_t told = 0;
  for (const json& line : lines)
    told += line.value("event", "") == "lines lost" ? line["lines"].get<int64_t>() : 0;
  EXPECT_EQ(told + log->Count().waiting, dropped);
  EXPECT_EQ(lines.size(), static_cast<size_t>(log->Count().written));
}

TEST_F(AuditLogTest, WhoeverFailsAgainAndAgainDoesNotFillTheDisk) {
  auto log = Open({.failures_per_second = 1});
  for (int i = 0; i < 1000; ++i) {
    log->WriteFailure({{"event", "call"}, {"principal", "mallory"}}, "mallory");
    if (i % 100 == 0) log->WriteFailure({{"event", "call"}, {"principal", "anna"}}, "anna");
  }
  log->Write({{"event", "success"}});
  EXPECT_EQ(log->Close(std::chrono::seconds(10)), 0u);
  int64_t of_mallory = 0, of_anna = 0, left_out = 0, successes = 0;
  for (const json& line : Lines()) {
    of_mallory += line["event"] == "call" && line["principal"] == "mallory";
    of_anna += line["event"] == "call" && line["principal"] == "anna";
    successes += line["event"] == "success";
    if (line["event"] != "lines left out") continue;
    EXPECT_EQ(line["principal"], "mallory");
    left_out += line["lines"].get<int64_t>();
  }
  EXPECT_GE(of_mallory, 10);
  EXPECT_LT(of_mallory, 100);
  EXPECT_EQ(of_mallory + left_out, 1000);
  EXPECT_EQ(left_out, log->Count().left_out);
  EXPECT_EQ(of_anna, 10);
  EXPECT_EQ(successes, 1);
}

TEST_F(AuditLogTest, LongLinesOfFailuresCountAsSeveral) {
  auto log = Open({.failures_per_second = 1});
  for (int i = 0; i < 100; ++i)
    log->WriteFailure({{"event", "call"}, {"object", std::string(5000, 'x')}}, "mallory");
  EXPECT_EQ(log->Close(std::chrono::seconds(10)), 0u);
  EXPECT_LE(Lines().size(), 5u) << "and one that says how many were left out";
  EXPECT_GE(log->Count().left_out, 96);
}

TEST_F(AuditLogTest, AFailureWithBytesThatAreNoUtf8HasItsLine) {
  auto log = Open();
  log->WriteFailure({{"object", "volumes/\xFF"}}, "mallory");
  EXPECT_EQ(log->Close(std::chrono::seconds(10)), 0u);
  EXPECT_EQ(log->Count().dropped, 0);
  EXPECT_THAT(Lines(), SizeIs(1));
}

TEST_F(AuditLogTest, LinesAreAscii) {
  Open()->Write({{"object", "a\u202e\u2028ä"}});
  const std::vector<std::string> lines = LinesOf(current_);
  ASSERT_THAT(lines, SizeIs(1));
  for (const char c : lines[0]) EXPECT_GT(c, 0) << "a terminal shows it as it is";
  EXPECT_EQ(json::parse(lines[0])["object"], "a\u202e\u2028ä");
}

// A long line is made without the lock: whoever asks, or has another line, does not wait for it. A
// machine may stop the thread that asks, so one of some attempts counts.
TEST_F(AuditLogTest, NobodyWaitsWhileALongLineIsMade) {
  const std::string text(size_t{2} << 20, '\x01');  // six bytes each
  const AuditLine line = {{"event", "call"}, {"object", text}};
  using Clock = std::chrono::steady_clock;
  bool quick = false;
  for (int attempt = 0; attempt < 10 && !quick; ++attempt) {
    auto log = Open({.fsync = false});
    Clock::duration longest{}, took{};
    {
      std::jthread asks([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          const auto before = Clock::now();
          (void)log->Count();
          longest = std::max(longest, Clock::now() - before);
        }
      });
      const auto before = Clock::now();
      log->Write(line);
      took = Clock::now() - before;
    }
    quick = longest < took / 2;
    log = nullptr;
    std::filesystem::remove_all(folder_);
  }
  EXPECT_TRUE(quick);
}

TEST_F(AuditLogTest, FilesArePutAsideAndTheOldestGo) {
  {
    auto log = Open({.bytes = 1000, .kept = 2});
    for (int i = 0; i < 40; ++i) {
      log->Write({{"i", i}, {"text", std::string(200, 'x')}});
      Await(*log, i + 1);
    }
    EXPECT_EQ(log->Close(std::chrono::seconds(10)), 0u);
  }
  const std::vector<std::string> aside = Aside();
  ASSERT_THAT(aside, SizeIs(2));
  // The files that are left have the last lines, in order.
  std::vector<int> kept;
  std::vector<std::string> gone;
  for (const std::string& name : {folder_ + "/" + aside[0], folder_ + "/" + aside[1], current_}) {
    for (const std::string& text : LinesOf(name)) {
      const json line = json::parse(text);
      if (!line.contains("event")) {
        kept.push_back(line["i"]);
        continue;
      }
      EXPECT_EQ(line["event"], "file removed");
      EXPECT_GE(line["bytes"].get<int64_t>(), 1000);
      gone.push_back(line["file"]);
    }
  }
  // And they say which files went, in order.
  ASSERT_FALSE(gone.empty());
  EXPECT_TRUE(std::is_sorted(gone.begin(), gone.end()));
  EXPECT_LT(gone.back(), aside[0]);
  ASSERT_GE(kept.size(), 8u);
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(kept[i], 40 - static_cast<int>(kept.size()) + static_cast<int>(i));
}

TEST_F(AuditLogTest, AFileThatWasMovedAwayIsMadeAnew) {
  auto log = Open();
  log->Write({{"i", 0}});
  Await(*log, 1);
  std::filesystem::rename(current_, folder_ + "/mine");
  log->Write({{"i", 1}});
  Await(*log, 2);
  std::filesystem::remove(current_);
  log->Write({{"i", 2}});
  Await(*log, 3);
  EXPECT_THAT(LinesOf(folder_ + "/mine"), ElementsAre(HasSubstr("\"i\":0")));
  EXPECT_THAT(LinesOf(current_), ElementsAre(HasSubstr("\"i\":2")));
}

TEST(LostLinesTest, TheNextStartReadsTheNumberOnce) {
  const TempFolder dir;
  const std::string path = dir / "lost";
  {
    ASSERT_OK_AND_ASSIGN(LostLines lost, LostLines::Open(path));
    EXPECT_EQ(lost.before(), 0);
    const auto size = std::filesystem::file_size(path);
    EXPECT_THAT(lost.Note(35), IsOk());
    EXPECT_EQ(std::filesystem::file_size(path), size) << "no more room is taken";
  }
  {
    ASSERT_OK_AND_ASSIGN(LostLines lost, LostLines::Open(path));
    EXPECT_EQ(lost.before(), 35);
  }
  ASSERT_OK_AND_ASSIGN(LostLines lost, LostLines::Open(path));
  EXPECT_EQ(lost.before(), 0);
  EXPECT_THAT(lost.Note(int64_t{1} << 62), IsOk());
  for (const char* const text : {"", "words", "-000000000000005\n", "99999999999999999999"}) {
    std::ofstream(path, std::ios::trunc) << text;
    ASSERT_OK_AND_ASSIGN(const LostLines damaged, LostLines::Open(path));
    EXPECT_EQ(damaged.before(), 0) << text;
  }
  std::filesystem::remove(path);
  std::filesystem::create_symlink(dir / "elsewhere", path);
  EXPECT_FALSE(LostLines::Open(path).ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "elsewhere"));
}

// The clock was wrong once, and is put right: the newest lines are not the first to go.
TEST(AuditFileTest, FilesOfALaterTimeAreNoYoungerThanNewOnes) {
  const TempFolder dir;
  const std::string folder = dir / "audit";
  ASSERT_OK_AND_ASSIGN(AuditFile file, AuditFile::Open(folder));
  for (const char* name : {"audit-20990101T000000Z-0001.jsonl", "audit-20990101T000000Z-0007.jsonl",
                           "audit-of-last-year.jsonl"})
    std::ofstream(folder + "/" + name) << "{}\n";
  std::vector<AuditFile::Removed> removed;
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(file.Append("{\"i\":" + std::to_string(i) + "}\n", false), IsOk());
    ASSERT_THAT(file.Rotate(1, 5, &removed), IsOk());
  }
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  EXPECT_THAT(left, ::testing::ElementsAre(
                        "audit-20990101T000000Z-0008.jsonl", "audit-20990101T000000Z-0009.jsonl",
                        "audit-20990101T000000Z-0010.jsonl", "audit-20990101T000000Z-0011.jsonl",
                        "audit-of-last-year.jsonl", "audit.jsonl", "audit.lock"));
  std::string text;
  std::ifstream(folder + "/audit-20990101T000000Z-0011.jsonl") >> text;
  EXPECT_EQ(text, "{\"i\":3}");
}

TEST(AuditFileTest, NumbersMayHaveMoreDigitsThanPlaces) {
  const TempFolder dir;
  const std::string folder = dir / "audit";
  ASSERT_OK_AND_ASSIGN(AuditFile file, AuditFile::Open(folder));
  for (const char* name :
       {"audit-20990101T000000Z-9998.jsonl", "audit-20990101T000000Z-9999.jsonl"})
    std::ofstream(folder + "/" + name) << "{}\n";
  std::vector<AuditFile::Removed> removed;
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(file.Append("{}\n", false), IsOk());
    ASSERT_THAT(file.Rotate(1, 2, &removed), IsOk());
  }
  EXPECT_FALSE(std::filesystem::exists(folder + "/audit-20990101T000000Z-10000.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/audit-20990101T000000Z-10001.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/audit-20990101T000000Z-10002.jsonl"));
  ASSERT_EQ(removed.size(), 3u);
  EXPECT_EQ(removed[0].name, "audit-20990101T000000Z-9998.jsonl");
}

TEST(AuditFileTest, AFailedWriteLeavesNoHalfLine) {
  const TempFolder dir;
  const std::string folder = dir / "audit";
  ASSERT_OK_AND_ASSIGN(AuditFile file, AuditFile::Open(folder));
  ASSERT_THAT(file.Append("{\"i\":0}\n", true), IsOk());
  // The limit on the size of files fails the second half of the write.
  struct rlimit_guard {
    rlimit_guard() {
      ::getrlimit(RLIMIT_FSIZE, &old);
      old_handler = ::signal(SIGXFSZ, SIG_IGN);
      struct rlimit small = old;
      small.rlim_cur = 20;
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    ~rlimit_guard() {
      ::setrlimit(RLIMIT_FSIZE, &old);
      ::signal(SIGXFSZ, old_handler);
    }
    struct rlimit old {};
    sighandler_t old_handler = nullptr;
  };
  {
    const rlimit_guard guard;
    EXPECT_FALSE(file.Append("{\"i\":1,\"text\":\"xxxxxxxxxxxxxx\"}\n", true).ok());
    EXPECT_EQ(std::filesystem::file_size(folder + "/audit.jsonl"), 8u);
  }
  ASSERT_THAT(file.Append("{\"i\":2}\n", true), IsOk());
  std::ifstream in(folder + "/audit.jsonl");
  std::string all((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(all, "{\"i\":0}\n{\"i\":2}\n");
}

}  // namespace
}  // namespace octavo::security
