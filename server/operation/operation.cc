#include "server/operation/operation.h"

namespace octavo::operation {

const char* Name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kCommit: return "COMMIT";
    case OperationKind::kSpill: return "SPILL";
    case OperationKind::kRestore: return "RESTORE";
    case OperationKind::kDerive: return "DERIVE";
    case OperationKind::kJob: return "JOB";
  }
  return "";
}

const char* Name(OperationState state) {
  switch (state) {
    case OperationState::kRunning: return "RUNNING";
    case OperationState::kCancelling: return "CANCELLING";
    case OperationState::kSucceeded: return "SUCCEEDED";
    case OperationState::kFailed: return "FAILED";
    case OperationState::kCancelled: return "CANCELLED";
  }
  return "";
}

}  // namespace octavo::operation
