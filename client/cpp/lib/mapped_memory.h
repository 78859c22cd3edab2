#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client/cpp/include/octavo/octavo.h"

// Memory of the server in this process.
namespace octavo::client {

/// A file descriptor of ours; closed with it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

/// The memory of a descriptor, mapped for reading; unmapped with the object. Thread-safe.
class MappedMemory {
 public:
  virtual ~MappedMemory() = default;
  virtual const void* address() const = 0;  // CUDA: of the device
  virtual int device() const = 0;           // CUDA: ordinal in this process; -1 = host
  /// Waits until the work enqueued so far on its device is done.
  virtual void Synchronize() = 0;
  /// Copies `bytes` from `from`, an address within it, to host memory; complete on return.
  virtual void Read(const void* from, void* to, size_t bytes) = 0;
};

/// A memory file: `bytes` of it from its beginning. Throws Error (kInternal, MAP).
std::shared_ptr<MappedMemory> MapFile(int fd, int64_t bytes);
/// Physical memory of the device with this UUID ("GPU-..."), in its primary context. The driver is
/// loaded now, at run time. Throws Error (kFailedPrecondition, CUDA): no driver, no such device, or
/// the driver's error.
std::shared_ptr<MappedMemory> MapCuda(int fd, int64_t bytes, const std::string& device_uuid);

/// An Error with a reason.
Error Refusal(Code code, const std::string& reason, const std::string& message);

}  // namespace octavo::client
