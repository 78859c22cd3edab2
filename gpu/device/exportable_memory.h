#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"

// Memory that other processes can map, by a file descriptor. One buffer an allocation, whole
// granules, the tail zeroed: nobody's neighbour is seen.
namespace octavo::inline gpu {

/// How another process gets at an allocation.
struct SharedMemory {
  uint64_t id = 0;  // of this allocation: random, never reused, not by another process either
  int fd = -1;      // the allocation's own, open while it lives
  int64_t mapped_bytes = 0;  // what to map, from offset 0 of the descriptor on
};

/// A device that has such memory. Thread-safe.
class ExportableMemory {
 public:
  virtual ~ExportableMemory() = default;
  /// As Device::Allocate, of whole granules; filled with zeros. Takes milliseconds. Given back
  /// without waiting for running work, like all memory. Unimplemented if the driver or the kernel
  /// offers none.
  ///   host   a memory file, sealed: it cannot shrink or grow, and nobody can map it for writing
  ///          any more; the descriptor is read-only
  ///   cuda   physical memory with a POSIX descriptor (cuMemImportFromShareableHandle); who imports
  ///          it chooses the access himself
  virtual absl::StatusOr<DeviceBuffer> AllocateExportable(int64_t bytes) = 0;
  /// Of an allocation of AllocateExportable; no device call. NotFound for any other memory.
  virtual absl::StatusOr<SharedMemory> Share(const DeviceBuffer& memory) = 0;
};
/// Null if the device has none.
ExportableMemory* ExportableOf(Device& device);

/// The memory that clients may ask to map: slots of volumes, and client buffers. Ordinary memory,
/// unless the process was told otherwise.
class ClientMemory {
 public:
  static constexpr int64_t kGranule = 2 << 20;
  /// For the whole process, before the first allocation.
  static void MakeExportable(bool on);
  /// What an allocation of `bytes` takes, and is charged.
  static int64_t Bytes(int64_t bytes);
  /// Of Bytes(bytes) bytes. A device that cannot share its memory gives ordinary memory.
  static absl::StatusOr<DeviceBuffer> Allocate(Device& device, int64_t bytes);
};

/// 64 random bits, not 0.
uint64_t RandomMemoryId();

}  // namespace octavo::inline gpu
