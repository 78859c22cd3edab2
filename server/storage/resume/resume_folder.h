#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::storage {

/// What a later process needs to begin a scan again.
struct ResumeRecord {
  std::string id;    // names the file, whichever scan has the record: 1 to 128 letters, digits, '-'
  std::string scan;  // scans/<id> that has the record: the last one that began
  std::string owner, project, role;  // whose it is, as of its first submission
  int64_t early_deaths = 0;  // processes in a row that died less than a minute after they began it
  bool early = false;  // the last process began it, and has neither kept it for a minute nor ended
                       // in order
  int64_t begun_unix_ns = 0;  // when the last process began it
  std::string request;        // as the client sent it; this folder does not look into it
};

/// Private files of scans that go on after a restart, one for each: mode 0600 in a folder of mode
/// 0700, because a request may name the subject.
///
/// A file is "ORS1"; the CRC-32C of all that follows; the length of the header (both u32, little
/// endian); the header in JSON: version, id, scan, owner, …; the request. It is written as
/// ".<id>.tmp", synced, renamed to "<id>.resume", and the folder is synced: after a crash at any
/// instant there is the old file or the new one. Calls wait for the disk. Thread-safe, except that
/// calls about one id must not run at once.
class ResumeFolder {
 public:
  static constexpr size_t kMostRequestBytes = size_t{9} << 20;  // more than a message may have
  static constexpr size_t kMostFileBytes = kMostRequestBytes + (64 << 10);

  /// Creates `path`, whose parent must exist. `found` gets the ids of the sound files, in the order
  /// of their names. Unfinished files are removed. What has a record's name and is none, is
  /// damaged, or is of a newer version, is renamed to "<id>.damaged". `report` gets a line for
  /// each. Other names are left alone. PermissionDenied if the folder is another user's, or others
  /// may write into it.
  static absl::StatusOr<std::unique_ptr<ResumeFolder>> Open(const std::string& path,
                                                            std::vector<std::string>* found,
                                                            std::vector<std::string>* report);
  const std::string& path() const { return path_; }

  /// Writes a record, in place of the one of the same id. On an error the old one remains, except
  /// that a folder that cannot be synced may have either.
  absl::Status Put(const ResumeRecord& record);
  /// NotFound; DataLoss for a damaged file.
  absl::StatusOr<ResumeRecord> Get(const std::string& id) const;
  /// Removes a record for good; OK if there is none.
  absl::Status Remove(const std::string& id);
  /// Renames a record that is of no use. What became of it, for people.
  std::string PutAside(const std::string& id, absl::string_view why);

 private:
  explicit ResumeFolder(std::string path) : path_(std::move(path)) {}
  std::string FileOf(absl::string_view id) const;
  std::string TemporaryOf(absl::string_view id) const;

  const std::string path_;
};

}  // namespace octavo::storage
