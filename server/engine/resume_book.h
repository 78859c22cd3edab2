#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/stats.h"
#include "server/security/owner.h"

namespace octavo::storage {
class ResumeFolder;  // server/storage/resume/resume_folder.h
}

namespace octavo::engine {

/// A scan of an earlier daemon that this one is to begin again.
struct ScanToResume {
  std::string record;  // names its record
  std::string scan;    // scans/<id> of the earlier daemon
  security::Owner owner;
  std::string request;  // as the client sent it
};

/// Scans that go on after a restart (ON_RESTART_RESUME), and their records on the disk. A record is
/// there from before the scan begins until a client has stopped it or it has ended by itself; it
/// stays when the daemon ends or dies. Whoever changes what a record should say notes that under
/// the lock; one thread at a time then brings the file to it, without the lock. Thread-safe.
class ResumeBook {
 public:
  static constexpr int64_t kMost = 64;  // records, those that wait for a later start too
  static constexpr int64_t kMostOfOwner = kMost / 4;   // admins have all, as of quotas
  static constexpr int64_t kEarlyNs = 60'000'000'000;  // a daemon that dies earlier dies "early"
  static constexpr int64_t kMostEarlyDeaths = 3;       // in a row; then the scan is given up

  struct Found {
    std::vector<std::string> records;  // sound ones of earlier daemons
    int64_t damaged = 0;               // others
  };
  /// `folder`: null = there is none, and no scan can be resumed; must outlive the book.
  ResumeBook(storage::ResumeFolder* folder, Found found, const Clock* clock)
      : folder_(folder), found_(std::move(found)), clock_(clock), not_resumed_(found_.damaged) {}

  /// Whether one more scan of the owner can have a record now. FailedPrecondition without a folder;
  /// ResourceExhausted if it has kMostOfOwner (QUOTA), or all have kMost (BUSY). Scans that are
  /// resumed are taken up whatever their owner has.
  absl::Status CheckRoom(const security::Owner& owner);
  /// Writes the record of a scan that is about to begin. Waits for the disk. Errors of CheckRoom
  /// and of the disk.
  absl::Status Begin(const std::string& scan, const security::Owner& owner,
                     const std::string& request);
  /// The scan has begun: from now on Tend asks what becomes of it.
  void Began(const std::string& scan);
  /// Whether the scan has a record.
  bool Has(const std::string& scan);
  /// Whose a scan of an earlier daemon is whose record waits for a later start.
  std::optional<security::Owner> OwnerOfWaiting(const std::string& scan);
  /// The scan that goes on with a scan of an earlier daemon, or waits to: with the first one of a
  /// record, or the last one. Empty = none does, or it is over.
  std::string SuccessorOf(const std::string& scan);
  /// The scan is over for good. Waits for the disk; if that refuses to remove the record, the log
  /// says so and Tend tries again.
  void Drop(const std::string& scan);

  /// The records of earlier daemons, each for one TakeUp.
  const std::vector<std::string>& found() const { return found_.records; }
  /// Reads a record and notes in it that this daemon is about to begin the scan. Aborted: the scan
  /// is given up, because the third daemon in a row has died early; `*given_up` is its name then,
  /// and its record is gone. Other errors name what the disk says, and the record stays for the
  /// next start; DataLoss: it is damaged, and was put aside.
  absl::StatusOr<ScanToResume> TakeUp(const std::string& record, std::string* given_up);
  /// `scan` has begun in the place of the one that had the record.
  void Resumed(const std::string& record, const std::string& scan);
  /// The scan could not begin. The record stays for the next start.
  void Refused(const std::string& record);

  /// What has become of a scan.
  enum class Fate : uint8_t { kRuns, kOver, kEndedByDaemon };
  /// Brings the records to what has become of their scans; waits for the disk. `draining`: the
  /// daemon ends in order, so that it does not count as one that died early.
  void Tend(const std::function<Fate(const std::string& scan)>& fate, bool draining);

  void AddTo(model::Stats* stats);

 private:
  /// What a record says, besides what never changes.
  struct Mark {
    std::string scan;
    int64_t early_deaths = 0;
    bool early = false;
    int64_t begun_unix_ns = 0;
    bool operator==(const Mark& other) const = default;
  };
  struct Entry {
    Mark want, have;   // to be written; on the disk
    std::string from;  // the scan of an earlier daemon that had the record last
    security::Owner owner;
    bool begun = false;                  // a scan of this daemon has it
    bool over = false;                   // to be removed
    bool busy = false;                   // a thread is at work on the file
    bool refused = false;                // it could not begin; it waits for the next start
    bool failing = false;                // the last try had an error of the disk
    int64_t begun_ns = 0, retry_ns = 0;  // monotonic
  };
  using Entries = std::map<std::string, Entry>;  // by record

  absl::Status CheckRoomLocked(const security::Owner& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entries::iterator FindScan(const std::string& scan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Brings the file of a record to what its entry wants. Waits while another thread does.
  absl::Status Settle(const std::string& record);
  absl::Status Rewrite(const std::string& record, const Mark& mark);

  storage::ResumeFolder* const folder_;
  const Found found_;
  const Clock* const clock_;
  Mutex mutex_;
  CondVar settled_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  int64_t resumed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t not_resumed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::engine
