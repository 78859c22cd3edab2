// Commits that are killed or refused at each failpoint, and their recovery at the next start.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"

#include "gpu/base/failpoint.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/io/crc32c.h"
#include "tests/server/storage/storage_test_base.h"

namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::StorageTest;
namespace fs = std::filesystem;

const char* const kPoints[] = {"journal_begin",    "tmp_created",   "chunk_written", "files_synced",
                               "manifest_written", "before_rename", "names_checked", "after_rename",
                               "parent_synced",    "block_written"};

class CommitFaultTest : public StorageTest {
 protected:
  /// Commits in a separate process, which is killed at the failpoint of the commit.
  void CommitAndBeKilled(const char* point, const std::string& destination, const VolumeMeta& meta,
                         const std::vector<uint8_t>& data, const WriterOptions& options) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
          auto store = Open();
          ArmFailpoint(absl::StrCat(point, ":kill"));
          (void)Commit(*store, destination, meta, data, options);
        },
        ::testing::KilledBySignal(SIGKILL), "");
  }
};

/// A format, and whether it is TIFF's folder of files.
struct Way {
  Format format;
  bool stack = false;
  NgffVersion ngff = NgffVersion::kDefault;
  WriterOptions options() const { return {.format = format, .ngff = ngff, .tiff_stack = stack}; }
};
std::string NameOf(const Way& way) {
  return absl::StrCat(FormatName(way.format), way.stack ? "_stack" : "",
                      way.ngff == NgffVersion::k04 ? "_v2" : "");
}
std::vector<Way> Ways() {
  std::vector<Way> out = {{.format = Format::kOmeTiff, .stack = true},
                          {.format = Format::kOmeZarr05, .ngff = NgffVersion::k04}};
  for (const Format format : kFormats) out.push_back({.format = format});
  return out;
}

std::vector<Way> SingleFileWays() {
  std::vector<Way> out;
  for (const Way& way : Ways())
    if (IsSingleFile(way.options())) out.push_back(way);
  return out;
}

class CommitFault : public CommitFaultTest,
                    public ::testing::WithParamInterface<std::tuple<const char*, Way>> {
 protected:
  const char* point() const { return std::get<0>(GetParam()); }
  WriterOptions options() const { return std::get<1>(GetParam()).options(); }
};

TEST_P(CommitFault, AnErrorLeavesNothingAndTheNextCommitWorks) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 20, 16, 64);
  auto store = Open();
  for (const auto& [error, code] : {std::pair{28, absl::StatusCode::kResourceExhausted},
                                    {30, absl::StatusCode::kPermissionDenied},
                                    {5, absl::StatusCode::kInternal}}) {
    ArmFailpoint(absl::StrCat(point(), ":errno=", error));
    const auto failed = Commit(*store, "deep/er/x", meta, data, options());
    EXPECT_THAT(failed, IsError(code, "")) << point();
    EXPECT_EQ(Files(), std::vector<std::string>()) << point();
  }
  ArmFailpoint("");
  ASSERT_THAT(Commit(*store, "deep/er/x", meta, data, options()), IsOk());
  store = nullptr;
  store = Open();
  EXPECT_EQ(report_, std::vector<std::string>()) << "nothing is left to recover";
}

TEST_P(CommitFault, KilledThereTheNextStartFinishesOrCleansUp) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 20, 16, 64);
  CommitAndBeKilled(point(), "deep/er/x", meta, data, options());
  auto store = Open();
  ASSERT_EQ(report_.size(), 1u);
  const std::string final = WithExtension(root() + "/deep/er/x", options());
  const std::set<std::string> complete = {"manifest_written", "before_rename", "names_checked",
                                          "side_renamed",     "after_rename",  "parent_synced"};
  EXPECT_EQ(std::filesystem::exists(final), complete.contains(point())) << report_[0];
  for (const std::string& name : Files()) {
    if (!name.starts_with(".octavo-quarantine"))
      EXPECT_EQ(name.find(".octavo-test"), std::string::npos) << name;
  }
  if (std::filesystem::exists(final)) {
    if (IsSingleFile(options())) {
      const auto file = ReadFile(final);
      if (options().format == Format::kNpy || options().format == Format::kBin) {
        EXPECT_EQ(std::vector<uint8_t>(file.end() - static_cast<int64_t>(data.size()), file.end()),
                  data);
      }
      const auto side = nlohmann::json::parse(ReadFile(final + ".json"));
      EXPECT_EQ(side["file"]["bytes"], file.size());
      EXPECT_EQ(side["file"]["crc32c"],
                absl::StrCat(absl::Hex(Crc32c(file.data(), file.size()), absl::kZeroPad8)));
    } else {
      EXPECT_THAT(VerifyDirectory(final), IsOk());
    }
  } else {
    EXPECT_THAT(Commit(*store, "deep/er/x", meta, data, options()), IsOk())
        << "the name is free again";
  }
  store = nullptr;
  store = Open();
  EXPECT_EQ(report_, std::vector<std::string>()) << "recovered once";
}

INSTANTIATE_TEST_SUITE_P(Points, CommitFault,
                         ::testing::Combine(::testing::ValuesIn(kPoints),
                                            ::testing::ValuesIn(Ways())),
                         [](const auto& item) {
                           return absl::StrCat(std::get<0>(item.param), "_",
                                               NameOf(std::get<1>(item.param)));
                         });

// Between the two renames of a single file and its metadata.
INSTANTIATE_TEST_SUITE_P(BetweenRenames, CommitFault,
                         ::testing::Combine(::testing::Values("side_renamed"),
                                            ::testing::ValuesIn(SingleFileWays())),
                         [](const auto& item) { return NameOf(std::get<1>(item.param)); });

class RootAway : public CommitFault {};

// A disk is not mounted when the server starts: the server must not abandon its files because of
// the empty folder in its place.
TEST_P(RootAway, WhatIsOnItWaitsForIt) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 20, 16, 64);
  CommitAndBeKilled(point(), "x", meta, data, options());
  const auto before = Files();
  std::filesystem::rename(root(), root() + ".away");
  for (int start = 0; start < 2; ++start) {
    auto store = Open();
    ASSERT_EQ(report_.size(), 1u);
    EXPECT_THAT(report_[0], ::testing::HasSubstr("nothing is settled"));
    // Meanwhile another program takes the final name.
    if (start == 0) EXPECT_THAT(Commit(*store, "x", meta, data, options()), IsOk());
  }
  std::filesystem::remove_all(root());
  std::filesystem::rename(root() + ".away", root());
  EXPECT_EQ(Files(), before);
  auto store = Open();
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_THAT(report_[0], ::testing::Not(::testing::HasSubstr("nothing is settled")));
  for (const std::string& name : Files()) {
    if (!name.starts_with(".octavo-quarantine"))
      EXPECT_EQ(name.find(".octavo-test"), std::string::npos) << name;
  }
  store = nullptr;
  store = Open();
  EXPECT_EQ(report_, std::vector<std::string>()) << "recovered once";
}

INSTANTIATE_TEST_SUITE_P(
    Points, RootAway,
    ::testing::Combine(::testing::Values("chunk_written", "before_rename", "after_rename"),
                       ::testing::Values(Way{Format::kOmeZarr05}, Way{Format::kNpy},
                                         Way{Format::kOmeTiff, true})),
    [](const auto& item) {
      return absl::StrCat(std::get<0>(item.param), "_", NameOf(std::get<1>(item.param)));
    });

class Damage : public CommitFault {};

// A byte changes on the disk between the crash and the start: the file is never published and never
// deleted.
TEST_P(Damage, GoesToQuarantine) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 20, 16, 64);
  CommitAndBeKilled(point(), "x", meta, data, options());
  const std::string final = WithExtension("x", options());
  std::string victim;
  for (const std::string& name : Files()) {
    if (name.ends_with("/0/0/0") || name.ends_with(".tmp/data") ||
        name.ends_with("slice_00003.tif") || name == final)
      victim = root() + "/" + name;
  }
  ASSERT_FALSE(victim.empty());
  {
    std::fstream file(victim, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(150);
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(150);
    file.put(byte);
  }
  auto store = Open();
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_NE(report_[0].find("quarantine"), std::string::npos) << report_[0];
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(root(), "/", final)));
  EXPECT_FALSE(std::filesystem::is_empty(root() + "/.octavo-quarantine"));
}

INSTANTIATE_TEST_SUITE_P(Points, Damage,
                         ::testing::Combine(::testing::Values("manifest_written", "after_rename"),
                                            ::testing::ValuesIn(Ways())),
                         [](const auto& item) {
                           return absl::StrCat(std::get<0>(item.param), "_",
                                               NameOf(std::get<1>(item.param)));
                         });

TEST_F(CommitFaultTest, ATornJournalLineIsIgnoredAndSomebodyElsesFilesStay) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 4, 8, 16);
  std::ofstream(root() + "/other.txt") << "theirs";
  {
    auto store = Open();
    ASSERT_THAT(Commit(*store, "x", meta, data, {}), IsOk());
  }
  std::ofstream(directory_ + "/state/commits.journal", std::ios::app)
      << "0badc0de {\"op\": \"begin\", \"final\": \"" << root() << "/other.txt\", \"tempor";
  auto store = Open();
  EXPECT_EQ(report_, std::vector<std::string>());
  EXPECT_THAT(Commit(*store, "y", meta, data, {}), IsOk());
  EXPECT_TRUE(std::filesystem::exists(root() + "/other.txt"));
  EXPECT_TRUE(std::filesystem::exists(root() + "/x.ome.zarr/zarr.json"));
}

/// While the server is down, another user writes into the folders of a root.
template <class What>
class SwappedWhileDown : public CommitFaultTest,
                         public ::testing::WithParamInterface<std::tuple<What, Way>> {
 protected:
  SwappedWhileDown() {
    data_ = MakeVolume(&meta_, 20, 16, 64);
    fs::create_directories(root() + "/deep");
    fs::create_directories(outside());
    ::alarm(50);  // a start that waits for a pipe would wait for ever
  }
  ~SwappedWhileDown() override { ::alarm(0); }
  const What& what() const { return std::get<0>(this->GetParam()); }
  Way way() const { return std::get<1>(this->GetParam()); }
  WriterOptions options() const { return way().options(); }
  std::string temporary() const { return root() + "/deep/.octavo-test-1.tmp"; }
  std::string outside() const { return directory_ + "/outside"; }
  std::vector<std::string> FilesOutside() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(outside()))
      files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
  }

  VolumeMeta meta_;
  std::vector<uint8_t> data_;
};

/// Fills a folder that replaces the temporary one, which is at `real`.
struct Hostile {
  const char* name;
  void (*make)(const std::string& folder, const std::string& real);
};
const Hostile kHostile[] = {
    {"PipeForManifest",
     [](const std::string& folder, const std::string&) {
       ASSERT_EQ(::mkfifo((folder + "/" + kManifestName).c_str(), 0644), 0);
     }},
    {"HoleForManifest",
     [](const std::string& folder, const std::string&) {
       std::ofstream(folder + "/" + kManifestName) << "{";
       fs::resize_file(folder + "/" + kManifestName, uintmax_t{1} << 35);
     }},
    {"ManifestElsewhere",
     [](const std::string& folder, const std::string& real) {
       fs::copy(real, folder, fs::copy_options::recursive);
       fs::remove(folder + "/" + kManifestName);
       fs::create_symlink(real + "/" + kManifestName, folder + "/" + kManifestName);
     }},
    {"FilesElsewhere",
     [](const std::string& folder, const std::string& real) {
       for (const auto& entry : fs::directory_iterator(real)) {
         const std::string to = folder + "/" + entry.path().filename().string();
         entry.path().filename() == kManifestName ? fs::copy(entry.path(), to)
                                                  : fs::create_symlink(entry.path(), to);
       }
     }},
    {"PipesForFiles",
     [](const std::string& folder, const std::string& real) {
       fs::copy(real, folder, fs::copy_options::recursive);
       std::vector<std::string> files;
       for (const auto& entry : fs::recursive_directory_iterator(folder)) {
         if (entry.is_regular_file() && entry.path().filename() != kManifestName)
           files.push_back(entry.path().string());
       }
       for (const std::string& file : files) {
         fs::remove(file);
         ASSERT_EQ(::mkfifo(file.c_str(), 0644), 0);
       }
     }},
};

using HostileTemporary = SwappedWhileDown<Hostile>;

TEST_P(HostileTemporary, IsNeitherWaitedForNorFollowed) {
  CommitAndBeKilled("manifest_written", "deep/x", meta_, data_, options());
  fs::rename(temporary(), outside() + "/real");
  fs::create_directory(temporary());
  what().make(temporary(), outside() + "/real");
  const auto before = FilesOutside();
  auto store = Open();
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_THAT(report_[0], ::testing::AllOf(::testing::HasSubstr(": not finished ("),
                                           ::testing::HasSubstr("moved to "),
                                           ::testing::Not(::testing::HasSubstr("/proc/"))));
  EXPECT_EQ(FilesOutside(), before);
  EXPECT_THAT(Commit(*store, "deep/x", meta_, data_, options()), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Ways, HostileTemporary,
                         ::testing::Combine(::testing::ValuesIn(kHostile),
                                            ::testing::Values(Way{Format::kOmeZarr05},
                                                              Way{Format::kNpy},
                                                              Way{Format::kOmeTiff, true})),
                         [](const auto& item) {
                           return absl::StrCat(std::get<0>(item.param).name, "_",
                                               NameOf(std::get<1>(item.param)));
                         });

using FolderBecameALink = SwappedWhileDown<const char*>;

TEST_P(FolderBecameALink, NothingIsDoneBehindIt) {
  const bool given_up = what() == std::string("given_up");
  if (given_up) {
    auto store = Open();
    ASSERT_OK_AND_ASSIGN(auto transaction, store->Begin("test-1", "deep/x", meta_, options()));
    fs::rename(root() + "/deep", outside() + "/deep");
    fs::create_directory_symlink(outside() + "/deep", root() + "/deep");
  } else {
    CommitAndBeKilled(what(), "deep/x", meta_, data_, options());
    fs::rename(root() + "/deep", outside() + "/deep");
    fs::create_directory_symlink(outside() + "/deep", root() + "/deep");
  }
  const auto before = FilesOutside(), files = Files();
  auto store = Open();
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_THAT(report_[0],
              ::testing::HasSubstr("nothing is settled, because its folder lies behind a link"));
  EXPECT_EQ(FilesOutside(), before);
  EXPECT_EQ(Files(), files);
  store = nullptr;
  fs::remove(root() + "/deep");
  fs::rename(outside() + "/deep", root() + "/deep");
  store = Open();
  ASSERT_EQ(report_.size(), 1u);
  EXPECT_THAT(report_[0], ::testing::Not(::testing::HasSubstr("nothing is settled")));
  EXPECT_FALSE(fs::exists(temporary()));
  store = nullptr;
  store = Open();
  EXPECT_EQ(report_, std::vector<std::string>()) << "recovered once";
}

INSTANTIATE_TEST_SUITE_P(Points, FolderBecameALink,
                         ::testing::Combine(::testing::Values("chunk_written", "manifest_written",
                                                              "after_rename", "given_up"),
                                            ::testing::Values(Way{Format::kOmeZarr05},
                                                              Way{Format::kNpy},
                                                              Way{Format::kOmeTiff, true})),
                         [](const auto& item) {
                           return absl::StrCat(std::get<0>(item.param), "_",
                                               NameOf(std::get<1>(item.param)));
                         });

}  // namespace
}  // namespace octavo::storage
