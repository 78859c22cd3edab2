// Commits into folders in which another user may write: the commit writes nowhere else, however the
// names change.
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "gmock/gmock.h"

#include "gpu/base/failpoint.h"
#include "server/storage/formats/writer.h"
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

// The folder is moved after its path was compared, and before, between or after the renames.
TEST_F(CommitSwapTest, AFolderThatIsMovedBetweenTheCheckAndTheRenameKeepsNothing) {
  for (const char* point : {"names_checked", "side_renamed", "after_rename", "parent_synced"}) {
    for (const bool made_anew : {false, true}) {
      for (const Format format : kFormats) {
        if (point == std::string("side_renamed") && !IsSingleFile({.format = format})) continue;
        SCOPED_TRACE(absl::StrCat(point, made_anew, FormatName(format)));
        const std::string b = root() + "/a/b", moved = root() + "/a/moved";
        const std::string others = WithExtension(b + "/x", {.format = format});
        auto store = Open();
        ArmFailpoint(absl::StrCat(point, ":call"), [&] {
          fs::rename(b, moved);
          // The new folder of that name has another program's file, which is none of the commit's.
          if (made_anew) fs::create_directories(others);
        });
        EXPECT_THAT(
            Commit(*store, "a/b/x", meta_, data_, {.format = format}),
            IsError(absl::StatusCode::kAborted, "another program moved " + b + " while files"));
        EXPECT_TRUE(fs::is_empty(moved));
        EXPECT_EQ(fs::exists(others), made_anew);
        store = nullptr;
        store = Open();
        EXPECT_THAT(report_, IsEmpty()) << "the journal has an end";
        fs::remove_all(b);
        fs::rename(moved, b);
        EXPECT_THAT(Commit(*store, "a/b/x", meta_, data_, {.format = format}), IsOk());
        fs::remove_all(b);
        fs::create_directories(b);
      }
    }
  }
}

TEST_F(CommitSwapTest, WhatCannotBeTakenBackFromAMovedFolderIsSaid) {
  for (const Format format : {Format::kOmeZarr05, Format::kNpy}) {
    SCOPED_TRACE(FormatName(format));
    const std::string b = root() + "/a/b", moved = root() + "/a/moved";
    auto store = Open();
    ArmFailpoint("parent_synced:call", [&] {
      fs::rename(b, moved);
      // Its temporary name is taken.
      const std::string temporary = moved + "/.octavo-test-1.tmp";
      if (format == Format::kOmeZarr05) {
        fs::create_directories(temporary + "/others");
      } else {
        std::ofstream(temporary + "/data") << "others";
      }
    });
    const std::string final = WithExtension("/x", {.format = format});
    EXPECT_THAT(Commit(*store, "a/b/x", meta_, data_, {.format = format}),
                IsError(absl::StatusCode::kAborted,
                        "; what was written lies in " + moved + final + ", because"));
    EXPECT_TRUE(fs::exists(moved + final));
    store = nullptr;
    fs::remove_all(moved);
    fs::create_directories(b);
  }
}

// A file that another program has put in the place of the commit's is not the commit's to remove.
TEST_F(CommitSwapTest, AFileOfAnotherProgramInAMovedFolderStays) {
  const std::string b = root() + "/a/b", moved = root() + "/a/moved";
  auto store = Open();
  ArmFailpoint("after_rename:call", [&] {
    fs::rename(b, moved);
    fs::remove(moved + "/x.npy");
    std::ofstream(moved + "/x.npy") << "others";
  });
  EXPECT_THAT(Commit(*store, "a/b/x", meta_, data_, {.format = Format::kNpy}),
              IsError(absl::StatusCode::kAborted, "another program moved " + b));
  EXPECT_EQ(ReadFile(moved + "/x.npy").size(), 6u);
  EXPECT_FALSE(fs::exists(moved + "/x.npy.json"));
}

TEST_F(CommitSwapTest, ATemporaryFolderThatIsSwappedAtLastIsNotPublished) {
  const std::string b = root() + "/a/b", temporary = b + "/.octavo-test-1.tmp";
  auto store = Open();
  ArmFailpoint("names_checked:call", [&] {
    fs::rename(temporary, root() + "/a/moved");
    fs::create_directories(temporary + "/others");
  });
  EXPECT_THAT(Commit(*store, "a/b/x", meta_, data_, {}),
              IsError(absl::StatusCode::kAborted, "another program moved " + temporary));
  EXPECT_TRUE(fs::exists(b + "/x.ome.zarr/others"));
  EXPECT_FALSE(fs::exists(temporary));
  EXPECT_THAT(Commit(*store, "a/b/y", meta_, data_, {}), IsOk());
}

// A program that watches the folder may take what has appeared at once.
TEST_F(CommitSwapTest, WhatIsTakenAwayAfterTheRenameIsPublished) {
  for (const Format format : {Format::kOmeZarr05, Format::kNpy}) {
    const std::string final = WithExtension(root() + "/a/b/x", {.format = format});
    auto store = Open();
    ArmFailpoint("parent_synced:call", [&] { fs::rename(final, final + ".taken"); });
    EXPECT_THAT(Commit(*store, "a/b/x", meta_, data_, {.format = format}), IsOk());
    EXPECT_TRUE(fs::exists(final + ".taken"));
  }
}

// The same at a start, which finishes what an earlier process wrote.
class RecoverySwap : public CommitSwapTest, public ::testing::WithParamInterface<Format> {};

TEST_P(RecoverySwap, ARecoveryPublishesNothingInAFolderThatWasMoved) {
  const std::string b = root() + "/a/b", moved = root() + "/a/moved";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto store = Open();
        ArmFailpoint("before_rename:kill");
        (void)Commit(*store, "a/b/x", meta_, data_, {.format = GetParam()});
      },
      ::testing::KilledBySignal(SIGKILL), "");
  ArmFailpoint("names_checked:call", [&] { fs::rename(b, moved); });
  auto store = Open();
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_THAT(report_[0], ::testing::AllOf(::testing::HasSubstr("another program moved " + b),
                                           ::testing::HasSubstr(".octavo-quarantine/")));
  EXPECT_TRUE(fs::is_empty(moved));
}

INSTANTIATE_TEST_SUITE_P(Formats, RecoverySwap, ::testing::Values(Format::kOmeZarr05, Format::kNpy),
                         [](const auto& item) { return std::string(FormatName(item.param)); });

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
