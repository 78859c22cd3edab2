#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace octavo::storage {

/// Whether a text may be the id of a spilled volume, which names its file: 1 to 128 letters, digits
/// and '-'.
bool IsSpillId(absl::string_view text);

/// Reads one spill file. Not thread-safe: each reader needs its own cursor. It can still read after
/// the file was removed.
class SpillCursor {
 public:
  virtual ~SpillCursor() = default;
  /// `bytes` from `offset` on, each block of it checked against its CRC. DataLoss if one differs.
  virtual absl::Status Read(int64_t offset, int64_t bytes, void* out) = 0;
};

/// A finished spill file. Destroying the object does not remove the file, which is to outlive the
/// process. Thread-safe.
class SpillFile {
 public:
  virtual ~SpillFile() = default;
  virtual const std::string& path() const = 0;
  virtual int64_t bytes() const = 0;  // of the voxels
  virtual absl::StatusOr<std::unique_ptr<SpillCursor>> Open() const = 0;
  /// Removes the file durably and returns its bytes to the quota. Idempotent. If the file cannot be
  /// removed, its bytes stay charged, and the log says so.
  virtual void Remove() = 0;
};

/// A file being written, front to back. If it is destroyed unfinished, it removes the file.
class SpillWriter {
 public:
  virtual ~SpillWriter() = default;
  virtual absl::Status Append(const void* data, int64_t bytes) = 0;
  /// Replaces the description given to Create by one of about the same length.
  virtual void SetAbout(nlohmann::json about) = 0;
  /// Writes the footer and makes file and name durable. After OK a later process finds the file.
  virtual absl::StatusOr<std::shared_ptr<SpillFile>> Finish() = 0;
};

/// Private files of volumes that had to leave device memory: mode 0600 in a directory of mode 0700,
/// with their own quota.
///
/// A file is the voxels, C order; then a footer in JSON {"about": what the owner says, "bytes",
/// "crc32c": [of each MiB]}; then 16 bytes: length of the footer (u64), its CRC-32C (u32), "OSP1";
/// little endian. It is written as ".<id>.tmp" and renamed to
/// "<id>.spill" when it is complete and synced. Thread-safe.
class SpillFolder {
 public:
  struct Found {
    std::shared_ptr<SpillFile> file;
    nlohmann::json about;
  };
  /// Creates `path`. `found` gets the complete files that an earlier process left (their footer is
  /// checked here, their voxels when they are read); unfinished ones are removed, damaged ones
  /// renamed to "<id>.damaged"; `report` gets a line for each. Files of other names are left alone.
  /// PermissionDenied if others may write into the directory.
  static absl::StatusOr<std::unique_ptr<SpillFolder>> Open(const std::string& path,
                                                           int64_t quota_bytes,
                                                           std::vector<Found>* found,
                                                           std::vector<std::string>* report);
  virtual ~SpillFolder() = default;
  /// `id`: letters, digits, '-'. Reserves room in the quota, and on the disk if the file system
  /// supports it, before writing anything. ResourceExhausted (SPILL_QUOTA; DISK_FULL).
  virtual absl::StatusOr<std::unique_ptr<SpillWriter>> Create(const std::string& id, int64_t bytes,
                                                              const nlohmann::json& about) = 0;
  virtual const std::string& path() const = 0;
  virtual int64_t quota_bytes() const = 0;
  virtual int64_t used_bytes() const = 0;       // files and those being written
  virtual int64_t disk_free_bytes() const = 0;  // of the file system; 0 if unknown
};

}  // namespace octavo::storage
