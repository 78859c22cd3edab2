#pragma once

#include <hdf5.h>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"

// What all users of the HDF5 library here share.
namespace octavo::storage {

/// Held around every call of the library and what belongs to it (an error and its stack): the
/// library has no threads, or one lock of its own.
Mutex& Hdf5Mutex();

/// To be called under the lock before anything else: errors are told by status (the setting is per
/// thread), and the library leaves files alone when the program ends.
void QuietHdf5();

/// The library's reason for its last failure, and errno if it was the system's (else 0). Forgets
/// it.
std::string Hdf5Reason(int* error);

/// A failure while writing: of the system, or Internal (IO_ERROR).
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
