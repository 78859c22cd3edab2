#pragma once

#include "absl/status/statusor.h"

#include "server/exports/export_feed.h"
#include "server/exports/export_store.h"
#include "server/exports/frame_feed.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {
class BufferStore;
}

namespace octavo::engine {

/// Exports device memory to other processes; picks the store that owns an object's memory.
class Exports {
 public:
  Exports(exports::ExportStore* store, exports::ExportFeeds* feeds, exports::FrameFeeds* frames,
          buffer::BufferStore* buffers)
      : store_(*store), feeds_(*feeds), frames_(*frames), buffers_(*buffers) {}

  /// Issues a ticket for the memory of a held volume; for a buffer's replica under the caller's
  /// exclusive lease, after waiting for its last write; or (scans/...) for a standing subscription
  /// to the volumes of a scan. FailedPrecondition (EXPORT_LEASE), and the errors of ExportStore.
  /// Call from a thread that may wait.
  absl::StatusOr<exports::ExportTicket> Export(const model::ExportSpec& spec,
                                               const model::Caller& caller,
                                               const exports::ExportPeer& peer);
  /// The exports of buffers and volumes that other processes map.
  exports::ExportStore& store() { return store_; }
  /// The standing subscriptions of other processes to volumes as they complete.
  exports::ExportFeeds& feeds() { return feeds_; }
  /// The subscriptions of other processes whose frames go by shared memory.
  exports::FrameFeeds& frames() { return frames_; }

 private:
  exports::ExportStore& store_;
  exports::ExportFeeds& feeds_;
  exports::FrameFeeds& frames_;
  buffer::BufferStore& buffers_;
};

}  // namespace octavo::engine
