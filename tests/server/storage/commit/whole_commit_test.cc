#include "server/storage/commit/whole_commit.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "server/storage/formats/manifest.h"
#include "tests/server/storage/storage_test_base.h"

namespace octavo::storage {
namespace {

namespace fs = std::filesystem;
using octavo::testing::IsError;
using octavo::testing::IsOk;

constexpr absl::StatusCode kLoss = absl::StatusCode::kDataLoss;

class WholeCommitTest : public testing::StorageTest {
 protected:
  /// A commit of each format, in a new folder. Returns where it is.
  std::string Make(const WriterOptions& options) {
    static int serial = 0;
    destination_ = absl::StrCat("results", ++serial, "/night/eye");
    options_ = options;
    VolumeMeta meta;
    const std::vector<uint8_t> data = MakeVolume(&meta, 6, 8, 16);
    meta.processing = {{"job", {{"kind", "tomography"}, {"parameters", {{"file", "a.h5"}}}}}};
    const auto store = Open();
    const auto made = Commit(*store, destination_, meta, data, options);
    EXPECT_THAT(made.status(), IsOk());
    return made.ok() ? made->path : "";
  }
  absl::Status Check() const { return CheckWhole({root()}, destination_, options_); }
  /// The files of the commit, but for its manifest.
  static std::vector<std::string> FilesOf(const std::string& path) {
    if (fs::is_regular_file(path)) return {path};
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && entry.path().filename() != kManifestName)
        files.push_back(entry.path());
    }
    return files;
  }
  static std::vector<WriterOptions> AllOptions() {
    std::vector<WriterOptions> all;
    for (const Format format : kFormats) {
      WriterOptions options;
      options.format = format;
      all.push_back(options);
    }
    return all;
  }

  std::string destination_;
  WriterOptions options_;
};

TEST_F(WholeCommitTest, WhatWasPublishedIsWhole) {
  for (const WriterOptions& options : AllOptions()) {
    Make(options);
    EXPECT_THAT(Check(), IsOk()) << static_cast<int>(options.format);
  }
}

TEST_F(WholeCommitTest, EveryFileCounts) {
  for (const WriterOptions& options : AllOptions()) {
    const std::string path = Make(options);
    for (const std::string& file : FilesOf(path)) {
      const auto size = fs::file_size(file);
      fs::resize_file(file, size + 1);
      EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(file, " has ", size + 1,
                                                       " bytes; written were ", size)));
      fs::resize_file(file, size);
      EXPECT_THAT(Check(), IsOk()) << file;
      fs::rename(file, file + ".away");
      EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(file, " is missing")));
      fs::create_directory(file);
      EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(file, " is no regular file")));
      fs::remove(file);
      fs::create_symlink(file + ".away", file);
      EXPECT_THAT(Check(), IsError(kLoss, file)) << "a link, which may lead anywhere";
      fs::remove(file);
      fs::rename(file + ".away", file);
    }
    EXPECT_THAT(Check(), IsOk());
  }
}

TEST_F(WholeCommitTest, TheyTellHowTheyWereMade) {
  std::vector<WriterOptions> all = AllOptions();
  all.emplace_back();
  all.back().ngff = NgffVersion::k04;
  all.emplace_back();
  all.back().format = Format::kOmeTiff;
  all.back().tiff_stack = true;
  for (const WriterOptions& options : all) {
    const std::string path = Make(options);
    const auto processing = ReadProcessing({root()}, destination_, options_);
    ASSERT_THAT(processing.status(), IsOk()) << path;
    EXPECT_EQ((*processing)["job"]["parameters"]["file"], "a.h5") << path;
    for (const std::string& file :
         {path + ".json", path + "/zarr.json", path + "/.zattrs", path + "/octavo.json"})
      if (fs::exists(file)) std::ofstream(file) << "{}";
    EXPECT_THAT(ReadProcessing({root()}, destination_, options_),
                IsError(kLoss, "does not say how it was made"));
    if (fs::is_directory(path)) {
      fs::remove_all(path);
      EXPECT_THAT(ReadProcessing({root()}, destination_, options_),
                  IsError(kLoss, path + " is missing"));
    }
  }
}

TEST_F(WholeCommitTest, WhatIsNotOurs) {
  for (const WriterOptions& options : AllOptions()) {
    const std::string path = Make(options);
    if (!fs::is_directory(path)) {
      const std::string side = path + ".json";
      for (const char* text : {"", "no JSON", "[1]", "{}", R"({"file": {"bytes": "many"}})"}) {
        std::ofstream(side) << text;
        EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(side, " does not say how many bytes")));
      }
      fs::remove(side);
      EXPECT_THAT(Check(), IsError(kLoss, "beside it, which every result has"));
      continue;
    }
    const std::string manifest = absl::StrCat(path, "/", kManifestName);
    std::ofstream(manifest) << "{}";
    EXPECT_THAT(Check(), IsError(kLoss, "damaged manifest"));
    fs::remove(manifest);
    EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(path, " has no ", kManifestName)));
    fs::remove_all(path);
    EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(path, " is missing")));
    fs::create_directory(path);
    EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(path, " is an empty folder")));
    fs::remove(path);
    std::ofstream{path} << "x";
    EXPECT_THAT(Check(), IsError(kLoss, absl::StrCat(path, " is a file")));
  }
}

}  // namespace
}  // namespace octavo::storage
