#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

namespace octavo::volume_import {

/// What a file, everything in a Zarr, or the files in another folder were at one moment: sizes and
/// times of the last change. A file that another program writes while it is read would become a
/// volume that never existed. Used by one thread at a time.
class SourceStamp {
 public:
  /// A folder with more files than this is watched as far as it was walked.
  static constexpr size_t kMostFiles = 100'000;

  /// `opened`: the file or folder; it stays open as long as the stamp. Errors as ErrnoStatus.
  static absl::StatusOr<SourceStamp> Of(UniqueFd opened);

  /// What has changed since, relative to the folder ("." = the file or folder itself). Empty:
  /// nothing has. Renaming or removing an opened file is no change: its data stay.
  std::string Changed() const;

 private:
  struct Entry {
    uint64_t inode = 0;  // 0 for what is open already
    int64_t size = 0, changed_ns = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  explicit SourceStamp(UniqueFd opened) : opened_(std::move(opened)) {}
  absl::Status Walk(const std::string& folder, int depth);

  UniqueFd opened_;
  int most_depth_ = 0;  // of folders below it that are watched
  Entry itself_;
  std::map<std::string, Entry> files_;  // of a folder, by their paths below it; folders, too
};

}  // namespace octavo::volume_import
