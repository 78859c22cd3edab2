#include "server/storage/spill/spill_folder.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/io/crc32c.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace {

std::atomic<int> g_synced = 0;

}  // namespace

// Replaces libc's function, to check that directories are synced.
extern "C" int fsync(int fd) {
  ++g_synced;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;

std::vector<char> Random(int64_t bytes, uint32_t seed) {
  std::vector<char> data(static_cast<size_t>(bytes));
  std::mt19937 random(seed);
  for (auto& byte : data) byte = static_cast<char>(random());
  return data;
}

class SpillFolderTest : public ::testing::Test {
 protected:
  void TearDown() override { ArmFailpoint(""); }

  std::unique_ptr<SpillFolder> Open(int64_t quota = 64 << 20) {
    found_.clear();
    report_.clear();
    auto folder = SpillFolder::Open(path_, quota, &found_, &report_);
    EXPECT_THAT(folder, IsOk());
    return folder.ok() ? *std::move(folder) : nullptr;
  }
  absl::StatusOr<std::shared_ptr<SpillFile>> Write(SpillFolder& folder, const std::string& id,
                                                   const std::vector<char>& data,
                                                   int64_t piece = 1 << 19) {
    OCTAVO_ASSIGN_OR_RETURN(auto writer, folder.Create(id, std::ssize(data), {{"who", id}}));
    for (int64_t at = 0; at < std::ssize(data); at += piece) {
      OCTAVO_RETURN_IF_ERROR(
          writer->Append(data.data() + at, std::min(piece, std::ssize(data) - at)));
    }
    return writer->Finish();
  }
  static std::vector<char> Read(const SpillFile& file, int64_t offset, int64_t bytes) {
    std::vector<char> out(static_cast<size_t>(bytes));
    auto cursor = file.Open();
    EXPECT_THAT(cursor, IsOk());
    if (cursor.ok()) EXPECT_THAT((*cursor)->Read(offset, bytes, out.data()), IsOk());
    return out;
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder temp_;
  const std::string path_ = temp_ / "spill";
  std::vector<SpillFolder::Found> found_;
  std::vector<std::string> report_;
};

TEST_F(SpillFolderTest, WhatIsWrittenIsReadWholeAndInParts) {
  auto folder = Open();
  for (const int64_t bytes : {int64_t{1}, int64_t{4095}, int64_t{1} << 20, (int64_t{1} << 20) + 1,
                              (int64_t{5} << 20) + 4097}) {
    const auto data = Random(bytes, static_cast<uint32_t>(bytes));
    ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, absl::StrCat("v-", bytes), data, 300'000));
    EXPECT_EQ(Read(*file, 0, bytes), data) << bytes;
    auto cursor = file->Open();
    std::mt19937 random(1);
    for (int i = 0; i < 50; ++i) {
      const auto from = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes));
      const auto count = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes - from + 1));
      std::vector<char> part(static_cast<size_t>(count));
      ASSERT_THAT((*cursor)->Read(from, count, part.data()), IsOk());
      ASSERT_EQ(part, std::vector<char>(data.begin() + from, data.begin() + from + count))
          << from << " " << count;
    }
    std::vector<char> none(2);
    EXPECT_THAT((*cursor)->Read(bytes - 1, 2, none.data()),
                IsError(absl::StatusCode::kOutOfRange, ""));
    file->Remove();
  }
  EXPECT_EQ(folder->used_bytes(), 0);
  EXPECT_TRUE(Names().empty());
}

TEST_F(SpillFolderTest, AGateDecidesWhetherAFileGetsItsName) {
  auto folder = Open();
  const auto data = Random(100, 1);
  const auto write = [&](const std::shared_ptr<SpillGate>& gate) {
    auto writer = folder->Create("a", 100, {}).value();
    writer->SetGate(gate);
    EXPECT_THAT(writer->Append(data.data(), 100), IsOk());
    return writer->Finish();
  };
  const auto shut = std::make_shared<SpillGate>();
  shut->Shut();
  EXPECT_TRUE(shut->shut());
  EXPECT_THAT(write(shut), IsError(absl::StatusCode::kCancelled, "has left memory"));
  EXPECT_TRUE(Names().empty());
  EXPECT_EQ(folder->used_bytes(), 0);
  // A file that passed is removed by what comes too late to keep it from passing.
  const auto late = std::make_shared<SpillGate>();
  ASSERT_OK_AND_ASSIGN(const auto file, write(late));
  EXPECT_EQ(Names(), std::vector<std::string>{"a.spill"});
  late->Shut();
  EXPECT_TRUE(Names().empty());
  EXPECT_EQ(folder->used_bytes(), 0);
  file->Remove();  // as its owner would, too
  late->Shut();
  EXPECT_EQ(folder->used_bytes(), 0);
}

// The two ends of a file meet: whichever comes first, none is left.
TEST_F(SpillFolderTest, NothingPassesAGateThatHasBeenShut) {
  auto folder = Open();
  for (int i = 0; i < 200; ++i) {
    const auto gate = std::make_shared<SpillGate>();
    auto writer = folder->Create("a", 0, {}).value();
    writer->SetGate(gate);
    std::atomic<bool> go{false};
    std::thread finisher([&] {
      while (!go) {
      }
      (void)writer->Finish();
    });
    go = true;
    gate->Shut();
    EXPECT_FALSE(std::filesystem::exists(path_ + "/a.spill")) << "at the moment of the answer";
    finisher.join();
    writer = nullptr;
    ASSERT_TRUE(Names().empty());
    ASSERT_EQ(folder->used_bytes(), 0);
  }
}

TEST_F(SpillFolderTest, ANoteChangesInPlace) {
  const auto data = Random(1000, 3);
  {
    auto folder = Open();
    ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", data));
    EXPECT_THAT(file->Write(SpillNote::kMarked), IsOk());
    ASSERT_OK_AND_ASSIGN(const auto gone, Write(*folder, "b", data));
    gone->Remove();
    ASSERT_OK_AND_ASSIGN(const auto next, Write(*folder, "b", data));
    EXPECT_THAT(gone->Write(SpillNote::kMarked), IsOk()) << "the file is another's";
  }
  for (const SpillNote then : {SpillNote::kUnmarked, SpillNote::kNone}) {
    auto folder = Open();
    ASSERT_EQ(found_.size(), 2u);
    EXPECT_EQ(found_[0].note,
              then == SpillNote::kUnmarked ? SpillNote::kMarked : SpillNote::kUnmarked);
    EXPECT_EQ(found_[1].note, SpillNote::kNone);
    EXPECT_EQ(Read(*found_[0].file, 0, 1000), data);
    EXPECT_THAT(found_[0].file->Write(then), IsOk());
  }
}

TEST_F(SpillFolderTest, FilesArePrivate) {
  auto folder = Open();
  ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", Random(1000, 1)));
  struct stat info {};
  ASSERT_EQ(::stat(file->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  folder = nullptr;
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  std::vector<std::string> report;
  EXPECT_THAT(SpillFolder::Open(path_, 1 << 20, &found_, &report),
              IsError(absl::StatusCode::kPermissionDenied, "has mode 0777"));
  EXPECT_THAT(
      SpillFolder::Open(path_, 1 << 20, &found_, &report),
      IsError(absl::StatusCode::kPermissionDenied, absl::StrCat("then: chmod 700 '", path_, "')")));
  if (::geteuid() != 0) return;  // cannot give it away
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(
      SpillFolder::Open(path_, 1 << 20, &found_, &report),
      IsError(absl::StatusCode::kPermissionDenied,
              absl::StrCat(path_, " belongs to user 65534; allowed is a folder of user 0")));
  EXPECT_THAT(
      SpillFolder::Open(path_, 1 << 20, &found_, &report),
      IsError(absl::StatusCode::kPermissionDenied, absl::StrCat("then: chown 0 '", path_, "')")));
}

// It would take the first one's volumes for its own, and its unfinished files for what a crash
// left.
TEST_F(SpillFolderTest, ASecondFolderIsRefusedBeforeItTouchesAnything) {
  auto folder = Open();
  const auto data = Random(1000, 1);
  ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", data));
  ASSERT_OK_AND_ASSIGN(auto writer, folder->Create("b", 1000, {}));
  ASSERT_THAT(writer->Append(data.data(), 1000), IsOk());
  temp_.Write("spill/c.spill", "damaged");
  const auto before = Names();
  ASSERT_EQ(before, (std::vector<std::string>{".b-2.tmp", "a.spill", "c.spill"}));
  std::filesystem::create_directory_symlink(path_, temp_ / "link");
  for (const std::string& path : {path_, path_ + "/../spill", temp_ / "link"}) {
    std::vector<SpillFolder::Found> found;
    std::vector<std::string> report;
    EXPECT_THAT(SpillFolder::Open(path, 1 << 20, &found, &report),
                IsError(absl::StatusCode::kFailedPrecondition,
                        absl::StrCat("another octavod uses ", path, "; give this one its own")));
    EXPECT_TRUE(found.empty());
    EXPECT_TRUE(report.empty());
    EXPECT_EQ(Names(), before);
  }
  ASSERT_OK_AND_ASSIGN(const auto finished, writer->Finish());
  EXPECT_EQ(Read(*finished, 0, 1000), data);
  folder = nullptr;  // the files' objects go on
  folder = Open();
  EXPECT_EQ(found_.size(), 2u);
}

// A program that the daemon starts does not keep the folder when the daemon has died.
TEST_F(SpillFolderTest, AProgramThatWasStartedDoesNotKeepTheFolder) {
  auto folder = Open();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::execl("/bin/sleep", "sleep", "100", nullptr);
    ::_exit(1);
  }
  // Until it has closed what exec closes.
  const std::string name = absl::StrCat("/proc/", child, "/comm");
  for (std::string comm; comm != "sleep";) std::getline(std::ifstream(name), comm);
  folder = nullptr;
  EXPECT_NE(Open(), nullptr);
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

/// Root may do everything: the folder's owner is another user, as whom the test goes on.
class UnwritableSpillFolderTest : public SpillFolderTest {
 protected:
  UnwritableSpillFolderTest() {
    std::filesystem::create_directory(path_);
    if (::geteuid() != 0) return;
    EXPECT_EQ(::chmod(temp_.path().c_str(), 0755), 0);
    EXPECT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
    EXPECT_EQ(::seteuid(65534), 0);
    EXPECT_EQ(::access(temp_.path().c_str(), F_OK), 0);
  }
  ~UnwritableSpillFolderTest() override {
    if (::getuid() == 0) EXPECT_EQ(::seteuid(0), 0);
  }
};

// Held volumes could not be written there, and a stop would lose them.
TEST_F(UnwritableSpillFolderTest, IsRefusedUnlessTheTierIsOff) {
  ASSERT_EQ(::chmod(path_.c_str(), 0500), 0);
  EXPECT_THAT(
      SpillFolder::Open(path_, 1 << 20, &found_, &report_),
      IsError(absl::StatusCode::kPermissionDenied,
              absl::StrCat("making files in spill directory ", path_, ": Permission denied")));
  EXPECT_THAT(SpillFolder::Open(path_, 0, &found_, &report_), IsOk());
  ASSERT_EQ(::chmod(path_.c_str(), 0700), 0);
  EXPECT_THAT(SpillFolder::Open(path_, 1 << 20, &found_, &report_), IsOk());
}

TEST_F(SpillFolderTest, FilesOutliveTheProcessAndAreFoundAgain) {
  const auto a = Random(3 << 20, 1), b = Random(17, 2);
  {
    auto folder = Open();
    ASSERT_THAT(Write(*folder, "a", a).status(), IsOk());
    ASSERT_THAT(Write(*folder, "b", b).status(), IsOk());
    ASSERT_OK_AND_ASSIGN(const auto unfinished, folder->Create("c", 100, {}));
    EXPECT_EQ(Names(), (std::vector<std::string>{".c-3.tmp", "a.spill", "b.spill"}));
  }
  EXPECT_EQ(Names(), (std::vector<std::string>{"a.spill", "b.spill"}));
  temp_.Write("spill/.d-7.tmp", "what a crash leaves");
  temp_.Write("spill/notes.txt", "somebody else's");
  temp_.Write("spill/.hidden", "somebody else's");
  auto folder = Open();
  ASSERT_EQ(found_.size(), 2u);
  EXPECT_EQ(found_[0].about["who"], "a");
  EXPECT_EQ(Read(*found_[0].file, 0, 3 << 20), a);
  EXPECT_EQ(Read(*found_[1].file, 0, 17), b);
  EXPECT_GT(folder->used_bytes(), (3 << 20) + 17) << "what is there counts";
  EXPECT_EQ(report_.size(), 1u);
  EXPECT_EQ(Names(), (std::vector<std::string>{".hidden", "a.spill", "b.spill", "notes.txt"}));
  for (auto& one : found_) one.file->Remove(), one.file->Remove();
  EXPECT_EQ(folder->used_bytes(), 0);
}

TEST_F(SpillFolderTest, EveryChangedByteIsNoticed) {
  const auto data = Random((2 << 20) + 100, 3);
  const auto flip = [&](int64_t at) {
    const int fd = ::open((path_ + "/a.spill").c_str(), O_RDWR);
    char byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 0x10);
    ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
    ::close(fd);
  };
  {
    auto folder = Open();
    ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", data));
    flip((1 << 20) + 5);
    ASSERT_OK_AND_ASSIGN(const auto cursor, file->Open());
    std::vector<char> out(data.size());
    EXPECT_THAT(cursor->Read(0, 1 << 20, out.data()), IsOk()) << "another MiB";
    EXPECT_THAT(cursor->Read((1 << 20) + 100, 1, out.data()),
                IsError(absl::StatusCode::kDataLoss, "MiB 1 has another CRC"));
    EXPECT_THAT(cursor->Read(0, std::ssize(data), out.data()),
                IsError(absl::StatusCode::kDataLoss, "another CRC"));
    flip((1 << 20) + 5);
    EXPECT_THAT(cursor->Read(0, std::ssize(data), out.data()), IsOk());
    EXPECT_EQ(out, data);
  }
  // If any byte of the footer is wrong, the next start sets the file aside and does not read it.
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_ + "/a.spill"));
  flip(size - 20);
  auto folder = Open();
  EXPECT_TRUE(found_.empty());
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_NE(report_[0].find("damaged"), std::string::npos);
  EXPECT_EQ(Names(), std::vector<std::string>{"a.damaged"});
  EXPECT_EQ(folder->used_bytes(), 0);
}

TEST_F(SpillFolderTest, AFooterOfAnotherKindIsSetAside) {
  const auto write = [&](const std::string& footer, uint64_t length) {
    const uint32_t crc = Crc32c(footer.data(), footer.size());
    std::string file = "abcd" + footer;
    file.append(reinterpret_cast<const char*>(&length), 8)
        .append(reinterpret_cast<const char*>(&crc), 4)
        .append("OSP1");
    temp_.Write("spill/a.spill", file);
  };
  { (void)Open(); }
  const uint32_t crc = Crc32c("abcd", 4);
  const nlohmann::json good = {{"octavo_spill", 1},
                               {"about", {{"who", "a"}}},
                               {"bytes", 4},
                               {"block", 1 << 20},
                               {"crc32c", {crc}}};
  write(good.dump(), good.dump().size());
  { (void)Open(); }
  ASSERT_EQ(found_.size(), 1u);
  const std::tuple<const char*, nlohmann::json, const char*> bad[] = {
      {"/bytes", "4", "its footer: bytes is \"4\"; allowed are integers"},
      {"/block", 1.5, "its footer: block is 1.5; allowed are integers"},
      {"/crc32c", 4, "its footer: crc32c is 4; allowed are arrays"},
      {"/crc32c/0", uint64_t{crc} + (uint64_t{1} << 32),
       "; allowed are integers from 0 to 4294967295"},
      {"/bytes", 5, "its footer speaks of another file"}};
  for (const auto& [at, value, message] : bad) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(at)] = value;
    write(json.dump(), json.dump().size());
    { (void)Open(); }
    EXPECT_TRUE(found_.empty());
    ASSERT_EQ(report_.size(), 1u);
    EXPECT_NE(report_[0].find(message), std::string::npos) << report_[0];
  }
  // A hole: terabytes of it cost nothing.
  const uint64_t hole = uint64_t{1} << 40;
  write("{}", hole);
  {
    const std::string path = path_ + "/a.spill";
    const auto size = std::filesystem::file_size(path);
    std::ifstream in(path, std::ios::binary);
    std::string tail(16, 0);
    in.seekg(static_cast<std::streamoff>(size - 16));
    in.read(tail.data(), 16);
    std::filesystem::resize_file(path, hole + 100);
    std::ofstream(path, std::ios::binary | std::ios::app) << tail;
  }
  (void)Open();
  EXPECT_TRUE(found_.empty());
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_NE(report_[0].find("its footer has 1099511627776 bytes; allowed at most 1073741824"),
            std::string::npos)
      << report_[0];
}

TEST_F(SpillFolderTest, CutFilesAreSetAside) {
  const auto data = Random(5000, 4);
  { ASSERT_THAT(Write(*Open(), "a", data).status(), IsOk()); }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_ + "/a.spill"));
  for (const int64_t kept : {size - 1, size - 16, int64_t{5000}, int64_t{15}, int64_t{0}}) {
    std::filesystem::resize_file(path_ + "/a.spill", static_cast<uint64_t>(kept));
    (void)Open();
    EXPECT_TRUE(found_.empty()) << kept;
    EXPECT_EQ(report_.size(), 1u) << kept;
    { ASSERT_THAT(Write(*Open(), "a", data).status(), IsOk()) << "its name is free again"; }
  }
}

TEST_F(SpillFolderTest, WhatIsSaidOfAVolumeNeedNotBeUtf8) {
  auto folder = Open();
  ASSERT_OK_AND_ASSIGN(auto writer, folder->Create("a", 4, {{"title", "caf\xe9"}}));
  ASSERT_THAT(writer->Append("abcd", 4), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());
  folder = nullptr;
  folder = Open();
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].about.at("title"), "caf\uFFFD");
}

// After a power loss, a discarded volume must not be held again.
TEST_F(SpillFolderTest, ThatAFileIsGoneIsMadeDurable) {
  auto folder = Open();
  ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", Random(1000, 1)));
  const int before = g_synced;
  file->Remove();
  EXPECT_EQ(g_synced, before + 1);
}

TEST_F(SpillFolderTest, AFileThatCannotBeRemovedKeepsItsRoom) {
  auto folder = Open();
  ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", Random(1 << 20, 1)));
  const int64_t used = folder->used_bytes();
  ArmFailpoint("spill_remove:errno=5");
  file->Remove();
  EXPECT_EQ(Names(), std::vector<std::string>{"a.spill"});
  EXPECT_EQ(folder->used_bytes(), used);
  file->Remove();
  EXPECT_TRUE(Names().empty()) << "another try";
  EXPECT_EQ(folder->used_bytes(), 0);
}

TEST_F(SpillFolderTest, TheQuotaHoldsAndComesBack) {
  auto folder = Open(2 << 20);
  ASSERT_OK_AND_ASSIGN(const auto a, Write(*folder, "a", Random(1 << 20, 1)));
  const auto refused = Write(*folder, "b", Random(1 << 20, 2));
  ASSERT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "spill.disk_bytes"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kSpillQuota);
  EXPECT_EQ(Names(), std::vector<std::string>{"a.spill"});
  a->Remove();
  EXPECT_THAT(Write(*folder, "b", Random(1 << 20, 2)).status(), IsOk());
  EXPECT_THAT(Write(*folder, "../x", Random(1, 2)),
              IsError(absl::StatusCode::kInvalidArgument, "letters, digits"));
}

TEST_F(SpillFolderTest, AFullDiskLeavesNothingAndSaysSo) {
  auto folder = Open();
  for (const char* point : {"spill_create", "spill_write", "spill_footer", "spill_synced"}) {
    ArmFailpoint(absl::StrCat(point, ":errno=", ENOSPC));
    EXPECT_THAT(Write(*folder, "a", Random(3 << 20, 1)),
                IsError(absl::StatusCode::kResourceExhausted, "No space left"))
        << point;
    EXPECT_EQ(folder->used_bytes(), 0) << point;
    EXPECT_TRUE(Names().empty()) << point;
  }
  EXPECT_THAT(Write(*folder, "a", Random(3 << 20, 1)).status(), IsOk()) << "and the next one works";
}

std::ptrdiff_t Descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_F(SpillFolderTest, AnyNumberOfReadersTakeOneDescriptor) {
  auto folder = Open();
  const auto data = Random((3 << 20) + 77, 11);
  ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", data));
  const auto before = Descriptors();
  {
    std::vector<std::unique_ptr<SpillCursor>> readers;
    for (int i = 0; i < 100; ++i) {
      ASSERT_OK_AND_ASSIGN(auto reader, file->Open());
      readers.push_back(std::move(reader));
    }
    EXPECT_EQ(Descriptors(), before + 1);
    std::vector<std::thread> threads;  // parts of blocks, each thread in its own order
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<uint32_t>(t));
        std::vector<char> out;
        for (size_t i = t; i < readers.size(); i += 4) {
          const auto at = static_cast<int64_t>(random() % data.size());
          const int64_t bytes = std::min<int64_t>(random() % (1 << 20), std::ssize(data) - at);
          out.assign(static_cast<size_t>(bytes), 'x');
          EXPECT_THAT(readers[i]->Read(at, bytes, out.data()), IsOk());
          EXPECT_TRUE(std::equal(out.begin(), out.end(), data.begin() + at));
        }
      });
    }
    for (auto& thread : threads) thread.join();
    file->Remove();
    EXPECT_THAT(file->Open(), IsError(absl::StatusCode::kNotFound, ""))
        << "also while others still read";
    std::vector<char> out(100);
    EXPECT_THAT(readers[0]->Read(5, 100, out.data()), IsOk());
  }
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(SpillFolderTest, ReadersLeaveDescriptorsForOtherWork) {
  auto folder = Open();
  const auto data = Random(1000, 12);
  std::vector<std::shared_ptr<SpillFile>> files;
  for (int i = 0; i < 80; ++i) {
    ASSERT_OK_AND_ASSIGN(auto file, Write(*folder, absl::StrCat("v", i), data));
    files.push_back(std::move(file));
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<std::unique_ptr<SpillCursor>> readers;
  absl::Status refused;
  for (const auto& file : files) {
    auto reader = file->Open();
    refused = reader.status();
    if (!refused.ok()) break;
    readers.push_back(*std::move(reader));
  }
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "Too many open files"));
  int left = 0;
  std::vector<int> opened;
  for (int fd; (fd = ::dup(0)) >= 0; ++left) opened.push_back(fd);
  for (const int fd : opened) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(left, 64 / 8);
}

TEST_F(SpillFolderTest, AReaderGoesOnWhenTheFileIsRemoved) {
  auto folder = Open();
  const auto data = Random(2 << 20, 9);
  ASSERT_OK_AND_ASSIGN(const auto file, Write(*folder, "a", data));
  ASSERT_OK_AND_ASSIGN(const auto cursor, file->Open());
  file->Remove();
  std::vector<char> out(data.size());
  EXPECT_THAT(cursor->Read(0, std::ssize(data), out.data()), IsOk());
  EXPECT_EQ(out, data);
  EXPECT_FALSE(file->Open().ok());
}

// kill -9 at each point: afterwards the file is absent or complete.
TEST_F(SpillFolderTest, AKillLeavesAllOrNothing) {
  const auto data = Random((2 << 20) + 7, 5);
  for (const char* point : {"spill_create", "spill_write", "spill_footer", "spill_synced",
                            "spill_renamed", "spill_remove"}) {
    std::filesystem::remove_all(path_);
    const pid_t child = ::fork();
    if (child == 0) {
      ArmFailpoint(absl::StrCat(point, ":kill"));
      auto folder = SpillFolder::Open(path_, 64 << 20, &found_, &report_);
      if (!folder.ok()) ::_exit(1);
      auto file = Write(**folder, "a", data);
      if (file.ok()) (*file)->Remove();
      ::_exit(2);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << point << " was not passed";
    auto folder = Open();
    const bool complete =
        std::string(point) == "spill_renamed" || std::string(point) == "spill_remove";
    ASSERT_EQ(found_.size(), complete ? 1u : 0u) << point;
    if (complete) EXPECT_EQ(Read(*found_[0].file, 0, std::ssize(data)), data);
    EXPECT_EQ(Names(), complete ? std::vector<std::string>{"a.spill"} : std::vector<std::string>{})
        << point;
  }
}

}  // namespace
}  // namespace octavo::storage
