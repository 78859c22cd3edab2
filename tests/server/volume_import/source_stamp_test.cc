// Every change of a file, or of something in a folder, is seen; reading is none.

#include "server/volume_import/source_stamp.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::volume_import {
namespace {

using octavo::testing::IsOk;

class SourceStampTest : public ::testing::Test {
 protected:
  SourceStamp Of(const std::string& name) {
    auto stamp = SourceStamp::Of(UniqueFd(::open((folder_ / name).c_str(), O_RDONLY | O_CLOEXEC)));
    EXPECT_THAT(stamp, IsOk());
    return *std::move(stamp);
  }
  /// Another time than that of a write just before.
  void Age(const std::string& name) const {
    std::filesystem::last_write_time(
        folder_ / name, std::filesystem::last_write_time(folder_ / name) - std::chrono::hours(1));
  }

  octavo::testing::TempFolder folder_;
};

TEST_F(SourceStampTest, AFile) {
  folder_.Write("a", "0123");
  Age("a");
  const SourceStamp stamp = Of("a");
  std::string read;
  std::ifstream(folder_ / "a") >> read;
  EXPECT_EQ(stamp.Changed(), "");
  folder_.Write("a", "0129");
  EXPECT_EQ(stamp.Changed(), ".");
  // Its size alone.
  const auto then = std::filesystem::last_write_time(folder_ / "a");
  const SourceStamp longer = Of("a");
  folder_.Write("a", "01234");
  std::filesystem::last_write_time(folder_ / "a", then);
  EXPECT_EQ(longer.Changed(), ".");
}

TEST_F(SourceStampTest, AnOpenFileThatIsReplacedKeepsItsData) {
  folder_.Write("a", "0123");
  const SourceStamp stamp = Of("a");
  folder_.Write("b", "9999");
  std::filesystem::rename(folder_ / "b", folder_ / "a");
  EXPECT_EQ(stamp.Changed(), "");
}

TEST_F(SourceStampTest, AFolder) {
  std::filesystem::create_directories(folder_ / "f/deep/er");
  folder_.Write("f/zarr.json", "{}");
  folder_.Write("f/one", "1");
  folder_.Write("f/deep/er/two", "2");
  for (const char* name : {"f/zarr.json", "f/one", "f/deep/er/two", "f/deep/er", "f/deep", "f"})
    Age(name);
  EXPECT_EQ(Of("f").Changed(), "");
  {
    const SourceStamp stamp = Of("f");
    folder_.Write("f/deep/er/two", "3");
    EXPECT_EQ(stamp.Changed(), "deep/er/two");
  }
  {
    const SourceStamp stamp = Of("f");
    folder_.Write("f/deep/er/three", "3");  // a new file changes its folder
    EXPECT_EQ(stamp.Changed(), "deep/er");
  }
  {
    Age("f/deep/er");
    const SourceStamp stamp = Of("f");
    std::filesystem::remove(folder_ / "f/deep/er/three");
    EXPECT_NE(stamp.Changed(), "");
  }
  {
    const SourceStamp stamp = Of("f");
    folder_.Write("f/one.new", "1");
    std::filesystem::rename(folder_ / "f/one.new", folder_ / "f/one");
    EXPECT_NE(stamp.Changed(), "");
  }
  // Of a folder that is no Zarr, what lies deeper is not its own.
  std::filesystem::remove(folder_ / "f/zarr.json");
  for (const char* name : {"f/deep/er", "f"}) Age(name);
  const SourceStamp stamp = Of("f");
  folder_.Write("f/deep/er/four", "4");
  EXPECT_EQ(stamp.Changed(), "");
  folder_.Write("f/one", "12");
  EXPECT_EQ(stamp.Changed(), "one");
}

}  // namespace
}  // namespace octavo::volume_import
