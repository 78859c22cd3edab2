#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/base/worker_pool.h"
#include "server/memory/frame_pool.h"
#include "server/model/frame.h"
#include "server/model/status_types.h"
#include "server/volume/volume_hold.h"

namespace octavo::volume {

/// Reads a volume (or a box) piece by piece. One Next at a time.
class VolumeReader {
 public:
  virtual ~VolumeReader() = default;
  virtual const model::VolumeStatus& volume() const = 0;
  virtual const std::vector<int64_t>& shape() const = 0;  // [y, x, z] of what is read
  virtual DType dtype() const = 0;                        // of what is read
  virtual int64_t total_bytes() const = 0;
  /// Calls `done` from an engine thread with the next bytes, at most `max_bytes` (64 KiB ... 4
  /// MiB), or with empty Bytes at the end.
  virtual void Next(int64_t max_bytes, std::function<void(absl::StatusOr<model::Bytes>)> done) = 0;
  /// Nobody waits for the bytes any more: a Next under way ends soon, with Cancelled if it has to.
  /// Any thread.
  virtual void Abandon() {}
};

/// The box of `count` from `start` on of an array of `shape`; empty lists mean all of it.
/// OutOfRange
/// ("start", "count") if it leaves the array.
absl::StatusOr<Box3> BoxOf(const int64_t shape[3], const std::vector<int64_t>& start,
                           const std::vector<int64_t>& count);

/// Reader of a box of a volume; `hold` is of kind kRead. Prefetches one piece. `device`, `stream`
/// and `workers` must outlive it. The box and its errors are those of BoxOf.
absl::StatusOr<std::shared_ptr<VolumeReader>> MakeVolumeReader(
    VolumeHold hold, const std::vector<int64_t>& start, const std::vector<int64_t>& count,
    Device* device, StreamRef stream, std::shared_ptr<memory::FramePool> pool,
    base::WorkerPool* workers);

}  // namespace octavo::volume
