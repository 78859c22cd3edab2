#pragma once

#include "absl/status/statusor.h"

#include "server/exports/export_feed.h"
#include "server/exports/export_store.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {
class BufferStore;
}

namespace octavo::engine {

/// Device memory for other processes: which store an export is of.
class Exports {
 public:
  Exports(exports::ExportStore* store, exports::ExportFeeds* feeds, buffer::BufferStore* buffers)
      : store_(*store), feeds_(*feeds), buffers_(*buffers) {}

  /// A ticket for the memory of a held volume, or of a replica of a buffer under the caller's
  /// exclusive lease (its last write is waited for), or (scans/...) for a standing subscription to
  /// the volumes of a scan. FailedPrecondition (EXPORT_LEASE), and the errors of ExportStore. From
  /// a thread that may wait.
  absl::StatusOr<exports::ExportTicket> Export(const model::ExportSpec& spec,
                                               const model::Caller& caller,
                                               const exports::ExportPeer& peer);
  /// Which buffers and volumes other processes map.
  exports::ExportStore& store() { return store_; }
  /// The standing subscriptions of other processes to volumes as they complete.
  exports::ExportFeeds& feeds() { return feeds_; }

 private:
  exports::ExportStore& store_;
  exports::ExportFeeds& feeds_;
  buffer::BufferStore& buffers_;
};

}  // namespace octavo::engine
