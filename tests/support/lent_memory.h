#pragma once

#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <utility>

#include "gtest/gtest.h"

#include "gpu/base/unique_fd.h"
#include "gpu/device/device.h"
#include "gpu/device/exportable_memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace octavo::testing {

inline constexpr int kLentSeals = F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE;

/// Memory of a client that lends it to a server: a sealed memory file, or memory of a GPU. It plays
/// the client in the same process.
class LentMemory {
 public:
  /// A memory file that is mapped to write before it is sealed.
  static LentMemory File(int64_t bytes, int seals = kLentSeals) {
    LentMemory made;
    made.bytes_ = bytes;
    made.file_ = UniqueFd(::memfd_create("lent-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::fallocate(made.file_.get(), 0, 0, bytes), 0);
    void* view = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                        made.file_.get(), 0);
    EXPECT_NE(view, MAP_FAILED);
    made.view_ = static_cast<char*>(view);
    if ((seals & F_SEAL_WRITE) != 0) made.Unmap();
    EXPECT_EQ(::fcntl(made.file_.get(), F_ADD_SEALS, seals), 0);
    return made;
  }
  /// Memory of the kind that the device takes.
  static LentMemory Of(Device& device, int64_t bytes) {
    if (device.info().backend == "host") return File(bytes);
    LentMemory made;
    made.bytes_ = bytes;
    made.device_ = &device;
    made.memory_ = ExportableOf(device)->AllocateExportable(bytes).value();
    return made;
  }
  LentMemory(LentMemory&& other) noexcept { *this = std::move(other); }
  LentMemory& operator=(LentMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(file_, other.file_);
    std::swap(view_, other.view_);
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~LentMemory() { Unmap(); }

  int fd() const {
    return device_ == nullptr ? file_.get() : ExportableOf(*device_)->Share(memory_).value().fd;
  }
  int64_t bytes() const { return bytes_; }
  void Write(const void* data, int64_t bytes, int64_t at = 0) {
    if (device_ == nullptr) {
      std::memcpy(view_ + at, data, static_cast<size_t>(bytes));
      return;
    }
    const Stream stream = device_->NewStream(StreamPriority::kNormal).value();
    EXPECT_TRUE(device_->CopyToDevice(stream.ref(), memory_.as<char>() + at, data, bytes).ok());
    EXPECT_TRUE(stream.ref().Synchronize().ok());
  }

 private:
  LentMemory() = default;
  void Unmap() {
    if (view_ != nullptr) ::munmap(std::exchange(view_, nullptr), static_cast<size_t>(bytes_));
  }

  int64_t bytes_ = 0;
  UniqueFd file_;
  char* view_ = nullptr;
  Device* device_ = nullptr;  // of memory_
  DeviceBuffer memory_;
};

}  // namespace octavo::testing
