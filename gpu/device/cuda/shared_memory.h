#pragma once

#include <cstdint>
#include <cuda.h>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"
#include "gpu/device/buffer.h"
#include "gpu/device/exportable_memory.h"

namespace octavo::inline gpu::cuda {

/// Physical memory of one device with a descriptor each (the driver's virtual memory management).
/// Unmapping waits for no kernel (measured: 40 us while one ran). Thread-safe.
class VirtualMemory final : public MemorySource {
 public:
  /// Returns null with the reason if the driver does not offer such memory for `ordinal`. The
  /// devices in `peers` may read and write the memory too.
  static absl::StatusOr<std::shared_ptr<VirtualMemory>> Open(int ordinal, std::vector<int> peers);
  /// Allocates whole granules and does not clear them. `source` is this.
  static absl::StatusOr<DeviceBuffer> Allocate(const std::shared_ptr<VirtualMemory>& source,
                                               int64_t bytes);
  /// Maps memory of another process to read, as ImportableMemory::Import says. `source` is this.
  static absl::StatusOr<DeviceBuffer> Import(const std::shared_ptr<VirtualMemory>& source,
                                             const UniqueFd& descriptor, int64_t bytes);
  absl::StatusOr<SharedMemory> Share(const DeviceBuffer& memory);
  void Release(void* data, int64_t bytes) override;

 private:
  struct Block {
    UniqueFd fd;
    uint64_t id = 0;
    size_t bytes = 0;
  };
  // The driver's entry points. The runtime looks them up, so that the program also starts without
  // libcuda.
  struct Driver {
    decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) free = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
    decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
    decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
    decltype(&cuMemGetAllocationPropertiesFromHandle) properties = nullptr;
    decltype(&cuDeviceGetAttribute) attribute = nullptr;
    decltype(&cuGetErrorString) error_string = nullptr;
  };
  VirtualMemory(int ordinal, std::vector<int> peers)
      : ordinal_(ordinal), peers_(std::move(peers)) {}
  absl::Status ToStatus(CUresult result, const char* call, int64_t bytes) const;
  CUmemAllocationProp Properties() const;
  /// Lets this device and its peers use a mapping.
  CUresult Permit(CUdeviceptr address, size_t size, CUmemAccess_flags flags) const;
  /// InvalidArgument (IMPORT_KIND) unless the handle is of memory of this device.
  absl::Status CheckLent(CUmemGenericAllocationHandle handle) const;

  const int ordinal_;
  const std::vector<int> peers_;
  Driver driver_;
  size_t granularity_ = 0;
  Mutex mutex_;
  std::map<const void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::inline gpu::cuda
