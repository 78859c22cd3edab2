#pragma once

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"
#include "gpu/device/buffer.h"
#include "gpu/device/exportable_memory.h"

namespace octavo::inline gpu::host {

/// Memory in files without a name (memfd_create), which this process writes and others can only
/// read. Thread-safe.
class MemoryFiles final : public MemorySource {
 public:
  /// Maps the file for writing in this process. The seals then forbid any process that gets a
  /// descriptor to write, and forbid every process to shrink or grow the file. The pages are
  /// allocated, so that a later page fault cannot fail, and zero. `source` is this.
  static absl::StatusOr<DeviceBuffer> Allocate(const std::shared_ptr<MemoryFiles>& source,
                                               int64_t bytes);
  absl::StatusOr<SharedMemory> Share(const DeviceBuffer& memory);
  void Release(void* data, int64_t bytes) override;

 private:
  struct File {
    UniqueFd read_only;
    uint64_t id = 0;
    int64_t bytes = 0;
  };
  Mutex mutex_;
  std::map<const void*, File> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::inline gpu::host
