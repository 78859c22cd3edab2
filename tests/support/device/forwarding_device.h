#pragma once

#include <cstdint>
#include <string>

#include "gpu/device/device.h"

namespace octavo::testing {

/// A device that forwards all calls to another one, as a base for devices that change some of them.
/// The other one must outlive it.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  const DeviceInfo& info() const override { return inner_.info(); }
  absl::StatusOr<DeviceMemory> Memory() override { return inner_.Memory(); }
  absl::Status Health() override { return inner_.Health(); }
  absl::StatusOr<Stream> NewStream(StreamPriority priority) override {
    return inner_.NewStream(priority);
  }
  absl::StatusOr<Event> NewEvent() override { return inner_.NewEvent(); }
  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override { return inner_.Allocate(bytes); }
  absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) override {
    return inner_.AllocatePinned(bytes);
  }
  absl::Status CopyToDevice(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return inner_.CopyToDevice(stream, dst, src, bytes);
  }
  absl::Status CopyToHost(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return inner_.CopyToHost(stream, dst, src, bytes);
  }
  absl::Status CopyOnDevice(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return inner_.CopyOnDevice(stream, dst, src, bytes);
  }
  absl::Status CopyAcross(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return inner_.CopyAcross(stream, dst, src, bytes);
  }
  absl::Status CopyBoxToHost(StreamRef stream, void* dst, const void* src, const int64_t shape[3],
                             int64_t element_bytes, const Box3& box) override {
    return inner_.CopyBoxToHost(stream, dst, src, shape, element_bytes, box);
  }
  absl::Status Fill(StreamRef stream, void* dst, int64_t bytes, uint32_t pattern) override {
    return inner_.Fill(stream, dst, bytes, pattern);
  }
  absl::Status Digest(StreamRef stream, DeviceSpan<const uint8_t> src,
                      DeviceSpan<uint64_t> out) override {
    return inner_.Digest(stream, src, out);
  }
  absl::Status DigestOfPart(StreamRef stream, DeviceSpan<const uint8_t> src,
                            const DigestPlace& place, DeviceSpan<uint64_t> out) override {
    return inner_.DigestOfPart(stream, src, place, out);
  }
  absl::Status Stamp(StreamRef stream, HostSpan<int64_t> out) override {
    return inner_.Stamp(stream, out);
  }
  absl::StatusOr<ClockReading> ReadClock() override { return inner_.ReadClock(); }
  absl::Status Delay(StreamRef stream, int64_t ns) override { return inner_.Delay(stream, ns); }
  void InjectFault(const std::string& reason) override { inner_.InjectFault(reason); }
  Operators* FindOperators(const OperatorFamily& family) override {
    return inner_.FindOperators(family);
  }

 protected:
  Device& inner_;
};

}  // namespace octavo::testing
