#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "gpu/base/mutex.h"
#include "server/model/frame.h"
#include "server/model/stats.h"

namespace octavo::publish {

/// Counts of frames and streams for the metrics. The publisher shares them with its subscriptions,
/// which may outlive it. Thread-safe; its lock is inside all others.
class FrameCounters {
 public:
  /// `latency_seconds`: from the acquisition; not counted for events.
  void Published(model::Product product, double latency_seconds);
  void Sent(model::Product product);
  /// `why`: the delivery class that dropped it, or why the server did not make it.
  void Dropped(model::Product product, const std::string& why);
  /// The server ended a stream or a subscription.
  void Cut(const std::string& reason);
  void AddTo(model::Stats* stats);

 private:
  Mutex mutex_;
  std::map<std::string, int64_t> published_ ABSL_GUARDED_BY(mutex_), sent_ ABSL_GUARDED_BY(mutex_),
      cut_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, int64_t> dropped_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, model::Histogram> latency_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::publish
