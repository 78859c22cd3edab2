#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/clock.h"
#include "server/job/job.h"
#include "server/model/status_types.h"
#include "server/operation/operation.h"
#include "server/security/owner.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/history/history_database.h"
#include "server/storage/history/history_row.h"

namespace octavo::engine {

/// What the history told at the start.
struct Settled {
  std::vector<storage::HistoryRow> changed;       // rows of `rows` that must be written again
  std::vector<std::string> lines;                 // one for each lost work, for people
  std::map<std::string, int64_t> lost;            // by kind: "scan", "job", "commit", "volume"
  std::vector<storage::HistoryRow> lost_volumes;  // for each a line, too
};
/// What a start knows of volumes beside their rows.
struct VolumesAtStart {
  std::set<std::string> held;  // again: their files were found
  /// Those of them that a job made itself, by job, in the order of its volumes: the row of a job
  /// may lack the last of them.
  std::map<std::string, std::vector<std::string>> held_of_jobs;
  /// Lost at an orderly end, which has told of them (DrainRecord): why. They get no line, and count
  /// elsewhere.
  std::map<std::string, std::string> lost_at_stop;
};
/// Looks for the files of a commit where they were to be: by its id, volume and destination.
using FindCommit = std::function<std::optional<storage::PublishedCommit>(
    const std::string& commit_id, const std::string& volume, const std::string& destination)>;

/// Ends what the last daemon left without an end, as of `now`: a commit whose files are there
/// (`published`, or `find` finds them) has SUCCEEDED, and its volume is COMMITTED. A volume that is
/// held again stays without an end. Everything else is LOST. A job that is LOST has those of its
/// volumes that were held, and each job the commits that the server began for it, whether its own
/// row came so far or not.
Settled SettleEarlier(std::vector<storage::HistoryRow>* rows,
                      const std::vector<storage::PublishedCommit>& published, const TimePoint& now,
                      const FindCommit& find = nullptr, const VolumesAtStart& volumes = {});

/// The bytes that a volume had, as its row says.
int64_t BytesOfVolume(const storage::HistoryRow& row);

/// Leaves of each kind and owner (of volumes, of each state, too) the newest rows that the limits
/// allow, and those without an end, as HistoryDatabase::Prune does. `rows`: settled.
void KeepNewest(const storage::HistoryLimits& limits, const TimePoint& now,
                std::vector<storage::HistoryRow>* rows);

/// The scans, jobs, commits and held volumes of earlier daemons, as their history tells them. Never
/// changes, so that all threads read it without a lock.
class EarlierRuns {
 public:
  /// `rows`: settled.
  EarlierRuns(const std::vector<storage::HistoryRow>& rows, const TimePoint& now);

  /// Null if there is none of the name.
  const model::ScanStatus* FindScan(const std::string& name) const;
  const job::JobStatus* FindJob(const std::string& name) const;
  const operation::OperationStatus* FindCommit(const std::string& operation) const;
  /// What became of a volume that is no longer held: DataLoss (LOST), NotFound (VOLUME_GONE). OK if
  /// nothing is known of it.
  absl::Status FindVolume(const std::string& name) const;
  /// The rows of volumes that are held again.
  const std::vector<storage::HistoryRow>& held() const { return held_; }
  /// Up to `most` with a smaller number than `before`, newest first.
  std::vector<model::ScanStatus> Scans(uint64_t before, size_t most) const;
  std::vector<job::JobStatus> Jobs(uint64_t before, size_t most) const;
  /// The operations of clients, newest first.
  std::vector<operation::OperationStatus> Commits() const;
  /// The largest number of a kind; 0 = none.
  uint64_t LastNumber(storage::HistoryKind kind) const;

  /// The name of what an earlier daemon made for a request; empty = nothing. `digest`: as
  /// HistoryRow::request_digest. AlreadyExists (IDEMPOTENCY_MISMATCH) if the request was another
  /// one. `owner`: who asks; nothing if the digest names the owner already.
  absl::StatusOr<std::string> AnswerTo(storage::HistoryKind kind, const std::string& request_id,
                                       absl::string_view digest,
                                       const std::optional<security::Owner>& owner) const;

 private:
  struct Request {
    std::string digest, name;
    security::Owner owner;
  };
  std::map<uint64_t, model::ScanStatus> scans_;                // by number
  std::map<uint64_t, job::JobStatus> jobs_;                    // by number
  std::map<uint64_t, operation::OperationStatus> operations_;  // by number
  std::map<std::string, uint64_t> numbers_;                    // by name
  std::map<std::string, storage::HistoryRow> volumes_;         // by name
  std::vector<storage::HistoryRow> held_;
  std::map<std::pair<storage::HistoryKind, std::string>, Request> requests_;
  std::map<storage::HistoryKind, uint64_t> last_;

  /// Scans and jobs tell how many of their volumes are LOST.
  void CountLostVolumes();
};

}  // namespace octavo::engine
