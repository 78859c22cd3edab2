#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

#include "gpu/base/mutex.h"

namespace octavo::storage {

/// Whether a text may be the id of a spilled volume, which names its file: 1 to 128 letters, digits
/// and '-'.
bool IsSpillId(absl::string_view text);

/// What a file with so many bytes of voxels, and this description, takes of the quota: its footer
/// with its largest size.
int64_t SpillFileBytes(int64_t voxels, const nlohmann::json& about);

/// Reads one spill file. Not thread-safe: each reader needs its own cursor. It can still read after
/// the file was removed.
class SpillCursor {
 public:
  virtual ~SpillCursor() = default;
  /// `bytes` from `offset` on, each block of it checked against its CRC. DataLoss if one differs.
  virtual absl::Status Read(int64_t offset, int64_t bytes, void* out) = 0;
};

/// What the owner of a spill file notes beside what its description says. It changes in place.
enum class SpillNote : uint8_t { kNone = 0, kUnmarked = 1, kMarked = 2 };

/// A finished spill file. Destroying the object does not remove the file, which is to outlive the
/// process. Thread-safe.
class SpillFile {
 public:
  virtual ~SpillFile() = default;
  virtual const std::string& path() const = 0;
  virtual int64_t bytes() const = 0;          // of the voxels
  virtual int64_t charged_bytes() const = 0;  // of the quota: with its footer
  virtual absl::StatusOr<std::unique_ptr<SpillCursor>> Open() const = 0;
  /// Removes the file durably and returns its bytes to the quota. Idempotent. If the file cannot be
  /// removed, its bytes stay charged, and the log says so.
  virtual void Remove() = 0;
  /// Writes the note into the file. It is one byte: whatever becomes of the process, the file has
  /// the old note or the new one. Nothing happens if the file was removed.
  virtual absl::Status Write(SpillNote note) = 0;
};

/// Decides between the two ends of a file that is being written for a volume: it gets its name, by
/// which a later process finds it, or the volume leaves, and it never does. Once Shut has returned,
/// no file that passed is left, and none passes any more. Thread-safe.
class SpillGate {
 public:
  /// Runs `rename`, after which `file` has its name. Cancelled if the gate is shut.
  absl::Status Pass(const std::shared_ptr<SpillFile>& file,
                    const std::function<absl::Status()>& rename);
  /// Waits for a rename that is under way, and removes the file that passed.
  void Shut();
  bool shut();

 private:
  Mutex mutex_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<SpillFile> passed_ ABSL_GUARDED_BY(mutex_);
};

/// A file being written, front to back. If it is destroyed unfinished, it removes the file.
class SpillWriter {
 public:
  virtual ~SpillWriter() = default;
  virtual absl::Status Append(const void* data, int64_t bytes) = 0;
  /// Replaces the description given to Create by one of about the same length.
  virtual void SetAbout(nlohmann::json about) = 0;
  /// Finish passes through the gate. Without one, nothing can keep the file from getting its name.
  virtual void SetGate(std::shared_ptr<SpillGate> gate) = 0;
  /// Writes the footer and makes file and name durable. After OK a later process finds the file.
  /// Cancelled if the gate was shut.
  virtual absl::StatusOr<std::shared_ptr<SpillFile>> Finish() = 0;
};

/// Private files of volumes that had to leave device memory: mode 0600 in a directory of mode 0700,
/// with their own quota.
///
/// A file is the voxels, C order; then a footer in JSON {"about": what the owner says, "bytes",
/// "crc32c": [of each MiB]}; then 16 bytes: length of the footer (7 bytes), the note (u8), CRC-32C
/// of the footer (u32), "OSP1"; little endian. It is written as ".<id>-<n>.tmp" and renamed to
/// "<id>.spill" when it is complete and synced. Thread-safe.
class SpillFolder {
 public:
  struct Found {
    std::shared_ptr<SpillFile> file;
    nlohmann::json about;
    SpillNote note = SpillNote::kNone;
  };
  /// Creates `path`. `found` gets the complete files that an earlier process left (their footer is
  /// checked here, their voxels when they are read); unfinished ones are removed, damaged ones
  /// renamed to "<id>.damaged"; `report` gets a line for each. Files of other names are left alone.
  /// PermissionDenied if others may write into the directory, or this process may not.
  /// FailedPrecondition if another folder object, of this process or another, uses the directory:
  /// nothing in it was touched then.
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
