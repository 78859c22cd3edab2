#pragma once

// The life of an operation.
//
//   Begin ──▶ claimed ──▶ running ──▶ ended ──▶ forgotten
//                │  Started     Finish     bounds
//                └─▶ gone: refused, its request id is free again
//
// A verb calls Begin before it checks anything, so that of two calls with one request id only one
// can begin the work. The operation is claimed then: it has a name, but nobody can look it up. The
// verb checks and begins its work, which gets WorkControl (the stop token, the reports) and the
// OperationRun. If the verb is refused (Refuse, or the OperationRun is destroyed), nothing is left;
// the error is that of the call. Otherwise the verb calls Started, and from now on the operation is
// found by its name, in lists, and by a retry with its request id. Work that ends before the verb
// comes to Started is started by its Finish.
//
// Finish ends the operation: SUCCEEDED, CANCELLED for an error of that code, or FAILED. An
// OperationRun that is destroyed after Started and before Finish (work that no thread took over, an
// exception) has failed. So each operation ends exactly once, and none stays for ever.
//
// Cancel only requests a stop: the work ends itself, and Finish says how.
//
// The table is bounded. As many operations run as Limits says, and their requests take at most so
// many bytes; more are refused (BUSY). Those that have ended are forgotten, oldest first, when
// there are too many, when they take too many bytes, or after an hour. Both are counted.
//
// Order of locks: the table's lock is a leaf. The observer is called, stops are requested, and what
// is forgotten is destroyed without it.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/work_progress.h"
#include "server/operation/operation.h"
#include "server/operation/operation_observer.h"
#include "server/security/owner.h"
#include "server/security/principal.h"

namespace octavo::operation {

class OperationRun;

/// What tells a retry from another request.
struct RequestKey {
  std::string id;  // request_id; empty = none
  /// The request's body, without the id and without what does not matter for the result.
  std::string body;
  security::Owner owner;  // who asks
  std::string trace_id;   // of the trace that the request belongs to; empty = none
};

/// The operations that clients have begun: those that run, and the last ones that ended.
/// Thread-safe; calls are short.
class OperationTable {
 public:
  struct Limits {
    size_t running = 1000;
    int64_t running_bytes = int64_t{256} << 20;  // of request bodies
    size_t ended = 10'000;
    int64_t ended_bytes = int64_t{64} << 20;
    double ended_seconds = 3600;
  };
  /// `server_id`: begin of the ids. The observer must outlive the last OperationRun.
  OperationTable(const Clock* clock, std::string server_id, OperationObserver* observer,
                 Limits limits);
  OperationTable(const Clock* clock, std::string server_id, OperationObserver* observer)
      : OperationTable(clock, std::move(server_id), observer, Limits()) {}

  struct Begun {
    std::string name;
    std::shared_ptr<OperationRun> run;  // null: an earlier request with this id has begun it
  };
  /// Claims an operation, or finds that of an earlier request. AlreadyExists (IDEMPOTENCY_MISMATCH)
  /// if the id was used with another body, or by another owner; Unavailable (IN_PROGRESS) while the
  /// first call has not been answered yet; ResourceExhausted (BUSY). One id may be used once for
  /// each kind.
  absl::StatusOr<Begun> Begin(OperationKind kind, const std::string& target,
                              const RequestKey& request);

  /// NotFound (NO_OPERATION).
  absl::StatusOr<OperationStatus> Get(const std::string& name);
  std::vector<OperationStatus> List();  // newest first
  /// Requests a stop, if the operation has not ended. NotFound (NO_OPERATION), PermissionDenied
  /// (NOT_OWNER).
  absl::StatusOr<OperationStatus> Cancel(const std::string& name,
                                         const security::Principal& caller = {});
  void CancelAll();

  struct Counts {
    std::map<std::string, int64_t> running;                           // by kind
    std::map<std::pair<std::string, std::string>, int64_t> finished;  // by kind and state
    int64_t kept = 0;       // those that have ended and can still be looked up
    int64_t forgotten = 0;  // those that no longer can
  };
  Counts Count();

 private:
  friend class OperationRun;
  struct Entry;
  using EntryPtr = std::shared_ptr<Entry>;

  void Report(Entry& entry, const model::WorkProgress& progress);
  void Start(const EntryPtr& entry, std::vector<std::string> volumes);
  void Finish(const EntryPtr& entry, absl::Status status,
              std::optional<storage::CommitOutcome> commit);
  /// Takes out an operation that was not started. Whether it was such a one.
  bool Refuse(const EntryPtr& entry) noexcept;
  /// The OperationRun is gone.
  void Abandon(const EntryPtr& entry) noexcept;

  OperationStatus StatusOf(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<EntryPtr> Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetStarted(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Takes out what is beyond the bounds, for the caller to destroy without the lock.
  std::vector<EntryPtr> Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const std::string server_id_;
  OperationObserver* const observer_;
  const Limits limits_;
  Mutex mutex_;
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, EntryPtr> by_name_ ABSL_GUARDED_BY(mutex_);  // started, ended
  std::map<uint64_t, EntryPtr> by_number_ ABSL_GUARDED_BY(mutex_);   // the same, oldest first
  std::map<std::pair<OperationKind, std::string>, EntryPtr> by_request_
      ABSL_GUARDED_BY(mutex_);                          // claimed ones, too
  std::deque<EntryPtr> ended_ ABSL_GUARDED_BY(mutex_);  // in the order of their ends
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;          // claimed ones, too
  int64_t running_bytes_ ABSL_GUARDED_BY(mutex_) = 0, ended_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t forgotten_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::string, std::string>, int64_t> finished_ ABSL_GUARDED_BY(mutex_);
};

/// The work's side of an operation: shared by the callbacks of the work. The table must outlive it.
/// Thread-safe.
class OperationRun {
 public:
  OperationRun(const OperationRun&) = delete;
  OperationRun& operator=(const OperationRun&) = delete;
  ~OperationRun();

  const std::string& name() const;
  /// For the work.
  model::WorkControl control() const;
  /// The verb was not refused. `volumes`: what it makes. Once; nothing after Finish.
  void Started(std::vector<std::string> volumes = {});
  /// The verb was refused: nothing is left, and the request id is free. Nothing after Started.
  /// Destroying it does the same.
  void Refuse() noexcept;
  /// Ends the operation; the first call counts.
  void Finish(absl::Status status, std::optional<storage::CommitOutcome> commit = std::nullopt);

 private:
  friend class OperationTable;
  OperationRun(OperationTable* table, OperationTable::EntryPtr entry)
      : table_(table), entry_(std::move(entry)) {}

  OperationTable* const table_;
  const OperationTable::EntryPtr entry_;
};

}  // namespace octavo::operation
