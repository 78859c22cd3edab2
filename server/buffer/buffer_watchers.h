#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/change_watchers.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// The watchers of buffers: a private buffer is told to watchers with its key alone.
class BufferWatchers {
 public:
  using Told = base::ChangeWatchers<model::BufferStatus>::Told;

  /// As ChangeWatchers::Watch.
  std::shared_ptr<void> Watch(const model::Caller& caller, Told told,
                              const std::function<std::vector<model::BufferStatus>()>& existing) {
    return watchers_.Watch(caller.key, std::move(told), existing);
  }
  /// As ChangeWatchers::Tell. `key`: of the buffer, if it is private.
  void Tell(base::ChangeKind kind, const model::BufferStatus& status, const std::string& key,
            const std::string& text) {
    watchers_.Tell(kind, status, text, status.is_private ? &key : nullptr);
  }
  /// As ChangeWatchers::Flush.
  void Flush() { watchers_.Flush(); }

 private:
  base::ChangeWatchers<model::BufferStatus> watchers_;
};

}  // namespace octavo::buffer
