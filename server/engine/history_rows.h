#pragma once

// Private to this folder: what the history keeps of scans, jobs, commits and held volumes, and how
// it is read again. Subjects, labels of volumes, sources' paths and processing are left out: they
// may be confidential or large.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "server/engine/earlier_runs.h"
#include "server/job/job.h"
#include "server/model/status_types.h"
#include "server/operation/operation.h"
#include "server/operation/operation_table.h"
#include "server/storage/history/history_row.h"
#include "server/volume/commit_observer.h"

namespace octavo::engine {

storage::HistoryRow RowOf(const model::ScanStatus& scan);
storage::HistoryRow RowOf(const job::JobStatus& job);
/// `outcome`: null while the commit runs.
storage::HistoryRow RowOf(const volume::CommitNews& commit, uint64_t number,
                          const absl::StatusOr<storage::CommitOutcome>* outcome,
                          const TimePoint& now);
/// Of a volume that is held.
storage::HistoryRow RowOf(const model::VolumeStatus& volume, uint64_t number);
/// The volume has left: `row` says how.
void EndRow(const model::VolumeStatus& volume, const TimePoint& now, storage::HistoryRow* row);
/// A commit wrote the volume to `path`, and the server died before it said so.
void EndRowAsCommitted(const std::string& path, storage::HistoryRow* row);

/// The digest of a request that histories compare. Sessions end with the daemon, so that a retry
/// comes with another one: `session`, the end of `digest`, does not count.
std::string LastingDigest(absl::string_view digest, absl::string_view session);

/// The operation with which an earlier daemon answered a request for a commit; empty = none.
/// AlreadyExists (IDEMPOTENCY_MISMATCH).
absl::StatusOr<std::string> EarlierCommitOf(const EarlierRuns& earlier,
                                            const operation::RequestKey& request);

/// What a row of an earlier daemon says. `now` gives its times a place on this host's clock.
model::ScanStatus EarlierScan(const storage::HistoryRow& row, const TimePoint& now);
job::JobStatus EarlierJob(const storage::HistoryRow& row, const TimePoint& now);
operation::OperationStatus EarlierCommit(const storage::HistoryRow& row, const TimePoint& now);

/// The volume in a few words, for people: "'eye', 64.0 MiB, of scans/…".
std::string AboutVolume(const storage::HistoryRow& row);
/// The volumes that were complete when the server died with the job (LOST): of those that its row
/// names, and `further` ones.
void SetHeldVolumes(const std::function<bool(const std::string&)>& complete,
                    const std::vector<std::string>& further, storage::HistoryRow* row);
/// What a row of a commit says of its job. A commit that a client asked for is not the job's.
struct CommitOfJob {
  std::string job;  // empty: not one that the server began by itself, or of no job
  std::string volume, destination, path;
};
CommitOfJob CommitOfJobIn(const storage::HistoryRow& row);
/// Adds to the row of a job where its commits left files (`paths`), and a warning in one sentence
/// for each commit that was cut short. Whether the row lacked any of them.
bool AddCommits(const std::vector<std::string>& paths, const std::vector<std::string>& failures,
                storage::HistoryRow* row);
/// The scan or job that made the volume; empty if the row does not say.
std::string ParentOfVolume(const storage::HistoryRow& row);
/// What became of a volume of an earlier daemon: DataLoss (LOST), NotFound (VOLUME_GONE).
absl::Status GoneVolume(const storage::HistoryRow& row);

/// DataLoss (LOST) that names the work. `kind`: "scan", the key of its name in the numbers.
absl::Status LostError(const char* kind, const std::string& name, const std::string& reason);

}  // namespace octavo::engine
