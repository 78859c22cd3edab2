#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/unique_fd.h"

namespace octavo::security {

/// The files of an audit log: the one that is appended to, and those that were put aside. Not
/// thread-safe.
class AuditFile {
 public:
  /// Makes the folder (mode 0700) if it is missing. No other process can open it while this lives.
  /// FailedPrecondition if one has it, or if it is no folder of this process' user.
  static absl::StatusOr<AuditFile> Open(const std::string& folder);

  /// Appends whole lines: all of them, or, with an error, none. If somebody has moved the file away
  /// or removed it, a new one is made first.
  absl::Status Append(absl::string_view lines, bool fsync);
  /// A file that Rotate has removed.
  struct Removed {
    std::string name;
    int64_t bytes = 0;
  };
  /// Puts the file aside and begins a new one if it has at least `bytes`; then removes the oldest
  /// of those put aside, so that `kept` are left (0 = all). `removed` gets these, also if an error
  /// follows.
  absl::Status Rotate(int64_t bytes, int64_t kept, std::vector<Removed>* removed);

 private:
  AuditFile(std::string folder, UniqueFd lock)
      : folder_(std::move(folder)), lock_(std::move(lock)) {}
  absl::Status OpenCurrent();
  absl::Status SyncFolder() const;
  /// The names of the files that were put aside, oldest first.
  absl::StatusOr<std::vector<std::string>> Aside() const;
  absl::Status Prune(int64_t kept, std::vector<Removed>* removed) const;
  /// A name that sorts behind those of all that were put aside before.
  absl::StatusOr<std::string> AsideName();
  std::string Current() const { return folder_ + "/audit.jsonl"; }
  /// Whether Current() still names the file that is open.
  bool IsInPlace() const;

  std::string folder_;
  UniqueFd lock_, file_;
  int64_t size_ = 0;        // of the file
  std::string last_aside_;  // the time in the name of the last file that was put aside
  int of_last_aside_ = 0;   // and its number: a second may have several
};

}  // namespace octavo::security
