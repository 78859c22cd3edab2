// The records of scans that go on after a restart: what is written is read; after a failure at any
// step there is the old record or the new one; what is no record is put aside.

#include "server/storage/resume/resume_folder.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

class ResumeFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void TearDown() override { ArmFailpoint(""); }

  void Open() {
    found_.clear();
    report_.clear();
    ASSERT_OK_AND_ASSIGN(folder_, ResumeFolder::Open(path_, &found_, &report_));
  }
  static ResumeRecord Record(const std::string& id = "server-1") {
    return {.id = id,
            .scan = "scans/" + id,
            .owner = "ada\xC3\xA9",
            .project = "eyes",
            .role = "operator",
            .early_deaths = 2,
            .early = true,
            .begun_unix_ns = 1'700'000'000'000'000'001,
            .request = std::string("\0\xFF bytes\n", 9)};
  }
  std::string Bytes(const std::string& name) {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Overwrite(const std::string& name, const std::string& bytes) {
    temp_.Write("resume/" + name, bytes);
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder temp_;
  const std::string path_ = temp_ / "resume";
  std::unique_ptr<ResumeFolder> folder_;
  std::vector<std::string> found_, report_;
};

TEST_F(ResumeFolderTest, ARecordIsReadAsItWasWritten) {
  ASSERT_THAT(folder_->Put(Record()), IsOk());
  Open();
  EXPECT_THAT(found_, ElementsAre("server-1"));
  EXPECT_THAT(report_, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const ResumeRecord read, folder_->Get("server-1"));
  const ResumeRecord wrote = Record();
  EXPECT_EQ(read.id, wrote.id);
  EXPECT_EQ(read.scan, wrote.scan);
  EXPECT_EQ(read.owner, wrote.owner);
  EXPECT_EQ(read.project, wrote.project);
  EXPECT_EQ(read.role, wrote.role);
  EXPECT_EQ(read.early_deaths, wrote.early_deaths);
  EXPECT_EQ(read.early, wrote.early);
  EXPECT_EQ(read.begun_unix_ns, wrote.begun_unix_ns);
  EXPECT_EQ(read.request, wrote.request);
}

TEST_F(ResumeFolderTest, FilesAndFolderArePrivate) {
  ASSERT_THAT(folder_->Put(Record()), IsOk());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat((path_ + "/server-1.resume").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // A folder that was opened to others is closed again.
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  Open();
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(ResumeFolderTest, WhatOthersMayWriteBeginsNoScan) {
  ASSERT_THAT(folder_->Put(Record("mine")), IsOk());
  ASSERT_THAT(folder_->Put(Record("open")), IsOk());
  ASSERT_EQ(::chmod((path_ + "/open.resume").c_str(), 0666), 0);
  Open();
  EXPECT_THAT(found_, ElementsAre("mine"));
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_THAT(report_[0], HasSubstr("can be written"));
  for (const mode_t mode : {0770u, 0720u, 0702u, 0777u}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    EXPECT_THAT(ResumeFolder::Open(path_, &found_, &report_),
                IsError(absl::StatusCode::kPermissionDenied, "chmod 700"));
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0700), 0);
  if (::geteuid() == 0) {  // only root can give files away
    ASSERT_EQ(::chown((path_ + "/mine.resume").c_str(), 65534, 65534), 0);
    Open();
    EXPECT_THAT(found_, IsEmpty());
    ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
    EXPECT_THAT(ResumeFolder::Open(path_, &found_, &report_),
                IsError(absl::StatusCode::kPermissionDenied, "belongs to user 65534"));
  }
}

TEST_F(ResumeFolderTest, AFolderThatIsALinkOrAFileIsRefused) {
  std::filesystem::create_directory(temp_ / "elsewhere");
  std::filesystem::create_symlink(temp_ / "elsewhere", temp_ / "link");
  EXPECT_FALSE(ResumeFolder::Open(temp_ / "link", &found_, &report_).ok());
  temp_.Write("file", "x");
  EXPECT_FALSE(ResumeFolder::Open(temp_ / "file", &found_, &report_).ok());
}

TEST_F(ResumeFolderTest, ANewRecordTakesThePlaceOfTheOldOne) {
  ASSERT_THAT(folder_->Put(Record()), IsOk());
  ResumeRecord next = Record();
  next.scan = "scans/server-2";
  ASSERT_THAT(folder_->Put(next), IsOk());
  ASSERT_OK_AND_ASSIGN(const ResumeRecord read, folder_->Get("server-1"));
  EXPECT_EQ(read.scan, "scans/server-2");
  EXPECT_THAT(Names(), ElementsAre("server-1.resume"));
}

TEST_F(ResumeFolderTest, AfterAnErrorTheOldRecordRemains) {
  ASSERT_THAT(folder_->Put(Record()), IsOk());
  ResumeRecord next = Record();
  next.scan = "scans/server-2";
  for (const char* point : {"resume_create", "resume_written", "resume_synced"}) {
    ArmFailpoint(std::string(point) + ":errno=28");
    EXPECT_THAT(folder_->Put(next), IsError(absl::StatusCode::kResourceExhausted, path_)) << point;
    ASSERT_OK_AND_ASSIGN(const ResumeRecord read, folder_->Get("server-1"));
    EXPECT_EQ(read.scan, "scans/server-1") << point;
    EXPECT_THAT(Names(), ElementsAre("server-1.resume")) << point;
  }
  EXPECT_THAT(folder_->Put(next), IsOk());
}

TEST_F(ResumeFolderTest, AfterAKillThereIsTheOldRecordOrTheNewOne) {
  ASSERT_THAT(folder_->Put(Record()), IsOk());
  for (const auto& [point, scan] :
       {std::pair{"resume_written", "scans/server-1"}, std::pair{"resume_synced", "scans/server-1"},
        std::pair{"resume_renamed", "scans/server-2"}}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ArmFailpoint(std::string(point) + ":kill");
      ResumeRecord next = Record();
      next.scan = "scans/server-2";
      (void)folder_->Put(next);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << point;
    Open();
    EXPECT_THAT(found_, ElementsAre("server-1")) << point;
    EXPECT_THAT(Names(), ElementsAre("server-1.resume")) << point;  // nothing unfinished is left
    ASSERT_OK_AND_ASSIGN(const ResumeRecord read, folder_->Get("server-1"));
    EXPECT_EQ(read.scan, scan) << point;
  }
}

TEST_F(ResumeFolderTest, ARemovedRecordIsGoneAndRemovingItAgainIsFine) {
  ASSERT_THAT(folder_->Put(Record()), IsOk());
  ArmFailpoint("resume_remove:errno=5");
  EXPECT_FALSE(folder_->Remove("server-1").ok());
  EXPECT_THAT(folder_->Get("server-1"), IsOk());
  EXPECT_THAT(folder_->Remove("server-1"), IsOk());
  EXPECT_THAT(folder_->Get("server-1"), IsError(absl::StatusCode::kNotFound, "server-1"));
  EXPECT_THAT(folder_->Remove("server-1"), IsOk());
}

TEST_F(ResumeFolderTest, EveryDamagedByteAndEveryLengthIsSeen) {
  ASSERT_THAT(folder_->Put(Record()), IsOk());
  const std::string sound = Bytes("server-1.resume");
  for (size_t i = 0; i < sound.size(); ++i) {
    std::string bytes = sound;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    Overwrite("server-1.resume", bytes);
    EXPECT_TRUE(absl::IsDataLoss(folder_->Get("server-1").status())) << i;
    Overwrite("server-1.resume", sound.substr(0, i));
    EXPECT_TRUE(absl::IsDataLoss(folder_->Get("server-1").status())) << i;
  }
  Overwrite("server-1.resume", sound + "x");
  EXPECT_TRUE(absl::IsDataLoss(folder_->Get("server-1").status()));
  Overwrite("server-1.resume", sound);
  EXPECT_THAT(folder_->Get("server-1"), IsOk());
}

TEST_F(ResumeFolderTest, WhatIsNoRecordIsPutAside) {
  ASSERT_THAT(folder_->Put(Record("sound")), IsOk());
  ASSERT_THAT(folder_->Put(Record("copied")), IsOk());
  Overwrite("other-name.resume", Bytes("copied.resume"));  // would begin the scan twice
  Overwrite("torn.resume", Bytes("sound.resume").substr(0, 40));
  Overwrite("text.resume", "hello");
  Overwrite("empty.resume", "");
  std::filesystem::create_symlink("/etc/passwd", path_ + "/link.resume");
  std::filesystem::create_directory(path_ + "/folder.resume");
  ASSERT_EQ(::mkfifo((path_ + "/pipe.resume").c_str(), 0600), 0);  // opening it must not block
  std::filesystem::resize_file(path_ + "/empty.resume", uint64_t{1} << 40);  // takes no room
  Overwrite("notes.txt", "of somebody");
  Open();
  EXPECT_THAT(found_, ElementsAre("copied", "sound"));
  EXPECT_EQ(report_.size(), 7u);
  for (const std::string& line : report_) EXPECT_THAT(line, HasSubstr("renamed to")) << line;
  EXPECT_THAT(Names(), ElementsAre("copied.resume", "empty.damaged", "folder.damaged",
                                   "link.damaged", "notes.txt", "other-name.damaged",
                                   "pipe.damaged", "sound.resume", "text.damaged", "torn.damaged"));
  EXPECT_TRUE(std::filesystem::exists("/etc/passwd"));
  Open();
  EXPECT_THAT(report_, IsEmpty());  // told once
}

TEST_F(ResumeFolderTest, ANameThatIsTakenIsNotReplaced) {
  for (int round = 0; round < 3; ++round) {
    Overwrite("a.resume", "damaged " + std::to_string(round));
    Open();
  }
  EXPECT_THAT(Names(), ElementsAre("a.damaged", "a.damaged.1", "a.damaged.2"));
  EXPECT_EQ(Bytes("a.damaged"), "damaged 0");
}

TEST_F(ResumeFolderTest, UnfinishedFilesAreRemoved) {
  Overwrite(".server-9.tmp", "half");
  Open();
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_THAT(report_, IsEmpty());
}

TEST_F(ResumeFolderTest, IdsAndSizesAreBounded) {
  for (const std::string& id : {std::string(), std::string("../x"), std::string("a/b"),
                                std::string("."), std::string(129, 'a')})
    EXPECT_THAT(folder_->Put(Record(id)), IsError(absl::StatusCode::kInvalidArgument, "id")) << id;
  ResumeRecord large = Record();
  large.request.assign(ResumeFolder::kMostRequestBytes + 1, 'x');
  EXPECT_THAT(folder_->Put(large), IsError(absl::StatusCode::kInvalidArgument, "request"));
  large.request.pop_back();
  ASSERT_THAT(folder_->Put(large), IsOk());
  ASSERT_OK_AND_ASSIGN(const ResumeRecord read, folder_->Get("server-1"));
  EXPECT_EQ(read.request.size(), ResumeFolder::kMostRequestBytes);
  ResumeRecord owned = Record("owned");
  owned.owner.assign(1 << 20, 'o');
  EXPECT_THAT(folder_->Put(owned), IsError(absl::StatusCode::kInvalidArgument, "owner"));
  EXPECT_THAT(Names(), ElementsAre("server-1.resume"));
}

}  // namespace
}  // namespace octavo::storage
