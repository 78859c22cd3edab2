#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "gpu/device/device.h"

// Memory that another process allocated, and that this one maps through a file descriptor: the
// counterpart of exportable_memory.h.
namespace octavo::inline gpu {

/// A device that can import memory. Thread-safe.
class ImportableMemory {
 public:
  virtual ~ImportableMemory() = default;
  /// Maps memory of another process to read, where it lies, without a copy. Takes milliseconds and
  /// waits for no work. The owner may write it at any time; the mapping stays valid when the owner
  /// has gone. Like all memory, it is released without waiting for running work: it ends the
  /// mapping, not the memory. The descriptor may be anything that a client sends: nothing is called
  /// that it could keep waiting.
  ///   host   a memory file (memfd_create) of exactly `bytes` bytes. It has the seals that keep it
  ///          from ending or starving this process: F_SEAL_SHRINK, without which an access past its
  ///          new end would be a SIGBUS; F_SEAL_FUTURE_WRITE or F_SEAL_WRITE, without which its
  ///          owner could punch holes into it, which each access of ours fills with memory of ours.
  ///          It has no holes for the same reason, and no huge pages, whose pool may be empty
  ///          (SIGBUS).
  ///   cuda   physical memory of this device by a POSIX descriptor (cuMemExportToShareableHandle),
  ///   of
  ///          exactly `bytes` bytes, whole granules
  /// InvalidArgument (IMPORT_KIND: no such memory; IMPORT_SIZE), FailedPrecondition
  /// (IMPORT_NOT_SEALED), ResourceExhausted (OUT_OF_MEMORY: no address space is left),
  /// Unimplemented (IMPORT_KIND: the driver has no such memory).
  virtual absl::StatusOr<DeviceBuffer> Import(const UniqueFd& descriptor, int64_t bytes) = 0;
  /// The size of an import is a multiple of this.
  virtual int64_t ImportGranule() const = 0;
};
/// Returns null if the device cannot import memory.
ImportableMemory* ImportableOf(Device& device);

}  // namespace octavo::inline gpu
