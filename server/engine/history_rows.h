#pragma once

// Private to this folder: what the history keeps of scans, jobs and commits, and how it is read
// again. Subjects, sources' paths and processing are left out: they may be confidential or large.

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

/// DataLoss (LOST) that names the work. `kind`: "scan", the key of its name in the numbers.
absl::Status LostError(const char* kind, const std::string& name, const std::string& reason);

}  // namespace octavo::engine
