#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/commit/quarantine.h"
#include "server/storage/formats/writer.h"

namespace octavo::storage {

/// The files of a finished commit.
struct CommitOutcome {
  std::string path;  // absolute
  Format format = Format::kOmeZarr05;
  int64_t raw_bytes = 0;  // voxels
  int64_t disk_bytes = 0;
  double seconds = 0;
  std::string checksum;  // "crc32c:xxxxxxxx" of the voxels in C order
};

/// A commit of an earlier process whose files are there.
struct PublishedCommit {
  std::string commit_id, path;
  Format format = Format::kOmeZarr05;
};

/// Confines a destination to the roots. `destination`: relative to roots[0], or absolute inside one
/// of them; no "..", no symbolic link on the way that leads outside, not a root itself.
/// InvalidArgument ("destination") otherwise.
absl::StatusOr<std::string> ResolveDestination(const std::vector<std::string>& roots,
                                               const std::string& destination);

/// The commit in progress: bytes go to `<parent>/.octavo-<commit_id>.tmp`, and only Publish gives
/// them the final name. Destroying an unpublished transaction removes the temporary files and ends
/// the journal entry.
class CommitTransaction {
 public:
  virtual ~CommitTransaction() = default;
  /// As VolumeWriter; also feeds the checksum and the digest.
  virtual int64_t SlabBscans() const = 0;
  /// The same where memory is short: at most SlabBscans, and slower.
  virtual int64_t LeastSlabBscans() const = 0;
  virtual absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) = 0;
  virtual int64_t DiskBytes() const = 0;
  /// Before Publish, once all slabs are written: the metadata of a volume that was still being made
  /// when the transaction began, with its digest. Name, shape, type, axes and spacing are those of
  /// the begin. Only formats that have the metadata last (DescribesLast); Internal otherwise.
  virtual absl::Status Describe(const VolumeMeta& meta) = 0;
  /// Finishes the files (manifest `.octavo-manifest.json` inside a Zarr group or `<name>.json`
  /// beside a single file, with sizes and crc32c of every file), checks the digest of what was
  /// streamed against meta.digest (DataLoss if they differ), fsyncs, renames without replacing
  /// (AlreadyExists), fsyncs the parent, and ends the journal entry. After OK the data is safe.
  /// Aborted: another program moved the destination's folder, before or while the files were
  /// renamed (PublishHeld); nothing is left in it, or the message says where.
  virtual absl::StatusOr<CommitOutcome> Publish() = 0;
};

/// Atomic, durable commits under configured roots, with a journal in `state_dir`. Thread-safe; many
/// transactions at once.
class CommitStore {
 public:
  /// Creates state_dir if missing and recovers what an earlier process left: for each journal entry
  /// without an end, a final name whose manifest verifies is accepted; a complete temporary whose
  /// manifest verifies is published; any other file with our prefix moves to
  /// `<root>/.octavo-quarantine/`. Names without our prefix are never touched. An entry whose root
  /// is missing, or is a different directory than when the commit began, stays for a later start.
  /// Then quarantines beyond their limits are pruned. `report` gets a line for each of these
  /// actions. `published` gets the commits of the last process that are whole, whether it or the
  /// recovery published them.
  static absl::StatusOr<std::unique_ptr<CommitStore>> Open(
      const std::string& state_dir, const std::vector<std::string>& roots,
      std::vector<std::string>* report, const QuarantineLimits& quarantine = {},
      std::vector<PublishedCommit>* published = nullptr);
  virtual ~CommitStore() = default;
  /// Starts a commit to `destination` (resolved through ResolveDestination; the format's extension
  /// is appended if it lacks one; missing parent directories inside the root are created). Two
  /// transactions to one name at once: the second gets AlreadyExists. `commit_id`: letters, digits,
  /// '-' (for file names).
  virtual absl::StatusOr<std::unique_ptr<CommitTransaction>> Begin(
      const std::string& commit_id, const std::string& destination, const VolumeMeta& meta,
      const WriterOptions& options) = 0;
  /// Whether Begin would refuse this destination: InvalidArgument, AlreadyExists,
  /// PermissionDenied (NO_ACCESS, READ_ONLY: of the folder).
  virtual absl::Status Check(const std::string& destination, const WriterOptions& options) = 0;
  virtual const std::vector<std::string>& roots() const = 0;
  /// The present contents of each root's quarantine, by the root as configured.
  virtual std::map<std::string, QuarantineUse> Quarantines() = 0;
};

}  // namespace octavo::storage
