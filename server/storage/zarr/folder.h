#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// An open folder of a Zarr hierarchy. Everything that the readers open is below it, by its
/// descriptor. Copies share the descriptor. Thread-safe.
class ZarrFolder {
 public:
  /// Folders, by their real paths, that must contain every file read, also through links; empty =
  /// anywhere.
  using Roots = std::vector<std::string>;

  /// NotFound; PermissionDenied: outside of the roots, or not readable.
  static absl::StatusOr<ZarrFolder> Open(const std::string& path, Roots roots);
  /// A folder that is open already, at `path`; links below it may lead anywhere below the roots.
  static ZarrFolder FromOpened(UniqueFd folder, std::string path, Roots roots);
  /// A folder that a client has opened. Links below it are refused. `name` is for messages.
  static ZarrFolder FromDescriptor(UniqueFd folder, std::string name);

  const std::string& path() const { return path_; }
  /// Of the folder itself; it serves to open what is below.
  const UniqueFd& fd() const { return *fd_; }
  /// The name of a file below, for messages.
  std::string PathOf(const std::string& below) const;
  /// Opens a regular file below for reading, never waiting for a pipe. NotFound; PermissionDenied:
  /// a link leads outside of the roots, or to nothing; DataLoss: it is no regular file. Errors name
  /// the file.
  absl::StatusOr<UniqueFd> OpenFile(const std::string& below) const;
  /// Reads a file of JSON below, within the limits of gpu/base/json.h. Nothing if it is missing.
  absl::StatusOr<std::optional<nlohmann::json>> ReadJson(const std::string& below) const;
  /// Opens a folder below.
  absl::StatusOr<ZarrFolder> OpenFolder(const std::string& below) const;
  /// The names in the folder, sorted; at most `most` of them are looked at (ResourceExhausted).
  absl::StatusOr<std::vector<std::string>> Names(size_t most) const;

 private:
  absl::StatusOr<UniqueFd> OpenBelow(const std::string& below, int flags) const;

  std::string path_;
  Roots roots_;
  bool follow_links_ = false;
  std::shared_ptr<const UniqueFd> fd_;
};

/// Whether `path` names something below a folder: not empty, not absolute, without empty parts, "."
/// and "..".
bool IsPathBelow(const std::string& path);

}  // namespace octavo::storage
