#include "server/private_folders.h"

#include <filesystem>
#include <string>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
namespace fs = std::filesystem;

class PrivateFoldersTest : public ::testing::Test {
 protected:
  PrivateFoldersTest()
      : folder_(fs::canonical(fs::temp_directory_path()) /
                ("octavo-private-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_ / "data");
    fs::create_directories(folder_ / "raw");
    config_.state_dir = folder_ / "state";
    config_.storage_roots = {folder_ / "data"};
    config_.replay_roots = {folder_ / "raw"};
    config_.spill_dir = folder_ / "state/spill";
    config_.history_dir = folder_ / "state/history";
    config_.audit_dir = folder_ / "state/audit";
  }
  ~PrivateFoldersTest() override { fs::remove_all(folder_); }

  const fs::path folder_;
  Config config_;
};

TEST_F(PrivateFoldersTest, FoldersBesideTheRootsAreAllowed) {
  EXPECT_THAT(CheckPrivateFolders(config_), IsOk());
  config_.state_dir = folder_ / "database";  // only the name begins like a root's
  config_.history_dir = config_.audit_dir = "";
  EXPECT_THAT(CheckPrivateFolders(config_), IsOk());
  config_.storage_roots = {folder_ / "state/inner"};  // a root that lies in a folder of the daemon
  EXPECT_THAT(CheckPrivateFolders(config_), IsOk());
}

TEST_F(PrivateFoldersTest, FoldersInARootAreRefusedAndNamedWithIt) {
  const std::pair<const char*, std::string Config::*> keys[] = {
      {"state.dir", &Config::state_dir},
      {"spill.dir", &Config::spill_dir},
      {"history.dir", &Config::history_dir},
      {"audit.dir", &Config::audit_dir}};
  for (const auto& [key, member] : keys) {
    for (const std::string& root_key :
         {std::string("storage.roots"), std::string("storage.replay_roots")}) {
      const fs::path root = folder_ / (root_key == "storage.roots" ? "data" : "raw");
      for (const fs::path& bad : {root, root / "own", root / "a/b"}) {
        Config config = config_;
        config.*member = bad;
        const absl::Status refused = CheckPrivateFolders(config);
        EXPECT_THAT(refused,
                    IsError(absl::StatusCode::kInvalidArgument,
                            std::string(key) + ": is '" + bad.string() + "', which lies in '" +
                                root.string() + "' of " + root_key + ":"));
        EXPECT_EQ(InfoOf(refused).field, key);
      }
    }
  }
  config_.storage_roots.push_back("/");
  EXPECT_THAT(CheckPrivateFolders(config_),
              IsError(absl::StatusCode::kInvalidArgument, "state.dir"));
}

TEST_F(PrivateFoldersTest, LinksAreFollowedOnBothSides) {
  fs::create_directories(folder_ / "data/hidden");
  fs::create_directory_symlink(folder_ / "data/hidden", folder_ / "audit");
  Config by_folder = config_;
  by_folder.audit_dir = folder_ / "audit";
  EXPECT_THAT(CheckPrivateFolders(by_folder),
              IsError(absl::StatusCode::kInvalidArgument,
                      "audit.dir: is '" + (folder_ / "audit").string() + "' (" +
                          (folder_ / "data/hidden").string() + "), which lies in"));
  by_folder.audit_dir = folder_ / "audit/deeper";  // is not there yet
  EXPECT_THAT(CheckPrivateFolders(by_folder),
              IsError(absl::StatusCode::kInvalidArgument, "audit.dir"));
  fs::create_directories(folder_ / "state");
  fs::create_directory_symlink(folder_ / "state", folder_ / "root");
  Config by_root = config_;
  by_root.storage_roots = {folder_ / "root"};
  EXPECT_THAT(CheckPrivateFolders(by_root),
              IsError(absl::StatusCode::kInvalidArgument, "state.dir"));
}

}  // namespace
}  // namespace octavo
