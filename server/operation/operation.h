#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/clock.h"
#include "server/model/work_progress.h"
#include "server/security/owner.h"
#include "server/storage/commit/commit_store.h"

namespace octavo::operation {

/// As octavo.v1.OperationKind.
enum class OperationKind : uint8_t { kCommit = 1, kSpill = 2, kRestore = 3, kDerive = 4, kJob = 5 };
const char* Name(OperationKind kind);  // "COMMIT"

/// As octavo.v1.OperationState.
///   running → cancelling → succeeded | failed | cancelled
///   running → succeeded | failed | cancelled
enum class OperationState : uint8_t {
  kRunning = 1,
  kCancelling = 2,
  kSucceeded = 3,
  kFailed = 4,
  kCancelled = 5
};
const char* Name(OperationState state);  // "RUNNING"
inline bool IsFinal(OperationState state) { return state >= OperationState::kSucceeded; }

/// All fields as in octavo.v1.Operation.
struct OperationStatus {
  std::string name;
  OperationKind kind = OperationKind::kCommit;
  OperationState state = OperationState::kRunning;
  std::string target, request_id;
  security::Owner owner;  // who began it
  TimePoint created, ended;
  model::WorkProgress progress;
  double elapsed_seconds = 0;
  absl::Status error;  // FAILED, CANCELLED
  std::optional<storage::CommitOutcome> commit;
  std::vector<std::string> volumes;
  uint64_t event_count = 0;  // grows with every change that watchers see
  bool earlier_run = false;  // of an earlier daemon: what its history says
};

}  // namespace octavo::operation
