#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "gpu/base/mutex.h"
#include "server/model/scan_spec.h"

namespace octavo::scan {

class ScanSession;

/// Named queues of scans that acquire one after another. Owns no session: one's own thread must not
/// be the last to let go of it. Thread-safe; starts and ends sessions without its lock.
class ScanQueues {
 public:
  /// Starts `session` now or when its turn comes, as its spec says. A spec without a queue starts
  /// at once.
  void Add(const std::shared_ptr<ScanSession>& session, const model::QueueOptions& options);
  /// `session` takes no more records (or never will): the next one of its queue begins.
  void Acquired(const std::string& queue, const std::string& session);
  /// 0 = acquiring or through; 1 = next.
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
  Mutex mutex_;
  std::map<std::string, Queue> queues_
      ABSL_GUARDED_BY(mutex_);  // only those with something in them
};

}  // namespace octavo::scan
