#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "gpu/base/unique_fd.h"
#include "server/storage/formats/writer.h"

namespace octavo::storage {

/// The present and final places of a commit's files, as stored in the journal.
struct CommitPaths {
  std::string key;     // of the journal entry, unique
  std::string id;      // of the commit
  std::string volume;  // volumes/<id>
  std::string final, temporary;
  Format format = Format::kOmeZarr05;
  bool folder = true;  // the commit is a directory; otherwise one file with its metadata beside it
  std::vector<std::string> made;  // parent directories that the commit makes, outermost first
  std::string root, root_id;      // of the storage, when the commit began (DirectoryId); empty in
                                  // journals of earlier versions

  nlohmann::json ToJson(const char* op) const;
  /// DataLoss names the member that ToJson would not have written. Members that earlier versions
  /// did not write may be missing.
  static absl::StatusOr<CommitPaths> FromJson(const nlohmann::json& record);
  /// The metadata beside a format of one file.
  std::string Side() const { return final + ".json"; }
};

/// The root that a path without links lies in, with links resolved; of roots inside each other the
/// innermost. Empty if there is none.
std::string RootOf(const std::vector<std::string>& roots, const std::string& path);

/// Whether the disk that the commit wrote to is mounted.
bool IsSameRoot(const CommitPaths& paths);

/// The open folder of a commit's final and temporary names, and the same paths through it:
/// operations by these paths act in that folder even if the names above it change.
struct HeldPaths {
  UniqueFd folder, temporary;  // temporary: after it was opened
  CommitPaths paths;
  CommitPaths known;  // the paths as users write them

  /// Opens the temporary folder: a folder, and no link to one.
  absl::Status OpenTemporary();
  /// Aborted if the path that users know does not lead to the open folder any more; others if that
  /// cannot be found out now (no descriptors, no access).
  absl::Status CheckFolderName(const std::vector<std::string>& roots) const;
  /// Whether the temporary name still names the open folder.
  bool HasTemporaryName() const;
  /// For PublishFiles and WithdrawFiles, once `temporary` is open: single files move out of it, a
  /// folder by its own name.
  CommitPaths Moving() const;
  /// Replaces the names of open folders by the names that users know.
  absl::Status Named(const absl::Status& status) const;
};
/// NotFound if the folder does not exist; InvalidArgument if its path now leads elsewhere, or
/// outside of the roots.
absl::StatusOr<HeldPaths> Hold(const std::vector<std::string>& roots, const CommitPaths& paths);

/// Gives the finished files of `paths.temporary` their final names, without replacing, and makes
/// that durable. Continues after an interrupted earlier call. AlreadyExists: the name is taken (the
/// files are under temporary names again).
absl::Status PublishFiles(const CommitPaths& paths);

/// How PublishHeld ended.
struct PublishedHeld {
  absl::Status status;
  // Another program moved the folder. What is at the known paths now is not the commit's, and must
  // not be touched; what is in the open folder is.
  bool elsewhere = false;
};
/// PublishFiles in the open folder, once `temporary` is open. The files never leave that folder,
/// whatever happens to its name; but a system call that renames only while the folder has a certain
/// path does not exist. So the path is compared before the renames and again when they are durable:
/// if it leads elsewhere by then, the files are taken back to their temporary names, and the result
/// is Aborted. If they cannot be taken back, the message says where they lie. What is OK was in the
/// folder of that path after the last rename.
/// `renaming`: true while files may have final names by the known paths; may be null.
PublishedHeld PublishHeld(const std::vector<std::string>& roots, const HeldPaths& held,
                          bool* renaming = nullptr);
/// Undoes the renames of PublishFiles: all files have their temporary names again. Only for files
/// known to be the commit's.
absl::Status WithdrawFiles(const CommitPaths& paths);
/// Removes a file or directory tree, symbolic links in it not followed; false if something is left.
bool RemoveTree(const std::string& path);
/// Makes a directory whose parent lies beneath the roots.
absl::Status MakeBeneath(const std::vector<std::string>& roots, const std::string& directory);
/// Removes the empty ones among the directories, innermost first.
void RemoveEmpty(const std::vector<std::string>& roots,
                 const std::vector<std::string>& directories);

/// Outcome of the recovery of a commit that an earlier process did not finish.
struct Recovered {
  std::string line;        // for people
  bool settled = true;     // false: the journal entry must stay
  bool published = false;  // the files are there under their final name, verified
};
/// `abandoned`: that process had given up the commit and was removing it.
Recovered Recover(const std::vector<std::string>& roots, const CommitPaths& paths, bool abandoned);

}  // namespace octavo::storage
