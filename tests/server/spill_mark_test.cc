// Which folder the daemons of a state folder spill to (server/spill_mark.h).

#include "server/spill_mark.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::IsError;
using testing::IsOk;
using testing::TempFolder;

class SpillMarkTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string state_ = folder_ / "state", spill_ = folder_ / "disk/spill";
  void SetUp() override {
    fs::create_directories(state_);
    fs::create_directories(spill_);
  }
};

TEST_F(SpillMarkTest, AFolderThatWasUsedAndIsMissingIsRefused) {
  const SpillMark mark(state_);
  EXPECT_THAT(mark.Check(folder_ / "never-used"), IsOk());
  EXPECT_THAT(mark.Check(spill_), IsOk());
  ASSERT_THAT(mark.Set(spill_), IsOk());
  EXPECT_EQ(mark.Check(spill_).value(), "");
  EXPECT_EQ(SpillMark(state_).Check(spill_).value(), "") << "the next daemon";
  fs::rename(folder_ / "disk", folder_ / "unmounted");
  EXPECT_THAT(mark.Check(spill_).status(),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "'" + spill_ + "' is missing, and the last octavod used it: mount"));
  EXPECT_THAT(mark.Check(folder_ / "never-used"), IsOk()) << "another one was configured";
  fs::rename(folder_ / "unmounted", folder_ / "disk");
  EXPECT_EQ(mark.Check(spill_).value(), "");
}

TEST_F(SpillMarkTest, AnotherFolderAtItsPlaceIsAWarning) {
  const SpillMark mark(state_);
  ASSERT_THAT(mark.Set(spill_), IsOk());
  fs::rename(spill_, folder_ / "disk/old");  // stays, so that its inode is not used again
  fs::create_directories(spill_);
  EXPECT_THAT(mark.Check(spill_).value(), HasSubstr("another folder is at " + spill_));
  ASSERT_THAT(mark.Set(spill_), IsOk());
  EXPECT_EQ(mark.Check(spill_).value(), "") << "it is the one that counts now";
}

TEST_F(SpillMarkTest, TheRateStaysWithItsFolder) {
  const SpillMark mark(state_);
  EXPECT_EQ(mark.Rate(spill_), 0);
  ASSERT_THAT(mark.Set(spill_), IsOk());
  ASSERT_THAT(mark.SetRate(spill_, 2.5e8), IsOk());
  ASSERT_THAT(mark.Set(spill_), IsOk());
  EXPECT_EQ(SpillMark(state_).Rate(spill_), 2.5e8);
  EXPECT_EQ(mark.Rate(folder_ / "other"), 0);
  fs::create_directories(folder_ / "other");
  ASSERT_THAT(mark.Set(folder_ / "other"), IsOk());
  EXPECT_EQ(mark.Rate(folder_ / "other"), 0);
}

TEST_F(SpillMarkTest, AMarkThatCannotBeReadCountsAsNone) {
  const SpillMark mark(state_);
  for (const char* text : {"", "{", "[]", "{\"folder\": 3}", "{\"folder\": \"x\", \"id\": [1]}",
                           "{\"bytes_per_second\": -4}"}) {
    std::ofstream(state_ + "/spill_folder.json") << text;
    EXPECT_EQ(mark.Check(spill_).value(), "") << text;
    EXPECT_EQ(mark.Rate(spill_), 0) << text;
  }
  // Nobody is led elsewhere.
  fs::remove(state_ + "/spill_folder.json");
  std::ofstream(folder_ / "elsewhere") << "stays";
  fs::create_symlink(folder_ / "elsewhere", state_ + "/spill_folder.json");
  fs::create_symlink(folder_ / "elsewhere", state_ + "/spill_folder.json.new");
  ASSERT_THAT(mark.Set(spill_), IsOk());
  std::string text;
  std::ifstream(folder_ / "elsewhere") >> text;
  EXPECT_EQ(text, "stays");
  EXPECT_FALSE(fs::is_symlink(state_ + "/spill_folder.json"));
}

}  // namespace
}  // namespace octavo
