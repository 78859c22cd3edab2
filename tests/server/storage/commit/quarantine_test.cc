// Roots that disappear and come back, and files that a recovery moves to the quarantine.
#include "server/storage/commit/quarantine.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <sys/stat.h>
#include <thread>

#include "gmock/gmock.h"

#include "gpu/base/failpoint.h"
#include "server/storage/io/errno_status.h"
#include "tests/server/storage/storage_test_base.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
namespace fs = std::filesystem;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Until a file that changes now has another time than `path`: the kernel's times have ticks of some
// milliseconds.
void AwaitTick(const std::string& path) {
  struct stat made {
  }, now{};
  ASSERT_EQ(::stat(path.c_str(), &made), 0);
  const std::string probe = path + ".tick";
  do {
    std::ofstream(probe) << "x";
    ASSERT_EQ(::stat(probe.c_str(), &now), 0);
  } while (now.st_ctim.tv_sec == made.st_ctim.tv_sec &&
           now.st_ctim.tv_nsec - made.st_ctim.tv_nsec < 1'000'000);
  fs::remove(probe);
}

class QuarantineTest : public testing::StorageTest {
 protected:
  std::string quarantine() const { return root() + "/" + kQuarantineName; }
  /// Unplugs the disk: another, empty folder takes the place of the root's.
  void Unplug() {
    fs::rename(root(), directory_ + "/away");
    fs::create_directory(root());
  }
  void PlugIn() {
    fs::remove_all(root());
    fs::rename(directory_ + "/away", root());
  }
  absl::StatusOr<std::unique_ptr<CommitTransaction>> BeginWritten(CommitStore& store,
                                                                  const std::string& destination,
                                                                  const VolumeMeta& meta,
                                                                  const std::vector<uint8_t>& data,
                                                                  const WriterOptions& options) {
    auto transaction = store.Begin("test-1", destination, meta, options);
    if (!transaction.ok()) return transaction;
    const int64_t plane = meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype),
                  step = (*transaction)->SlabBscans();
    for (int64_t y = 0; y < meta.shape[0]; y += step) {
      OCTAVO_RETURN_IF_ERROR(
          (*transaction)->WriteSlab(y, std::min(step, meta.shape[0] - y), data.data() + y * plane));
    }
    return transaction;
  }
  void Fill(const std::string& name, int64_t bytes) {
    fs::create_directories(quarantine() + "/" + name + "/c");
    std::ofstream(quarantine() + "/" + name + "/c/0")
        .write(std::string(static_cast<size_t>(bytes), 'x').data(), bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // makes one older than the next
  }
};

TEST_F(QuarantineTest, ARootThatGoesAndComesBackLeavesNoNameBlocked) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 12, 16, 64);
  for (const Format format : {Format::kOmeZarr05, Format::kNpy, Format::kHdf5, Format::kNrrd}) {
    for (const bool early : {false, true}) {
      SCOPED_TRACE(absl::StrCat(FormatName(format), early ? ", before anything is written" : ""));
      auto store = Open();
      const std::string destination = absl::StrCat("deep/", FormatName(format), early);
      {
        auto begun = early ? store->Begin("test-1", destination, meta, {.format = format})
                           : BeginWritten(*store, destination, meta, data, {.format = format});
        ASSERT_THAT(begun, IsOk());
        Unplug();
        EXPECT_FALSE((*begun)->Publish().ok());
      }
      EXPECT_THAT(Files(), IsEmpty()) << "nothing is written into what has its place";
      // While the root is away, other commits continue.
      EXPECT_THAT(Commit(*store, "elsewhere", meta, data, {.format = format}), IsOk());
      PlugIn();
      EXPECT_THAT(Commit(*store, destination, meta, data, {.format = format}), IsOk())
          << "the same commit to the same name";
      for (const std::string& file : Files())
        EXPECT_THAT(file, ::testing::Not(HasSubstr(".octavo-test"))) << "left behind";
      store = nullptr;
      store = Open();
      EXPECT_THAT(report_, IsEmpty());
    }
  }
}

TEST_F(QuarantineTest, ARootThatComesBackAfterARestartIsSettledThen) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 12, 16, 64);
  auto store = Open();
  {
    auto begun = BeginWritten(*store, "x", meta, data, {.format = Format::kOmeZarr05});
    ASSERT_THAT(begun, IsOk());
    Unplug();
    EXPECT_FALSE((*begun)->Publish().ok());
  }
  store = nullptr;
  store = Open();  // still away
  ASSERT_THAT(report_, SizeIs(1));
  EXPECT_THAT(report_[0], HasSubstr("is missing or is not the directory that it was"));
  store = nullptr;
  PlugIn();
  store = Open();
  ASSERT_THAT(report_, SizeIs(1));
  EXPECT_THAT(report_[0], HasSubstr("had been given up")) << "the caller was told that it failed";
  EXPECT_THAT(Commit(*store, "x", meta, data, {.format = Format::kOmeZarr05}), IsOk());
}

TEST_F(QuarantineTest, APathThroughAFileIsTheCallersMistake) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 4, 4);
  auto store = Open();
  ASSERT_THAT(Commit(*store, "a/file.npy", meta, data, {.format = Format::kNpy}), IsOk());
  for (const char* destination : {"a/file.npy/x", "a/file.npy/b/c/x", "a/file.npy.json/x"}) {
    for (const Format format : kFormats) {
      EXPECT_THAT(store->Begin("test-2", destination, meta, {.format = format}).status(),
                  IsError(kInvalid, "which is a file"))
          << destination;
    }
  }
  EXPECT_THAT(ErrnoStatus(ENOTDIR, "creating", "a/b"),
              IsError(kInvalid, "creating a/b: Not a directory"));
  EXPECT_THAT(ErrnoStatus(ENAMETOOLONG, "creating", "a/b"), IsError(kInvalid, "a/b"));
  EXPECT_THAT(ErrnoStatus(ELOOP, "creating", "a/b"), IsError(kInvalid, "a/b"));
}

TEST_F(QuarantineTest, TheOldestGoWhenItIsTooMuch) {
  std::mt19937 random(FreshSeed());
  const int64_t count = 5 + static_cast<int64_t>(random() % 10);
  int64_t bytes = 0;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < count; ++i) {
    sizes.push_back(100 + static_cast<int64_t>(random() % 10'000));
    bytes += sizes.back();
    Fill(absl::StrCat("volume", i), sizes.back());
    AwaitTick(quarantine() + absl::StrCat("/volume", i));  // so that each is older than the next
  }
  EXPECT_EQ(UseOfQuarantine(root()).entries, count);
  EXPECT_EQ(UseOfQuarantine(root()).bytes, bytes);
  EXPECT_THAT(PruneQuarantine(root(), {}), IsEmpty());
  EXPECT_THAT(PruneQuarantine(root(), {.entries = 0, .bytes = 0, .days = 0}), IsEmpty())
      << "no limit at all";
  auto lines = PruneQuarantine(root(), {.entries = count - 2});
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], HasSubstr("/volume0: removed from the quarantine (one of"));
  EXPECT_FALSE(fs::exists(quarantine() + "/volume0"));
  EXPECT_FALSE(fs::exists(quarantine() + "/volume1"));
  EXPECT_TRUE(fs::exists(quarantine() + "/volume2"));
  bytes -= sizes[0] + sizes[1];
  lines = PruneQuarantine(root(), {.bytes = bytes - 1});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr("/volume2: removed"));
  EXPECT_LT(UseOfQuarantine(root()).bytes, bytes);
  EXPECT_THAT(PruneQuarantine(root(), {.days = 1}), IsEmpty());
  EXPECT_THAT(PruneQuarantine(root(), {.days = 1e-9}), SizeIs(static_cast<size_t>(count - 3)));
  EXPECT_EQ(UseOfQuarantine(root()).entries, 0);
}

TEST_F(QuarantineTest, AStartPutsAsideCountsAndPrunes) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 12, 16, 64);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto store = Open();
        ArmFailpoint("block_written:kill");
        (void)Commit(*store, "x", meta, data, {.format = Format::kOmeZarr05});
      },
      ::testing::KilledBySignal(SIGKILL), "");
  for (int i = 0; i < 4; ++i) Fill(absl::StrCat("old", i), 10);
  std::vector<std::string> report;
  ASSERT_OK_AND_ASSIGN(auto store,
                       CommitStore::Open(directory_ + "/state", {root()}, &report, {.entries = 3}));
  ASSERT_THAT(report, SizeIs(3));
  EXPECT_THAT(report[0], HasSubstr("moved to "));
  EXPECT_THAT(report[1], HasSubstr("/old0: removed"));
  EXPECT_THAT(report[2], HasSubstr("/old1: removed"));
  EXPECT_EQ(store->Quarantines().at(root()).entries, 3);
  EXPECT_GT(store->Quarantines().at(root()).bytes, 20);
  fs::remove_all(quarantine() + "/old2");
  EXPECT_EQ(store->Quarantines().at(root()).entries, 2) << "somebody has tidied up";
  fs::remove_all(quarantine());
  EXPECT_EQ(store->Quarantines().at(root()).entries, 0);
}

// A user who may write in the root can put a link in the quarantine's place.
TEST_F(QuarantineTest, ALinkIsNoQuarantine) {
  const std::string elsewhere = directory_ + "/elsewhere";
  fs::create_directories(elsewhere + "/precious");
  fs::create_symlink(elsewhere, quarantine());
  std::ofstream(root() + "/damaged") << "x";
  const UniqueFd folder(::open(root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(MoveToQuarantine({root()}, folder, root() + "/damaged"), "");
  EXPECT_TRUE(fs::exists(root() + "/damaged"));
  EXPECT_THAT(PruneQuarantine(root(), {.entries = 1, .bytes = 1, .days = 1e-9}), IsEmpty());
  EXPECT_EQ(UseOfQuarantine(root()).entries, 0);
  EXPECT_TRUE(fs::exists(elsewhere + "/precious"));
  fs::remove(quarantine());
  // The recovery removes a link inside it, but not the link's target.
  Fill("one", 1);
  fs::create_directory_symlink(elsewhere, quarantine() + "/link");
  EXPECT_THAT(PruneQuarantine(root(), {.days = 1e-9}), SizeIs(2));
  EXPECT_TRUE(fs::exists(elsewhere + "/precious"));
}

}  // namespace
}  // namespace octavo::storage
