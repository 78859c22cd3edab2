#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "server/security/owner.h"

namespace octavo::model {

/// As octavo.v1.OperationStage.
enum class WorkStage : uint8_t {
  kWaiting = 1,
  kPreparing = 2,
  kCopying = 3,
  kWriting = 4,
  kComputing = 5,
  kSyncing = 6
};

/// As octavo.v1.OperationProgress.
struct WorkProgress {
  WorkStage stage = WorkStage::kWaiting;
  int64_t done_bytes = 0, total_bytes = 0, disk_bytes = 0;
  double fraction = 0;  // of the whole, 0 ... 1
};

/// The request that began a work. Empty: the server did by itself.
struct WorkOrigin {
  std::string operation;                   // operations/<id>
  std::string request_id, request_digest;  // SHA-256 of its body, in hexadecimal digits
  security::Owner owner;                   // who asked
  std::string trace_id;                    // of the trace that the request belongs to
};

/// The two ways between long work and its caller while it runs. The default: nobody watches, and
/// nobody ends it.
struct WorkControl {
  std::stop_token stop;                             // the work ends soon after a request
  std::function<void(const WorkProgress&)> report;  // may be null; cheap, any thread
  WorkOrigin origin;

  void Report(const WorkProgress& progress) const {
    if (report) report(progress);
  }
};

}  // namespace octavo::model
