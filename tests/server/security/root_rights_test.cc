#include "server/security/root_rights.h"

#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/status_matchers.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Owner kAda{.name = "ada", .role = Role::kOperator};
const Owner kVera{.name = "vera", .role = Role::kViewer};
const Owner kBob{.name = "bob", .role = Role::kOperator};
const Owner kRoot{.name = "root", .role = Role::kAdmin};

RootRights Rights(const std::vector<std::string>& lines) {
  RootRights rights;
  for (const std::string& line : lines) EXPECT_THAT(rights.Add(line), IsOk()) << line;
  return rights;
}

TEST(RootRights, ANamePrecedesItsRoleAndThatTheRest) {
  const RootRights rights =
      Rights({"ada=/data/ada", "ada=/data/shared", "role:viewer=/data/seen", "*=/data/lab"});
  EXPECT_THAT(*rights.RootsOf(kAda), ElementsAre("/data/ada", "/data/shared"));
  EXPECT_THAT(*rights.RootsOf(kVera), ElementsAre("/data/seen"));
  EXPECT_THAT(*rights.RootsOf(kBob), ElementsAre("/data/lab"));
  EXPECT_FALSE(rights.RootsOf(kRoot).has_value()) << "admins may name all";
  EXPECT_FALSE(rights.RootsOf({}).has_value()) << "so may the server itself";
  EXPECT_TRUE(Rights({"role:admin=/data"}).RootsOf(kRoot).has_value()) << "unless it is said";
  EXPECT_FALSE(Rights({"ada=/data"}).RootsOf(kBob).has_value()) << "without a line: all";
  const std::vector<std::string> all = {"/data/lab", "/data/shared", "/data/ada"};
  EXPECT_THAT(rights.Among(all, kAda), ElementsAre("/data/shared", "/data/ada"));
  EXPECT_THAT(rights.Among(all, kVera), IsEmpty());
  EXPECT_EQ(rights.Among(all, kRoot), all);
}

TEST(RootRights, APathMustLieInARoot) {
  const RootRights rights = Rights({"ada=/data/ada/", "ada=/other"});
  for (const char* good : {"/data/ada/x.zarr", "/data/ada/a/b", "/other/x"})
    EXPECT_THAT(rights.Check(kAda, good, "options.destination", good), IsOk()) << good;
  for (const char* bad : {"/data/adam/x", "/data/x", "/", "/otherwise"}) {
    const absl::Status refused = rights.Check(kAda, bad, "options.destination", "given");
    EXPECT_THAT(refused,
                IsError(absl::StatusCode::kPermissionDenied,
                        "options.destination: 'given' lies in a storage root that ada may not use; "
                        "allowed are absolute paths below /data/ada, /other"))
        << bad;
    EXPECT_EQ(InfoOf(refused).reason, Reason::kOutsideRoots);
    EXPECT_EQ(InfoOf(refused).field, "options.destination");
    EXPECT_THAT(rights.Check(kBob, bad, "options.destination", bad), IsOk());
  }
}

// A root may be named by a link; the path that a commit opens has none.
TEST(RootRights, LinksOfRootsAreFollowed) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("octavo-roots-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "real");
  std::filesystem::create_directory_symlink(folder / "real", folder / "link");
  const RootRights rights = Rights({"ada=" + (folder / "link").string()});
  const std::string inside = std::filesystem::canonical(folder / "real").string() + "/x";
  EXPECT_THAT(rights.Check(kAda, inside, "f", "x"), IsOk());
  std::filesystem::remove_all(folder);
}

TEST(RootRights, BadLinesSayWhatIsAllowed) {
  for (const char* bad : {"", "ada", "ada=", "ada=data", "=/data", "role:=/data", "role:king=/data",
                          "role:none=/data"}) {
    RootRights rights;
    EXPECT_THAT(rights.Add(bad), IsError(absl::StatusCode::kInvalidArgument,
                                         "allowed is <name of a principal>=<root>"))
        << bad;
  }
}

}  // namespace
}  // namespace octavo::security
