#include "server/security/secret_file.h"

#include <atomic>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::HasSubstr;

class SecretFileTest : public ::testing::Test {
 protected:
  std::string Put(const std::string& bytes, mode_t mode = 0600) {
    folder_.Write("f", bytes);
    EXPECT_EQ(::chmod((folder_ / "f").c_str(), mode), 0);
    return folder_ / "f";
  }
  std::string Refused(const std::string& path) {
    const auto read = ReadSecretFile(path);
    EXPECT_FALSE(read.ok());
    return std::string(read.status().message());
  }
  mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::lstat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  }
  TempFolder folder_;
};

TEST_F(SecretFileTest, ReadsWhatOnlyItsOwnerMayRead) {
  EXPECT_EQ(ReadSecretFile(Put("abc")).value(), "abc");
  EXPECT_EQ(ReadSecretFile(Put("abc", 0400)).value(), "abc");
  EXPECT_EQ(ReadSecretFile(Put("")).value(), "");
}

TEST_F(SecretFileTest, RefusesEveryModeThatLetsOthersIn) {
  for (const mode_t mode : {0601u, 0602u, 0604u, 0610u, 0620u, 0640u, 0644u, 0660u, 0777u})
    EXPECT_THAT(Refused(Put("abc", mode)), HasSubstr("allowed is 0600")) << mode;
  EXPECT_THAT(Refused(Put("abc", 0644)), HasSubstr("has mode 0644"));
}

TEST_F(SecretFileTest, RefusesLinksFoldersPipesAndWhatIsNotThere) {
  const std::string file = Put("abc");
  ASSERT_EQ(::symlink(file.c_str(), (folder_ / "link").c_str()), 0);
  EXPECT_THAT(Refused(folder_ / "link"), HasSubstr("is a link"));
  EXPECT_THAT(Refused(folder_.path()), HasSubstr("is no regular file"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(Refused(folder_ / "pipe"), HasSubstr("is no regular file"));  // and does not wait
  EXPECT_THAT(ReadSecretFile(folder_ / "none"), IsError(absl::StatusCode::kNotFound, ""));
  EXPECT_THAT(Refused("/dev/zero"), HasSubstr("is no regular file"));
}

TEST_F(SecretFileTest, RefusesWhatIsTooLarge) {
  const std::string file = Put("");
  ASSERT_EQ(::truncate(file.c_str(), kMostSecretFileBytes + 1), 0);
  EXPECT_THAT(Refused(file), HasSubstr("allowed are 4194304"));
}

TEST_F(SecretFileTest, RefusesTheFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string file = Put("abc");
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  EXPECT_THAT(Refused(file), HasSubstr("belongs to user 65534"));
  EXPECT_EQ(ReadSecretFile(file, Owners::kAnyIfRootReads).value(), "abc");
}

TEST_F(SecretFileTest, ANewFileHasMode0600AndReplacesNone) {
  ::umask(0);
  EXPECT_THAT(WriteNewSecretFile(folder_ / "new", "secret"), IsOk());
  EXPECT_EQ(ModeOf(folder_ / "new"), 0600u);
  EXPECT_THAT(WriteNewSecretFile(folder_ / "new", "other"),
              IsError(absl::StatusCode::kAlreadyExists, ""));
  EXPECT_EQ(ReadSecretFile(folder_ / "new").value(), "secret");
  ASSERT_EQ(::symlink((folder_ / "gone").c_str(), (folder_ / "link").c_str()), 0);
  EXPECT_FALSE(WriteNewSecretFile(folder_ / "link", "other").ok());
  EXPECT_THAT(WriteNewSecretFile(folder_ / "none/x", "other"),
              IsError(absl::StatusCode::kNotFound, ""));
}

TEST_F(SecretFileTest, AChangeIsWholeOrNone) {
  const std::string file = Put("old");
  EXPECT_THAT(ChangeSecretFile(file, false,
                               [](const std::string&) -> absl::StatusOr<std::string> {
                                 return absl::AbortedError("no");
                               }),
              IsError(absl::StatusCode::kAborted, ""));
  EXPECT_EQ(ReadSecretFile(file).value(), "old");
  EXPECT_THAT(ChangeSecretFile(file, false,
                               [](const std::string& old) -> absl::StatusOr<std::string> {
                                 return old + "new";
                               }),
              IsOk());
  EXPECT_EQ(ReadSecretFile(file).value(), "oldnew");
  EXPECT_EQ(ModeOf(file), 0600u);
  EXPECT_NE(::access((file + ".new").c_str(), F_OK), 0);
}

TEST_F(SecretFileTest, AFileThatIsMissingIsMadeOnlyWhenAsked) {
  const auto write = [](const std::string& old) -> absl::StatusOr<std::string> {
    EXPECT_EQ(old, "");
    return "x";
  };
  EXPECT_THAT(ChangeSecretFile(folder_ / "none", false, write),
              IsError(absl::StatusCode::kNotFound, ""));
  EXPECT_THAT(ChangeSecretFile(folder_ / "none", true,
                               [](const std::string&) -> absl::StatusOr<std::string> {
                                 return absl::AbortedError("no");
                               }),
              IsError(absl::StatusCode::kAborted, ""));
  EXPECT_NE(::access((folder_ / "none").c_str(), F_OK), 0);  // a failed change leaves no file
  EXPECT_THAT(ChangeSecretFile(folder_ / "none", true, write), IsOk());
  EXPECT_EQ(ReadSecretFile(folder_ / "none").value(), "x");
}

TEST_F(SecretFileTest, AChangeRefusesWhatOthersMayRead) {
  EXPECT_FALSE(ChangeSecretFile(Put("old", 0644), false, [](const std::string&) {
                 return absl::StatusOr<std::string>("new");
               }).ok());
  EXPECT_EQ(ModeOf(folder_ / "f"), 0644u);
}

TEST_F(SecretFileTest, RootKeepsTheOwnerAndGivesANewFileToThatOfTheFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const auto write = [](const std::string&) { return absl::StatusOr<std::string>("x"); };
  struct stat info {};
  ASSERT_EQ(::chown(folder_.path().c_str(), 65534, 65533), 0);
  EXPECT_THAT(ChangeSecretFile(folder_ / "made", true, write), IsOk());
  ASSERT_EQ(::stat((folder_ / "made").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 65534u);
  EXPECT_THAT(ChangeSecretFile(folder_ / "made", false, write), IsOk());
  ASSERT_EQ(::stat((folder_ / "made").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 65534u);
  EXPECT_EQ(info.st_gid, 65533u);
}

TEST_F(SecretFileTest, ChangesAtOnceLoseNone) {
  const std::string file = Put("");
  std::atomic<int> failed{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        if (!ChangeSecretFile(file, false, [](const std::string& old) {
               return absl::StatusOr<std::string>(old + ".");
             }).ok())
          ++failed;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(ReadSecretFile(file).value(), std::string(100, '.'));
}

}  // namespace
}  // namespace octavo::security
