#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

// Private to this folder, and to the library of the tests that stands in for it: what
// libcufile.so.0 takes and returns on 64-bit machines. Declared here, because machines that build
// Octavo need not have NVIDIA's header. Source: cufile.h of nvidia-cufile 1.13,
// docs.nvidia.com/gpudirect-storage.
namespace octavo::storage::cufile {

/// Returned by value, in a register.
struct Error {
  int err;     // a CUfileOpError, 0 = none
  int cu_err;  // a CUresult
};
static_assert(sizeof(Error) == 8);

using Handle = void*;

/// CUfileDescr_t; to be zeroed first.
struct Description {
  int type;  // 1: a Linux descriptor
  union {
    int fd;
    void* handle;
  };
  const void* fs_ops;
};
static_assert(sizeof(Description) == 24 && offsetof(Description, fd) == 8);
inline constexpr int kLinuxDescriptor = 1;

/// CUfileDrvProps_t. It grew from version to version: `rest` has room for what comes behind.
struct DriverProperties {
  uint32_t nvfs_major, nvfs_minor;  // 0.0: no module nvidia-fs
  size_t poll_threshold, max_direct_io;
  uint32_t status_flags, control_flags;
  uint32_t feature_flags, max_device_cache_kb, per_buffer_cache_kb, max_pinned_kb;
  uint32_t max_batch_io, batch_timeout_ms;
  char rest[512];
};
static_assert(offsetof(DriverProperties, status_flags) == 24 &&
              offsetof(DriverProperties, control_flags) == 28 &&
              offsetof(DriverProperties, feature_flags) == 32 &&
              offsetof(DriverProperties, rest) == 56);
inline constexpr uint32_t kControlAllowCompat = 1u << 1;

/// CUFileBoolConfigParameter_t
inline constexpr int kAllowCompatMode = 1, kForceCompatMode = 2;

/// CUfileOpError
inline constexpr int kSuccess = 0, kNotInitialised = 5001, kPlatform = 5007, kIoNotSupported = 5008,
                     kDevice = 5009, kCudaError = 5011, kFileType = 5018, kOpenFlags = 5019,
                     kDirectNotSet = 5020, kInternal = 5030, kDisabled = 5034;

using DriverOpen = Error (*)();
using DriverClose = Error (*)();
using GetProperties = Error (*)(DriverProperties*);
using SetParameterBool = Error (*)(int parameter, bool value);
using HandleRegister = Error (*)(Handle*, Description*);
using HandleDeregister = void (*)(Handle);
using BufferRegister = Error (*)(const void* base, size_t bytes, int flags);
using BufferDeregister = Error (*)(const void* base);
/// Bytes read; -1: errno; else -CUfileOpError.
using Read = ssize_t (*)(Handle, void* base, size_t bytes, off_t file_offset, off_t base_offset);
using GetVersion = Error (*)(int* version);  // 1000 * major + 10 * minor

}  // namespace octavo::storage::cufile
