#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "gpu/device/device_span.h"

namespace octavo::inline gpu {

/// The backend's side of a buffer, which takes the memory back. It must outlive the buffers.
/// Release never waits for running work.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void Release(void* data, int64_t bytes) = 0;
};

/// Move-only owner of a block of memory of the kind that `Tag` names. Destroy it only after every
/// stream has passed its last use.
template <class Tag>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(std::shared_ptr<MemorySource> source, void* data, int64_t bytes)
      : source_(std::move(source)), data_(data), bytes_(bytes) {}
  OwnedMemory(OwnedMemory&& other) noexcept { *this = std::move(other); }
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    if (this != &other) {
      Free();
      source_ = std::move(other.source_);
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;
  ~OwnedMemory() { Free(); }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  /// The whole buffer as elements of T.
  template <class T>
  MemorySpan<T, Tag::kKind> span() const {
    return {as<T>(), bytes_ / static_cast<int64_t>(sizeof(T))};
  }
  int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void Free() {
    if (data_ != nullptr) source_->Release(data_, bytes_);
    data_ = nullptr;
  }

  std::shared_ptr<MemorySource> source_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct DeviceMemoryTag {
  static constexpr MemoryKind kKind = MemoryKind::kDevice;
};
struct PinnedMemoryTag {
  static constexpr MemoryKind kKind = MemoryKind::kHost;
};
/// Memory of a device (host backend: aligned host memory). Do not dereference on the calling
/// thread.
using DeviceBuffer = OwnedMemory<DeviceMemoryTag>;
/// Page-locked host memory: dereference freely; copies to and from devices run at full rate.
using PinnedBuffer = OwnedMemory<PinnedMemoryTag>;

}  // namespace octavo::inline gpu
