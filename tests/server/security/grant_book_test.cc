#include "server/security/grant_book.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/security/rights.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::TempFolder;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;
const Owner kAda{.name = "ada", .project = "retina"};

Principal Token(const std::string& name, const std::string& project = "cornea") {
  return {.name = name,
          .role = Role::kOperator,
          .project = project,
          .proof = Proof::kToken,
          .token_id = "01234567",
          .found = ""};
}

class GrantBookTest : public ::testing::Test {
 protected:
  void TearDown() override { ArmFailpoint(""); }

  std::string path() const { return folder_ / "grants.json"; }
  std::unique_ptr<GrantBook> Open(const std::string& server_id = "abcd1234",
                                  GrantBook::Limits limits = {}) {
    aside_.clear();
    auto book = GrantBook::Open(path(), server_id, &clock_, &aside_, limits);
    EXPECT_TRUE(book.ok()) << book.status();
    return book.ok() ? *std::move(book) : nullptr;
  }
  std::string Text() const {
    std::ifstream in(path());
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(one.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  static bool May(const GrantBook& book, const std::string& who, const std::string& object,
                  const std::string& parent = "", const Owner& owner = kAda) {
    Principal caller = Token(who);
    caller.granted = book.Of(caller);
    return IsChangeableBy(caller, owner, object, parent);
  }
  static absl::Status Always(const Grant&) { return absl::OkStatus(); }

  TempFolder folder_;
  FakeClock clock_;
  std::string aside_;
};

TEST_F(GrantBookTest, WithoutAFileNothingIsGranted) {
  const auto book = Open();
  EXPECT_EQ(aside_, "");
  EXPECT_TRUE(book->List().empty());
  EXPECT_EQ(book->Of(Token("bob")), nullptr);
  EXPECT_TRUE(Files().empty());  // nothing is written for nothing
}

TEST_F(GrantBookTest, AGrantIsForItsObjectItsVolumesItsOwnerAndItsGrantee) {
  const auto book = Open();
  ASSERT_TRUE(book->Put(kAda, "scans/a-1", "bob", 60 * kSecond).ok());
  EXPECT_TRUE(May(*book, "bob", "scans/a-1"));
  EXPECT_TRUE(May(*book, "bob", "volumes/a-9", "scans/a-1"));
  EXPECT_FALSE(May(*book, "bob", "scans/a-2"));
  EXPECT_FALSE(May(*book, "bob", "volumes/a-9", "scans/a-2"));
  EXPECT_FALSE(May(*book, "carol", "scans/a-1"));
  // What a third one made of the scan has the same parent, and another owner.
  EXPECT_FALSE(May(*book, "bob", "volumes/a-9", "scans/a-1", {.name = "carol"}));
  EXPECT_FALSE(May(*book, "bob", "scans/a-1", "", {.name = "ada", .project = "other"}));
}

TEST_F(GrantBookTest, AllIsAllOfTheOwnerAndOfNobodyElse) {
  const auto book = Open();
  ASSERT_TRUE(book->Put(kAda, "", "bob", 60 * kSecond).ok());
  EXPECT_TRUE(May(*book, "bob", "buffers/x"));
  EXPECT_TRUE(May(*book, "bob", "the lease of buffers/x, fence 3"));
  EXPECT_FALSE(May(*book, "bob", "buffers/x", "", {.name = "carol", .project = "retina"}));
  EXPECT_FALSE(May(*book, "bob", "buffers/x", "", {.name = "loopback"}));
}

TEST_F(GrantBookTest, CallersWithoutIdentityGetNothing) {
  const auto book = Open();
  ASSERT_TRUE(book->Put(kAda, "", "bob", 60 * kSecond).ok());
  Principal nobody{.name = "bob", .role = Role::kOperator, .proof = Proof::kNone};
  EXPECT_EQ(book->Of(nobody), nullptr);
  EXPECT_EQ(book->Of(ServerItself()), nullptr);
  EXPECT_NE(book->Of(Token("bob", "whatever")), nullptr);  // in whichever project
}

TEST_F(GrantBookTest, ItOutlivesTheBookAndKeepsItsOrder) {
  std::vector<std::string> names;
  {
    const auto book = Open();
    for (const char* object : {"scans/a-1", "jobs/a-2", "volumes/a-3", ""})
      names.push_back(book->Put(kAda, object, "bob", 60 * kSecond)->name);
    ASSERT_TRUE(book->Put({.name = "cn:Änne \"B\" \\"}, "", "cn:Zoë", 60 * kSecond).ok());
  }
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(Files(), std::vector<std::string>{"grants.json"});
  const auto book = Open();
  EXPECT_EQ(aside_, "");
  const std::vector<Grant> list = book->List();
  ASSERT_EQ(list.size(), 5u);
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(list[i].name, names[i]);
  EXPECT_EQ(list[4].owner.name, "cn:Änne \"B\" \\");
  EXPECT_EQ(list[0].owner, kAda);
  EXPECT_TRUE(May(*book, "bob", "jobs/a-2"));
  EXPECT_TRUE(absl::StartsWith(names[0], "grants/abcd1234-"));
}

TEST_F(GrantBookTest, ItEndsByTheWallClockWhicheverWayThatGoes) {
  const auto book = Open();
  ASSERT_TRUE(book->Put(kAda, "scans/a-1", "bob", 10 * kSecond).ok());
  ASSERT_TRUE(book->Put(kAda, "scans/a-2", "bob", 20 * kSecond).ok());
  clock_.Advance(9.9);
  EXPECT_TRUE(May(*book, "bob", "scans/a-1"));
  clock_.Advance(0.2);
  EXPECT_FALSE(May(*book, "bob", "scans/a-1"));
  EXPECT_TRUE(May(*book, "bob", "scans/a-2"));
  EXPECT_EQ(book->List().size(), 1u);
  EXPECT_EQ(book->Count(), 1);
  clock_.Advance(1000);
  EXPECT_FALSE(May(*book, "bob", "scans/a-2"));
  EXPECT_EQ(book->Count(), 0);
  clock_.Advance(-1000);  // the clock was wrong, and nothing has been written meanwhile
  EXPECT_TRUE(May(*book, "bob", "scans/a-2"));
  // A restart after the end brings it back no more.
  clock_.Advance(1000);
  EXPECT_EQ(Open()->Count(), 0);
}

TEST_F(GrantBookTest, TheSameAgainHasTheNewEndAndTheOldName) {
  const auto book = Open();
  const Grant first = *book->Put(kAda, "scans/a-1", "bob", 10 * kSecond);
  const Grant other = *book->Put(kAda, "scans/a-1", "carol", 10 * kSecond);
  clock_.Advance(5);
  const Grant again = *book->Put(kAda, "scans/a-1", "bob", 60 * kSecond);
  EXPECT_EQ(again.name, first.name);
  EXPECT_EQ(again.expires_unix_ns, clock_.Now().unix_ns + 60 * kSecond);
  EXPECT_EQ(again.created_unix_ns, clock_.Now().unix_ns);
  const std::vector<Grant> list = book->List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, other.name);  // the other one is the oldest now
  clock_.Advance(30);
  EXPECT_TRUE(May(*book, "bob", "scans/a-1"));
  // It may become shorter, too.
  ASSERT_TRUE(book->Put(kAda, "scans/a-1", "bob", 1 * kSecond).ok());
  clock_.Advance(2);
  EXPECT_FALSE(May(*book, "bob", "scans/a-1"));
  EXPECT_NE(book->Put(kAda, "scans/a-1", "bob", 1 * kSecond)->name, first.name);  // it had ended
}

TEST_F(GrantBookTest, WhatIsTakenBackIsGone) {
  const auto book = Open();
  const Grant grant = *book->Put(kAda, "scans/a-1", "bob", 60 * kSecond);
  EXPECT_EQ(book->Remove(grant.name, [](const Grant&) { return absl::PermissionDeniedError("no"); })
                .status()
                .code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(May(*book, "bob", "scans/a-1"));
  EXPECT_EQ(book->Remove(grant.name, Always)->grantee, "bob");
  EXPECT_FALSE(May(*book, "bob", "scans/a-1"));
  for (const std::string& name : {grant.name, std::string("grants/none"), std::string()}) {
    const absl::Status gone = book->Remove(name, Always).status();
    EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(InfoOf(gone).reason, Reason::kGrantEnded);
  }
  const Grant ended = *book->Put(kAda, "scans/a-1", "bob", 1 * kSecond);
  clock_.Advance(2);
  EXPECT_EQ(InfoOf(book->Remove(ended.name, Always).status()).reason, Reason::kGrantEnded);
  EXPECT_EQ(Open()->List().size(), 0u);
}

TEST_F(GrantBookTest, BothBoundsHoldAndWhatHasEndedMakesRoom) {
  const auto book = Open("abcd1234", {.of_owner = 3, .in_all = 5});
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(book->Put(kAda, absl::StrCat("scans/a-", i), "bob", 10 * kSecond).ok());
  absl::Status full = book->Put(kAda, "scans/a-9", "bob", 10 * kSecond).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(InfoOf(full).reason, Reason::kGrants);
  EXPECT_THAT(std::string(full.message()), HasSubstr("ada has 3 grants; allowed 3"));
  EXPECT_TRUE(book->Put(kAda, "scans/a-0", "bob", 100 * kSecond).ok());  // no new one
  const Owner elsewhere{.name = "ada", .project = "cornea"};             // another owner
  EXPECT_TRUE(book->Put(elsewhere, "scans/b-1", "bob", 100 * kSecond).ok());
  EXPECT_TRUE(book->Put({.name = "carol"}, "scans/c-1", "bob", 100 * kSecond).ok());
  full = book->Put({.name = "dora"}, "scans/d-1", "bob", 100 * kSecond).status();
  EXPECT_EQ(InfoOf(full).reason, Reason::kGrants);
  EXPECT_THAT(std::string(full.message()), HasSubstr("the server has 5 grants; allowed 5"));
  clock_.Advance(20);  // two of ada's have ended
  EXPECT_TRUE(book->Put({.name = "dora"}, "scans/d-1", "bob", 100 * kSecond).ok());
  EXPECT_TRUE(book->Put(kAda, "scans/a-9", "bob", 100 * kSecond).ok());
  EXPECT_EQ(InfoOf(book->Put(kAda, "scans/a-8", "bob", kSecond).status()).reason, Reason::kGrants);
}

TEST_F(GrantBookTest, WhatTheFileCannotHoldIsRefused) {
  // The names of such principals fill the file long before the number of grants is reached: one
  // takes some 600 bytes. A file of that size is made at once, because each grant writes it anew.
  std::string text = "{\"format\":\"octavo grants 1\",\"server_id\":\"abcd1234\",\"grants\":[\n";
  const std::string long_name(250, 'x');
  int n = 0;
  for (; text.size() + 1000 < GrantFile::kMostBytes; ++n)
    absl::StrAppend(&text, n == 0 ? "" : ",\n", "{\"name\":\"grants/abcd1234-", n,
                    "\",\"object\":\"\",\"grantee\":\"cn:", long_name, "\",\"owner\":\"cn:", n,
                    "\",\"project\":\"\",\"created_unix_ns\":1,\"expires_unix_ns\":"
                    "9000000000000000000}");
  absl::StrAppend(&text, "\n]}\n");
  folder_.Write("grants.json", text);
  ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
  const auto full = Open("abcd1234", {.of_owner = 100'000, .in_all = 100'000});
  ASSERT_EQ(full->Count(), n) << aside_;
  absl::Status refused;
  int more = 0;
  for (; refused.ok() && more < 10; ++more)
    refused = full->Put(kAda, absl::StrCat("scans/", more), absl::StrCat("cn:", long_name), kSecond)
                  .status();
  EXPECT_EQ(InfoOf(refused).reason, Reason::kGrants) << refused;
  const std::string name = full->List()[0].name;
  EXPECT_TRUE(full->Remove(name, Always).ok());
  EXPECT_TRUE(Open()->Count() > 0) << aside_;
}

TEST_F(GrantBookTest, AFailedWriteChangesNothing) {
  const auto book = Open();
  const Grant grant = *book->Put(kAda, "scans/a-1", "bob", 60 * kSecond);
  const std::string before = Text();
  // `secret_sync` fails when the new file has its place already.
  for (const char* point : {"secret_write", "secret_sync"}) {
    for (const auto& [error, reason] :
         {std::pair(ENOSPC, Reason::kDiskFull), std::pair(EDQUOT, Reason::kDiskFull),
          std::pair(EIO, Reason::kIoError)}) {
      ArmFailpoint(absl::StrCat(point, ":errno=", error));
      EXPECT_EQ(InfoOf(book->Put(kAda, "scans/a-2", "bob", kSecond).status()).reason, reason);
      ArmFailpoint(absl::StrCat(point, ":errno=", error));
      EXPECT_EQ(InfoOf(book->Put(kAda, "scans/a-1", "bob", 90 * kSecond).status()).reason, reason);
      ArmFailpoint(absl::StrCat(point, ":errno=", error));
      EXPECT_EQ(InfoOf(book->Remove(grant.name, Always).status()).reason, reason);
      EXPECT_EQ(Text(), before) << point;
      EXPECT_EQ(Files(), std::vector<std::string>{"grants.json"});
      EXPECT_TRUE(May(*book, "bob", "scans/a-1"));
      EXPECT_FALSE(May(*book, "bob", "scans/a-2"));
      ASSERT_EQ(book->List().size(), 1u);
      EXPECT_EQ(book->List()[0].expires_unix_ns, grant.expires_unix_ns);
    }
  }
  EXPECT_EQ(InfoOf(Open()->Remove("grants/x", Always).status()).reason, Reason::kGrantEnded);
  EXPECT_TRUE(book->Put(kAda, "scans/a-2", "bob", kSecond).ok());
}

TEST_F(GrantBookTest, TheFirstWriteMayFail) {
  const auto book = Open();
  ArmFailpoint(absl::StrCat("secret_sync:errno=", EIO));
  EXPECT_FALSE(book->Put(kAda, "scans/a-1", "bob", 60 * kSecond).ok());
  EXPECT_EQ(Open()->Count(), 0);
  EXPECT_EQ(aside_, "");
}

TEST_F(GrantBookTest, AFolderThatIsGoneIsAnErrorAndNoCrash) {
  std::string aside;
  const auto book = GrantBook::Open(folder_ / "gone/grants.json", "abcd1234", &clock_, &aside);
  ASSERT_TRUE(book.ok());
  EXPECT_EQ(InfoOf((*book)->Put(kAda, "", "bob", kSecond).status()).reason, Reason::kIoError);
  EXPECT_EQ((*book)->Count(), 0);
}

TEST_F(GrantBookTest, ADamagedFileIsPutAsideAndGrantsNothing) {
  {
    const auto book = Open();
    ASSERT_TRUE(book->Put(kAda, "scans/a-1", "bob", 600 * kSecond).ok());
    ASSERT_TRUE(book->Put(kAda, "scans/a-2", "bob", 600 * kSecond).ok());
  }
  const std::string sound = Text();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = sound;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  std::vector<std::string> damaged = {
      "",
      "x",
      "[]",
      "null",
      "{}",
      std::string(100'000, '['),
      std::string("\0\0\0", 3),
      sound + "x",
      with("octavo grants 1", "octavo grants 2"),
      with("abcd1234\",\"grants\"", "zzzz9999\",\"grants\""),
      with("\"object\":\"scans/a-1\",", ""),  // nothing is not everything
      with("\"object\":\"scans/a-1\"", "\"object\":null"),
      with("\"object\":\"scans/a-1\"", "\"object\":\"sessions/a-1\""),
      with("\"grantee\":\"bob\"", "\"grantee\":\"loopback\""),
      with("\"grantee\":\"bob\"", "\"grantee\":\"b\xff\""),
      with("\"owner\":\"ada\"", "\"owner\":\"\""),
      with("\"owner\":\"ada\"", "\"owner\":\"remote\""),
      with("\"project\":\"retina\"", "\"project\":7"),
      with("\"expires_unix_ns\":", "\"expires_unix_ns\":-"),
      with("\"expires_unix_ns\":", "\"expires_unix_ns\":9"),  // more than 64 bits
      with("\"grants\":[", "\"grants\":{"),
      with("\"grants\":[", "\"grants\":[3,")};
  for (const size_t size : {size_t{1}, sound.size() / 2, sound.size() - 3})
    damaged.push_back(sound.substr(0, size));
  std::string twice = sound;
  const size_t second = twice.rfind("grants/");
  const size_t first = twice.find("grants/");
  ASSERT_NE(first, second);
  damaged.push_back(twice.replace(second, 48, twice.substr(first, 48)));
  size_t put_aside = 0;
  for (const std::string& text : damaged) {
    folder_.Write("grants.json", text);
    ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
    const auto book = Open();
    ASSERT_NE(book, nullptr);
    EXPECT_THAT(aside_, HasSubstr("/grants.json.damaged-")) << text.substr(0, 200);
    EXPECT_EQ(book->Count(), 0);
    EXPECT_FALSE(May(*book, "bob", "scans/a-1"));
    EXPECT_FALSE(May(*book, "bob", "scans/a-2"));
    EXPECT_FALSE(std::filesystem::exists(path()));
    EXPECT_EQ(Files().size(), ++put_aside);  // each under a name of its own
  }
}

TEST_F(GrantBookTest, AFileThatCannotBeReadNowFailsTheOpenAndStaysAsItIs) {
  const std::string name = Open()->Put(kAda, "scans/a-1", "bob", 600 * kSecond)->name;
  const std::string sound = Text();
  for (const int error : {EIO, EMFILE, ENFILE, ENOMEM, EINTR, ESTALE}) {
    ArmFailpoint(absl::StrCat("secret_read:errno=", error));
    std::string aside;
    const auto book = GrantBook::Open(path(), "abcd1234", &clock_, &aside);
    EXPECT_THAT(book, IsError(absl::StatusCode::kUnavailable, "grants.json: cannot be read"));
    EXPECT_EQ(aside, "");
    EXPECT_EQ(Text(), sound);
    EXPECT_EQ(Files(), std::vector<std::string>{"grants.json"});
  }
  const auto book = Open();
  ASSERT_EQ(book->List().size(), 1u);
  EXPECT_EQ(book->List()[0].name, name);
}

TEST_F(GrantBookTest, AFullTableOfDescriptorsIsNoDamage) {
  ASSERT_TRUE(Open()->Put(kAda, "scans/a-1", "bob", 600 * kSecond).ok());
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit none { .rlim_cur = 0, .rlim_max = before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string aside;
  const auto book = GrantBook::Open(path(), "abcd1234", &clock_, &aside);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(book, IsError(absl::StatusCode::kUnavailable, "cannot be opened"));
  EXPECT_EQ(aside, "");
  EXPECT_EQ(Open()->Count(), 1);
}

TEST_F(GrantBookTest, AFileThatOthersMayChangeGivesNoRights) {
  ASSERT_TRUE(Open()->Put(kAda, "scans/a-1", "bob", 600 * kSecond).ok());
  const std::string sound = Text();
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  EXPECT_EQ(Open()->Count(), 0);
  EXPECT_THAT(aside_, HasSubstr("has mode 0666"));
  // A link to a file elsewhere, and a folder.
  folder_.Write("elsewhere", sound);
  ASSERT_EQ(::chmod((folder_ / "elsewhere").c_str(), 0600), 0);
  ASSERT_EQ(::symlink((folder_ / "elsewhere").c_str(), path().c_str()), 0);
  EXPECT_EQ(Open()->Count(), 0);
  EXPECT_THAT(aside_, HasSubstr("is a link"));
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  EXPECT_EQ(Open()->Count(), 0);
  EXPECT_THAT(aside_, HasSubstr("is no regular file"));
  EXPECT_TRUE(Open()->Put(kAda, "scans/a-1", "bob", 600 * kSecond).ok());  // its name is free again
}

TEST_F(GrantBookTest, WhatAWriterThatDiedHasLeftIsInNobodysWay) {
  folder_.Write("grants.json.new", "torn");
  const auto book = Open();
  EXPECT_TRUE(book->Put(kAda, "scans/a-1", "bob", kSecond).ok());
  EXPECT_EQ(Files(), std::vector<std::string>{"grants.json"});
}

TEST_F(GrantBookTest, ManyChangeAndAskAtOnce) {
  const auto book = Open();
  std::atomic<bool> end{false};
  std::atomic<int> odd{0};
  ASSERT_TRUE(book->Put(kAda, "scans/kept", "bob", 600 * kSecond).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!end) {
        if (!May(*book, "bob", "scans/kept")) ++odd;
        const std::vector<Grant> list = book->List();
        for (size_t i = 1; i < list.size(); ++i) odd += list[i - 1].number >= list[i].number;
      }
    });
  }
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto put = book->Put(kAda, absl::StrCat("scans/", t, "-", i),
                                   i % 2 == 0 ? "bob" : "eve", 600 * kSecond);
        if (!put.ok() || (i % 4 == 0 && !book->Remove(put->name, Always).ok())) ++odd;
      }
    });
  }
  for (auto& thread : writers) thread.join();
  end = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(odd, 0);
  EXPECT_EQ(book->Count(), 1 + 3 * 15);
  EXPECT_EQ(Open()->Count(), 1 + 3 * 15);
}

TEST(GrantNames, OnlyNamesOfObjectsAndPrincipals) {
  for (const char* object : {"scans/a-1", "jobs/a", "volumes/abcd1234-0f", "buffers/1"})
    EXPECT_TRUE(IsGrantable(object)) << object;
  for (const char* object :
       {"", "scans/", "scans", "scans/a/b", "scans/*", "exports/a", "sessions/a", "operations/a",
        "Scans/a", " scans/a", "scans/a ", "scans/../jobs/a", "scans/a\n"})
    EXPECT_FALSE(IsGrantable(object)) << object;
  EXPECT_FALSE(IsGrantable("scans/" + std::string(200, 'a')));
  for (const char* name : {"bob", "b.o_b@x-1", "uid:1000", "cn:Änne Berg", "email:a@b.c"})
    EXPECT_TRUE(CouldBeGrantee(name)) << name;
  for (const char* name : {"", "loopback", "remote", "an na", "bob:", "octavod:itself",
                           "cn:", "cn:a\nb", "b\x7f", "*"})
    EXPECT_FALSE(CouldBeGrantee(name)) << name;
  EXPECT_FALSE(CouldBeGrantee("cn:" + std::string(300, 'a')));
}

}  // namespace
}  // namespace octavo::security
