#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "gpu/base/unique_fd.h"
#include "server/storage/formats/writer.h"

namespace octavo::storage {

/// Where a commit's files are and will be, as the journal keeps it.
struct CommitPaths {
  std::string key;     // of the journal entry, unique
  std::string id;      // of the commit
  std::string volume;  // volumes/<id>
  std::string final, temporary;
  Format format = Format::kOmeZarr05;
  bool folder = true;  // the commit is a directory, else one file with its metadata beside it
  std::vector<std::string> made;  // parent directories that the commit makes, outermost first
  std::string root, root_id;      // of the storage, when the commit began (DirectoryId); empty in
                                  // journals of earlier versions

  nlohmann::json ToJson(const char* op) const;
  /// DataLoss names the member that is not what ToJson writes. Those that earlier versions did not
  /// write may be missing.
  static absl::StatusOr<CommitPaths> FromJson(const nlohmann::json& record);
  /// The metadata beside a format of one file.
  std::string Side() const { return final + ".json"; }
};

/// The root that a path without links lies in, with links resolved; of roots inside each other the
/// innermost. Empty if there is none.
std::string RootOf(const std::vector<std::string>& roots, const std::string& path);

/// Whether the disk is there that the commit wrote to.
bool IsSameRoot(const CommitPaths& paths);

/// The folder of a commit's final and temporary names, open, and the same paths by way of it:
/// whatever becomes of the names above it, what is done by these is done in that folder.
struct HeldPaths {
  UniqueFd folder, temporary;  // temporary: once it is open
  CommitPaths paths;
  CommitPaths known;  // as people know them

  /// Opens the temporary folder: a folder, and no link to one.
  absl::Status OpenTemporary();
  /// Whether the temporary name is still that of the folder that is open.
  bool HasTemporaryName() const;
  /// For PublishFiles and WithdrawFiles, once `temporary` is open: single files move out of it, a
  /// folder by its own name.
  CommitPaths Moving() const;
  /// With the names that people know in place of those of open folders.
  absl::Status Named(const absl::Status& status) const;
};
/// NotFound if the folder is not there; InvalidArgument if its path leads somewhere else (now), or
/// outside of the roots.
absl::StatusOr<HeldPaths> Hold(const std::vector<std::string>& roots, const CommitPaths& paths);

/// Gives the finished files of `paths.temporary` their final names, without replacing, and makes
/// that durable. Goes on where an earlier call was interrupted. AlreadyExists: the name is taken
/// (the files are under temporary names again).
absl::Status PublishFiles(const CommitPaths& paths);
/// Takes back what PublishFiles renamed: all is under temporary names again. Only for files known
/// to be the commit's.
absl::Status WithdrawFiles(const CommitPaths& paths);
/// Removes a file or directory tree, symbolic links in it not followed; false if something is left.
bool RemoveTree(const std::string& path);
/// Makes a directory whose parent lies beneath the roots.
absl::Status MakeBeneath(const std::vector<std::string>& roots, const std::string& directory);
/// Removes those of the directories that are empty, innermost first.
void RemoveEmpty(const std::vector<std::string>& roots,
                 const std::vector<std::string>& directories);

/// What became of a commit that an earlier process did not end.
struct Recovered {
  std::string line;     // for people
  bool settled = true;  // false: the journal entry has to stay
};
/// `abandoned`: the process had given it up and was removing it.
Recovered Recover(const std::vector<std::string>& roots, const CommitPaths& paths, bool abandoned);

}  // namespace octavo::storage
