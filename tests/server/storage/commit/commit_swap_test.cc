// Commits into folders in which another user may write: the commit writes nowhere else, however the
// names change.
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "gmock/gmock.h"

#include "tests/server/storage/storage_test_base.h"

namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class CommitSwapTest : public testing::StorageTest {
 protected:
  CommitSwapTest() {
    fs::create_directories(root() + "/a/b");
    fs::create_directories(outside() + "/b");
    data_ = MakeVolume(&meta_, 8, 8, 16);
  }
  std::string outside() const { return directory_ + "/outside"; }
  std::vector<std::string> FilesOutside() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(outside())) {
      if (entry.path() != outside() + "/b") files.push_back(entry.path().string());
    }
    return files;
  }

  VolumeMeta meta_;
  std::vector<uint8_t> data_;
};

TEST_F(CommitSwapTest, FoldersThatAreSwappedLeadNowhere) {
  fs::create_directory_symlink(outside(), root() + "/swap");
  auto store = Open();
  std::atomic<bool> stop{false};
  std::atomic<int64_t> swaps{0};
  std::thread swapping([&] {
    const std::string a = root() + "/a", b = root() + "/swap";
    while (!stop)
      swaps += ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(),
                         2 /* RENAME_EXCHANGE */) == 0;
  });
  int done = 0, refused = 0;
  for (int i = 0; i < 60 || ((done == 0 || refused == 0 || swaps < 1000) && i < 3000); ++i) {
    const Format format = kFormats[static_cast<size_t>(i) % std::size(kFormats)];
    const std::string destination =
        absl::StrCat("a/b/", i % 3 == 0 ? "new/folder/" : "", "volume", i);
    (Commit(*store, destination, meta_, data_, {.format = format}).ok() ? done : refused)++;
  }
  stop = true;
  swapping.join();
  EXPECT_GT(done, 0);
  EXPECT_GT(refused, 0);
  EXPECT_THAT(FilesOutside(), IsEmpty());
}

TEST_F(CommitSwapTest, ATemporaryFolderThatIsSwappedIsWrittenAllTheSame) {
  for (const Format format : kFormats) {
    SCOPED_TRACE(FormatName(format));
    auto store = Open();
    const std::string temporary = root() + "/a/b/.octavo-test-7.tmp", moved = root() + "/a/moved";
    auto begun =
        store->Begin("test-7", absl::StrCat("a/b/", FormatName(format)), meta_, {.format = format});
    ASSERT_THAT(begun, IsOk());
    ASSERT_TRUE(fs::exists(temporary));
    fs::rename(temporary, moved);
    fs::create_directory_symlink(outside() + "/b", temporary);
    for (int64_t y = 0; y < meta_.shape[0]; y += (*begun)->SlabBscans()) {
      const int64_t count = std::min((*begun)->SlabBscans(), meta_.shape[0] - y);
      ASSERT_THAT((*begun)->WriteSlab(y, count, data_.data() + y * meta_.shape[1] * meta_.shape[2]),
                  IsOk());
    }
    EXPECT_THAT((*begun)->Publish(),
                IsError(absl::StatusCode::kAborted, "another program moved " + temporary));
    begun->reset();
    EXPECT_THAT(FilesOutside(), IsEmpty());
    EXPECT_FALSE(fs::exists(fs::symlink_status(temporary)));
    fs::remove_all(moved);
    EXPECT_THAT(
        Commit(*store, absl::StrCat("a/b/", FormatName(format)), meta_, data_, {.format = format}),
        IsOk());
  }
}

// Else the commit would be acknowledged at a path where nothing is.
TEST_F(CommitSwapTest, AFolderThatIsMovedMeanwhileGetsNothing) {
  for (const bool made_anew : {false, true}) {
    for (const Format format : kFormats) {
      SCOPED_TRACE(FormatName(format));
      auto store = Open();
      auto begun = store->Begin("test-9", absl::StrCat("a/b/", FormatName(format)), meta_,
                                {.format = format});
      ASSERT_THAT(begun, IsOk());
      for (int64_t y = 0; y < meta_.shape[0]; y += (*begun)->SlabBscans()) {
        const int64_t count = std::min((*begun)->SlabBscans(), meta_.shape[0] - y);
        ASSERT_THAT(
            (*begun)->WriteSlab(y, count, data_.data() + y * meta_.shape[1] * meta_.shape[2]),
            IsOk());
      }
      fs::rename(root() + "/a/b", root() + "/a/moved");
      if (made_anew) fs::create_directories(root() + "/a/b");
      EXPECT_THAT((*begun)->Publish(), IsError(absl::StatusCode::kAborted,
                                               "another program moved " + root() + "/a/b while"));
      begun->reset();
      EXPECT_TRUE(fs::is_empty(root() + "/a/moved"));
      fs::remove_all(root() + "/a/b");
      fs::rename(root() + "/a/moved", root() + "/a/b");
      EXPECT_THAT(Commit(*store, absl::StrCat("a/b/", FormatName(format)), meta_, data_,
                         {.format = format}),
                  IsOk());
      fs::remove_all(root() + "/a/b");
      fs::create_directories(root() + "/a/b");
    }
  }
}

TEST_F(CommitSwapTest, ErrorsNameThePathThatPeopleKnow) {
  auto store = Open();
  auto begun = store->Begin("test-8", "a/b/x", meta_, {.format = Format::kNpy});
  ASSERT_THAT(begun, IsOk());
  for (int64_t y = 0; y < meta_.shape[0]; y += (*begun)->SlabBscans()) {
    const int64_t count = std::min((*begun)->SlabBscans(), meta_.shape[0] - y);
    ASSERT_THAT((*begun)->WriteSlab(y, count, data_.data() + y * meta_.shape[1] * meta_.shape[2]),
                IsOk());
  }
  fs::create_directory(root() + "/a/b/x.npy");  // another thread created it first
  const auto outcome = (*begun)->Publish();
  EXPECT_THAT(outcome, IsError(absl::StatusCode::kAlreadyExists, root() + "/a/b/x.npy"));
  EXPECT_THAT(std::string(outcome.status().message()),
              ::testing::Not(::testing::HasSubstr("/proc/")));
}

}  // namespace
}  // namespace octavo::storage
