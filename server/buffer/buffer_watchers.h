#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "gpu/base/mutex.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// The watchers of buffers. A watcher hears of the existing buffers before it hears of changes, and
/// never of an older state of a buffer after a newer one, in whichever order the threads that made
/// the changes arrive. Thread-safe; callbacks run without locks, on the thread that made the
/// change, or on another thread that is calling the same watcher at this moment.
class BufferWatchers {
 public:
  using Told = std::function<void(model::BufferEventKind, const model::BufferStatus&,
                                  const std::string& text)>;

  /// Calls `told` for each of the buffers that `existing` returns, then for each change, until the
  /// returned handle is destroyed. `existing` is called without locks.
  std::shared_ptr<void> Watch(const model::Caller& caller, Told told,
                              const std::function<std::vector<model::BufferStatus>()>& existing);
  /// Tells a change that has been made. Call it without locks. `key`: the key of a private buffer,
  /// which only its owner hears of.
  void Tell(model::BufferEventKind kind, const model::BufferStatus& status, const std::string& key,
            const std::string& text);

 private:
  class Watcher;

  Mutex mutex_;
  std::list<std::weak_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::buffer
