#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/buffer.h"
#include "gpu/device/device_span.h"
#include "gpu/device/digest.h"
#include "gpu/device/stream.h"

namespace octavo::inline gpu {

class Operators;
struct OperatorFamily;

struct DeviceInfo {
  int index = 0;            // n of devices/<n>, over all opened devices; devices/host comes last
  std::string backend;      // "host", "cuda"
  std::string model;        // "AMD EPYC, AVX3 x 2 cores", "NVIDIA H200"
  std::string uuid;         // stable across runs where the backend has one
  int64_t total_bytes = 0;  // physical memory
};

struct DeviceMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // over all processes, as the driver or the kernel counts
};

/// Three-dimensional box of a C-order array.
struct Box3 {
  int64_t start[3] = {0, 0, 0};
  int64_t count[3] = {0, 0, 0};
};

/// Two clocks read at the same moment, in nanoseconds. The readings are as close to each other as
/// the device allows (a few microseconds).
struct ClockReading {
  int64_t device_ns = 0;  // the clock that Stamp writes
  int64_t host_ns = 0;    // the host's monotonic clock
};

/// One device of one backend: memory, streams, copies. It owns the operators that its backend made
/// for it, but does not depend on any operator family (gpu/device/operators.h). Thread-safe. On
/// every backend, an enqueueing call returns before its work is done and never waits for work
/// enqueued before.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual absl::StatusOr<DeviceMemory> Memory() = 0;
  /// OK, or the sticky error because of which the device must not be used any more.
  virtual absl::Status Health() = 0;

  virtual absl::StatusOr<Stream> NewStream(StreamPriority priority) = 0;
  virtual absl::StatusOr<Event> NewEvent() = 0;

  /// Allocates device memory, 256-byte aligned, contents undefined. The call may take milliseconds,
  /// so never make it on the block path. ResourceExhausted if the device has too little memory
  /// left.
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) = 0;
  /// Allocates page-locked host memory, page aligned. The call may take milliseconds, so never make
  /// it on the block path.
  virtual absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) = 0;

  /// Enqueues a copy. Both ranges must live and stay unchanged until `stream` passes this point.
  /// Use pinned host memory for the full rate.
  virtual absl::Status CopyToDevice(StreamRef stream, void* dst, const void* src,
                                    int64_t bytes) = 0;
  virtual absl::Status CopyToHost(StreamRef stream, void* dst, const void* src, int64_t bytes) = 0;
  virtual absl::Status CopyOnDevice(StreamRef stream, void* dst, const void* src,
                                    int64_t bytes) = 0;
  /// Enqueues a copy of all elements of `src` to the beginning of `dst`, as CopyToDevice and
  /// CopyToHost. InvalidArgument if `dst` is shorter.
  template <class T>
  absl::Status Upload(StreamRef stream, DeviceSpan<T> dst,
                      std::type_identity_t<HostSpan<const T>> src) {
    if (dst.count() < src.count()) return TooShort(dst.count(), src.count());
    return CopyToDevice(stream, dst.data(), src.data(), src.bytes());
  }
  template <class T>
  absl::Status Download(StreamRef stream, HostSpan<T> dst,
                        std::type_identity_t<DeviceSpan<const T>> src) {
    if (dst.count() < src.count()) return TooShort(dst.count(), src.count());
    return CopyToHost(stream, dst.data(), src.data(), src.bytes());
  }

  /// Enqueues, on a stream of this device, a copy between its memory and that of another device of
  /// the same backend, in either direction. The copy goes directly between the devices where the
  /// machine allows it, else through the host. Does not synchronise. Both ranges must live as
  /// described for CopyToDevice.
  virtual absl::Status CopyAcross(StreamRef stream, void* dst, const void* src, int64_t bytes) = 0;
  /// Enqueues a copy of `box` of the C-order array `src` of `shape` elements of `element_bytes`
  /// into packed host memory.
  virtual absl::Status CopyBoxToHost(StreamRef stream, void* dst, const void* src,
                                     const int64_t shape[3], int64_t element_bytes,
                                     const Box3& box) = 0;
  /// Enqueues filling `bytes` at `dst` (4-byte aligned; 2 where both halves of the
  /// pattern are equal, 1 where all its bytes are) with `pattern` repeated (little endian; a tail
  /// takes its first bytes).
  virtual absl::Status Fill(StreamRef stream, void* dst, int64_t bytes, uint32_t pattern) = 0;
  /// Enqueues the sum64 digest (gpu/device/digest.h) of the bytes `src` into the first word of
  /// `out`. InvalidArgument if `out` is empty.
  virtual absl::Status Digest(StreamRef stream, DeviceSpan<const uint8_t> src,
                              DeviceSpan<uint64_t> out) = 0;
  /// Does the same for a part of a larger whole. The digests of the parts add up to the digest of
  /// the whole. InvalidArgument if `out` is empty, or unless the numbers of `place` are multiples
  /// of 8.
  virtual absl::Status DigestOfPart(StreamRef stream, DeviceSpan<const uint8_t> src,
                                    const DigestPlace& place, DeviceSpan<uint64_t> out) = 0;

  /// Enqueues a write of the time at which `stream` reaches this point to the first word of `out`,
  /// which is page-locked host memory, in nanoseconds of the device's own clock (see ReadClock). A
  /// device without a clock writes 0. Does not synchronise. InvalidArgument if `out` is empty.
  virtual absl::Status Stamp(StreamRef stream, HostSpan<int64_t> out) {
    (void)stream;
    if (out.count() < 1) return TooShort(out.count(), 1);
    *out.data() = 0;
    return absl::OkStatus();
  }
  /// Reads the device's clock and the host's clock. They drift apart by some microseconds a second.
  /// The call waits for the device (tens of microseconds), so never make it on the block path.
  virtual absl::StatusOr<ClockReading> ReadClock() { return ClockReading{}; }

  // -- for tests of disorder and failure
  /// Enqueues a delay of `ns`, at most 1 s. Does not synchronise.
  virtual absl::Status Delay(StreamRef stream, int64_t ns) = 0;
  /// Makes the device lost from now on, as a sticky driver error does: Health, every call and all
  /// work waiting in streams fail with Unavailable (DEVICE_LOST). The device cannot recover.
  virtual void InjectFault(const std::string& reason) = 0;

  /// Returns the operators of a family that the backend made for this device, or null if the
  /// backend has none. The device owns them. FindOperators in gpu/device/operators.h returns them
  /// with their type.
  virtual Operators* FindOperators(const OperatorFamily& family) = 0;

 protected:
  /// The InvalidArgument of a destination with room for `room` elements where `wanted` are written.
  static absl::Status TooShort(int64_t room, int64_t wanted);
};

}  // namespace octavo::inline gpu
