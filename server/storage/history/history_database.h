#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/history/history_row.h"

struct sqlite3;

namespace octavo::storage {

/// How much of the past is kept.
struct HistoryLimits {
  int64_t kept = 1000;  // ended rows of each kind and owner; of volumes, of each state, too
  double days = 90;     // since their end; 0 = for ever
};

/// The file <folder>/history.sqlite: rows by kind and name. SQLite with a write-ahead log and
/// synchronous=FULL: what Write has returned OK for survives a loss of power; what it was at when
/// the process was killed is there as a whole or not at all. For one thread at a time.
class HistoryDatabase {
 public:
  static constexpr int kSchema = 1;

  /// Opens or creates it, with mode 0600 in a folder of mode 0700. One process at a time has it:
  /// FailedPrecondition for the second, and if folder or file belong to, or the folder can be
  /// written by, others. A database that is damaged, is not of this program, or has a newer schema
  /// is renamed (history.sqlite.damaged-<time>, .newer-<time>), and a new one is begun; `report`
  /// gets a line about it. Other errors: the folder cannot be written.
  static absl::StatusOr<std::unique_ptr<HistoryDatabase>> Open(const std::string& folder,
                                                               std::vector<std::string>* report);
  ~HistoryDatabase();
  HistoryDatabase(const HistoryDatabase&) = delete;
  HistoryDatabase& operator=(const HistoryDatabase&) = delete;

  /// All rows, of each kind by number. Rows of unknown kinds are left out.
  absl::StatusOr<std::vector<HistoryRow>> Load();
  /// Adds rows, or replaces those of the same kind and name: all or none. ResourceExhausted
  /// (DISK_FULL) if the disk has no room, DataLoss if the database is damaged.
  absl::Status Write(const std::vector<HistoryRow>& rows);
  /// Removes ended rows beyond the limits, the oldest first. Returns their number.
  absl::StatusOr<int64_t> Prune(const HistoryLimits& limits, int64_t now_unix_ns);

  const std::string& path() const { return path_; }

 private:
  HistoryDatabase(std::string path, UniqueFd lock);
  /// Opens the file, checks it and brings it to the present schema.
  absl::Status OpenFile();
  absl::Status Check();
  absl::Status Execute(const char* sql);
  absl::StatusOr<int64_t> Ask(const char* sql);
  absl::Status Error(int code, const char* doing) const;
  void Close();

  const std::string path_;
  const UniqueFd lock_;
  sqlite3* database_ = nullptr;
  uint64_t device_ = 0, inode_ = 0;  // of the file
};

}  // namespace octavo::storage
