#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"

// Small file operations with Status; every message names the path and the system's reason.
namespace octavo::storage {

/// Writes all of it at the file's position, or at `offset`. `path` is for messages.
absl::Status WriteAll(int fd, const std::string& path, const void* data, size_t bytes);
absl::Status WriteAllAt(int fd, const std::string& path, const void* data, size_t bytes,
                        int64_t offset);
/// Reads exactly `bytes` bytes at `offset`. DataLoss if the file ends before.
absl::Status ReadAllAt(int fd, const std::string& path, void* data, size_t bytes, int64_t offset);
/// Creates `path` (must not exist), writes all, closes. No sync.
absl::Status WriteNewFile(const std::string& path, const void* data, size_t bytes);
/// Reads a whole open file. DataLoss if it is not a regular file, or longer than `most`; `path` is
/// for messages.
absl::StatusOr<std::string> ReadWholeFile(int fd, const std::string& path, size_t most);
absl::Status SyncFile(const std::string& path);       // fdatasync
absl::Status SyncDirectory(const std::string& path);  // fsync
absl::Status MakeDirectory(const std::string& path);  // AlreadyExists if there
/// Renames without replacing: AlreadyExists if `to` exists (unless both are names of one file: then
/// `from` is removed).
absl::Status RenameNoReplace(const std::string& from, const std::string& to);
bool PathExists(const std::string& path);
std::string ParentOf(const std::string& path);
std::string BaseOf(const std::string& path);
/// The path with links resolved; empty, with errno set, if it is missing or not accessible.
std::string RealPath(const std::string& path);
/// Distinguishes a directory from another one at the same path (an unmounted disk, another disk):
/// its inode and, where the file system keeps it, its time of birth. Unlike device numbers, both
/// survive restarts of the host. Empty if it is missing.
std::string DirectoryId(const std::string& path);
/// Whether a path lies below a folder, comparing both as text.
bool IsInside(const std::string& path, const std::string& folder);

/// Descriptors reserved for cleaning up: removing a folder needs some, and a commit that failed for
/// lack of descriptors has a folder to remove. While they are lent, another thread may take them
/// first, so a failed removal has to be tried again.
class SpareDescriptors {
 public:
  SpareDescriptors() { SetAside(); }
  /// Reserves the missing descriptors, as far as the process can get them.
  void SetAside();
  /// Frees them as long as it lives.
  class Loan {
   public:
    explicit Loan(SpareDescriptors* spare);
    ~Loan();

   private:
    SpareDescriptors* const spare_;
  };

 private:
  Mutex mutex_;
  int loans_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<UniqueFd> set_aside_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::storage
