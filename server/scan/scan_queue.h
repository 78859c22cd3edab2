#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "server/model/scan_spec.h"
#include "server/security/principal.h"

namespace octavo::scan {

class ScanSession;

/// Named queues of scans that acquire one after another. The queues own no session, because a
/// session's own thread must not hold the last reference to it. Thread-safe; starts and ends
/// sessions without holding the lock.
class ScanQueues {
 public:
  /// Starts `session` now or when its turn comes, as `options` demand. Without a queue it starts at
  /// once. `caller`: who submits it. PermissionDenied (NOT_OWNER) if it would interrupt a scan that
  /// the caller may not change; the session is then in no queue and has not started.
  absl::Status Add(const std::shared_ptr<ScanSession>& session, const model::QueueOptions& options,
                   const security::Principal& caller = {});
  /// Whether Add would be refused now.
  absl::Status CheckInterruption(const model::QueueOptions& options,
                                 const security::Principal& caller);
  /// `session` takes no more records, or never will: the next session of its queue begins.
  void Acquired(const std::string& queue, const std::string& session);
  /// 0 = acquiring or finished; 1 = next.
  int64_t PositionOf(const std::string& queue, const std::string& session);

 private:
  struct Entry {
    std::string name;  // of the session; empty = none
    std::weak_ptr<ScanSession> session;
  };
  struct Queue {
    Entry acquiring;
    std::deque<Entry> waiting;
  };
  /// Of a scan that would interrupt those of the queue.
  static absl::Status CheckInterruption(const Queue& queue, const security::Principal& caller);

  Mutex mutex_;
  std::map<std::string, Queue> queues_ ABSL_GUARDED_BY(mutex_);  // no empty queues
};

}  // namespace octavo::scan
