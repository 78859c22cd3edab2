#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"

// Memory that other processes can map through a file descriptor. Each buffer is an allocation of
// its own, of whole granules with a zeroed tail, so that a process that maps it never sees another
// buffer's data.
namespace octavo::inline gpu {

/// The handle by which another process maps an allocation.
struct SharedMemory {
  uint64_t id = 0;           // random; no process ever reuses it
  int fd = -1;               // belongs to the allocation, open while it lives
  int64_t mapped_bytes = 0;  // the length to map from offset 0 of the descriptor
};

/// A device that can export memory. Thread-safe.
class ExportableMemory {
 public:
  virtual ~ExportableMemory() = default;
  /// Allocates as Device::Allocate does, but in whole granules filled with zeros. Takes
  /// milliseconds. Like all memory, it is released without waiting for running work. Unimplemented
  /// if the driver or the kernel offers no such memory.
  ///   host   a sealed memory file: it cannot shrink or grow, and no process can map it for
  ///          writing any more; the descriptor is read-only
  ///   cuda   physical memory with a POSIX descriptor (cuMemImportFromShareableHandle); the
  ///          importing process chooses its own access
  virtual absl::StatusOr<DeviceBuffer> AllocateExportable(int64_t bytes) = 0;
  /// Returns the handle of memory that AllocateExportable allocated, without a device call.
  /// NotFound for any other memory.
  virtual absl::StatusOr<SharedMemory> Share(const DeviceBuffer& memory) = 0;
};
/// Returns null if the device cannot export memory.
ExportableMemory* ExportableOf(Device& device);

/// The memory that clients may ask to map: slots of volumes, and client buffers. It is ordinary
/// memory unless the process has enabled exportable memory.
class ClientMemory {
 public:
  static constexpr int64_t kGranule = 2 << 20;
  /// Sets this for the whole process. Call it before the first allocation.
  static void MakeExportable(bool on);
  /// The size that an allocation of `bytes` takes and is charged for.
  static int64_t Bytes(int64_t bytes);
  /// Allocates Bytes(bytes) bytes. On a device that cannot share its memory, it allocates ordinary
  /// memory.
  static absl::StatusOr<DeviceBuffer> Allocate(Device& device, int64_t bytes);
};

/// 64 random bits, not 0.
uint64_t RandomMemoryId();

}  // namespace octavo::inline gpu
