#pragma once

#include <hdf5.h>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"

// Shared by all users of the HDF5 library in this program.
namespace octavo::storage {

/// Hold this lock around every call of the library and the reading of its error stack: the library
/// is not thread-safe, or has one lock of its own.
Mutex& Hdf5Mutex();

/// Call this under the lock before anything else: it turns off the library's error printing (a
/// setting per thread) and its handling of files at exit.
void QuietHdf5();

/// The library's reason for its last failure, and errno if it was the system's (else 0). Forgets
/// it.
std::string Hdf5Reason(int* error);

/// The status of a failed write: the system's error, or Internal (IO_ERROR).
absl::Status Hdf5Error(const std::string& doing, const std::string& path);

/// Owner of an identifier. The lock is held when it closes.
class Hdf5Id {
 public:
  Hdf5Id() = default;
  Hdf5Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Id() { (void)Close(); }
  herr_t Close() { return id_ < 0 ? 0 : close_(std::exchange(id_, -1)); }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

}  // namespace octavo::storage
