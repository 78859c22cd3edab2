// Stands in for libcufile.so.0 in tests: the functions that the server calls, over pread. "Device
// memory" is the host's, as on the host backend, or a GPU's, to which the bytes are copied by the
// CUDA runtime of the process. It can fail, stop short, be slow, and say that it
// is in compat mode. Tests in the same process set that by octavo_shim_set; for a daemon the
// variable OCTAVO_CUFILE_SHIM="delay_us=1000,fail_from=3" does, read when the driver is opened.
//
// With SHIM_LACKS_READ it lacks cuFileRead, as a library that is too old would.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "server/storage/direct/cufile_abi.h"

namespace {

namespace cufile = octavo::storage::cufile;
using cufile::Error;

struct State {
  std::mutex mutex;
  std::map<std::string, long> values;  // see Reset
  std::atomic<long> reads{0}, handles{0}, buffers{0};
  bool compat = true, opened = false;

  void Reset() {
    values = {{"open_error", 0},      // cuFileDriverOpen answers it
              {"register_error", 0},  // cuFileHandleRegister
              {"buffer_error", 0},    // cuFileBufRegister
              {"sticky_compat", 0},   // compat mode cannot be turned off
              {"nvfs_major", 2},
              {"fail_from", 0},   // the first read that fails, counted from 1; 0 = none
              {"fail_count", 1},  // so many fail
              {"fail_with", -5030},
              {"most_bytes", 0},  // of a read; 0 = no limit
              {"delay_us", 0},    // of each read
              {"wrong_bytes", 0}};
    reads = 0;
    compat = true;
  }
  State() { Reset(); }
};
State& Shim() {
  static State& state = *new State;
  return state;
}
long Value(const char* name) {
  const std::lock_guard lock(Shim().mutex);
  return Shim().values[name];
}
#ifndef SHIM_LACKS_READ
// The CUDA runtime is linked into programs, where dlsym does not find it: the shim asks the driver.
template <class Function>
Function OfDriver(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(driver, name));
}
/// The number of the GPU whose memory this is; -1 for memory of the host. A process without a GPU
/// has none.
int GpuOf(const void* memory) {
  using Ask = int (*)(void*, int attribute, uint64_t pointer);
  static const auto ask = OfDriver<Ask>("cuPointerGetAttribute");
  constexpr int kMemoryType = 2, kDeviceOrdinal = 9;
  constexpr unsigned kOfDevice = 2;
  unsigned type = 0;
  int device = -1;
  const auto pointer = reinterpret_cast<uint64_t>(memory);
  if (ask == nullptr || ask(&type, kMemoryType, pointer) != 0 || type != kOfDevice) return -1;
  return ask(&device, kDeviceOrdinal, pointer) == 0 ? device : -1;
}
/// Copies host memory to where the reader wants it.
bool Put(void* to, const void* from, size_t bytes) {
  const int gpu = GpuOf(to);
  if (gpu < 0) {
    std::memcpy(to, from, bytes);
    return true;
  }
  using Retain = int (*)(void** context, int device);
  using Set = int (*)(void* context);
  using Copy = int (*)(uint64_t to, const void* from, size_t bytes);
  static const auto retain = OfDriver<Retain>("cuDevicePrimaryCtxRetain");
  static const auto set = OfDriver<Set>("cuCtxSetCurrent");
  static const auto copy = OfDriver<Copy>("cuMemcpyHtoD_v2");
  void* context = nullptr;  // that of the runtime; kept until the process ends
  return copy != nullptr && retain(&context, gpu) == 0 && set(context) == 0 &&
         copy(reinterpret_cast<uint64_t>(to), from, bytes) == 0;
}

#endif
Error Answer(long error) { return {static_cast<int>(error), 0}; }

/// A handle: the descriptor with a mark.
void* HandleOf(int fd) { return reinterpret_cast<void*>((intptr_t{fd} << 8) | 0xC5); }

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void octavo_shim_set(const char* name, long value) {
  const std::lock_guard lock(Shim().mutex);
  if (std::strcmp(name, "reset") == 0)
    Shim().Reset();
  else
    Shim().values[name] = value;
}
EXPORTED long octavo_shim_get(const char* name) {
  if (std::strcmp(name, "reads") == 0) return Shim().reads;
  if (std::strcmp(name, "handles") == 0) return Shim().handles;
  if (std::strcmp(name, "buffers") == 0) return Shim().buffers;
  return Value(name);
}

EXPORTED Error cuFileDriverOpen() {
  if (const char* text = std::getenv("OCTAVO_CUFILE_SHIM")) {
    for (std::string rest = text; !rest.empty();) {
      const std::string one = rest.substr(0, rest.find(','));
      rest = one.size() < rest.size() ? rest.substr(one.size() + 1) : "";
      const size_t equals = one.find('=');
      if (equals != std::string::npos)
        octavo_shim_set(one.substr(0, equals).c_str(), std::atol(one.c_str() + equals + 1));
    }
  }
  const Error error = Answer(Value("open_error"));
  Shim().opened = error.err == 0;
  return error;
}
EXPORTED Error cuFileDriverClose_v2() {
  Shim().opened = false;
  return Answer(0);
}
EXPORTED Error cuFileDriverGetProperties(cufile::DriverProperties* out) {
  if (!Shim().opened) return Answer(cufile::kNotInitialised);
  // As many bytes as the oldest library writes.
  std::memset(out, 0, 56);
  out->nvfs_major = static_cast<uint32_t>(Value("nvfs_major"));
  out->nvfs_minor = out->nvfs_major > 0 ? 17 : 0;
  if (Shim().compat || Value("sticky_compat") != 0)
    out->control_flags |= cufile::kControlAllowCompat;
  return Answer(0);
}
EXPORTED Error cuFileSetParameterBool(int parameter, bool value) {
  if (parameter == cufile::kAllowCompatMode) Shim().compat = value;
  return Answer(0);
}
EXPORTED Error cuFileGetVersion(int* version) {
  *version = 1130;
  return Answer(0);
}
EXPORTED Error cuFileHandleRegister(cufile::Handle* handle, cufile::Description* description) {
  if (const long error = Value("register_error"); error != 0) return Answer(error);
  if (description->type != cufile::kLinuxDescriptor || description->fs_ops != nullptr)
    return Answer(5022);
  // The real one wants O_DIRECT, too.
  const int flags = ::fcntl(description->fd, F_GETFL);
  if (flags < 0 || (flags & O_DIRECT) == 0) return Answer(cufile::kDirectNotSet);
  *handle = HandleOf(description->fd);
  ++Shim().handles;
  return Answer(0);
}
EXPORTED void cuFileHandleDeregister(cufile::Handle) { --Shim().handles; }
EXPORTED Error cuFileBufRegister(const void* base, size_t, int flags) {
  if (const long error = Value("buffer_error"); error != 0) return Answer(error);
  if (flags != 0 || reinterpret_cast<uintptr_t>(base) % 4096 != 0) return Answer(5022);
  ++Shim().buffers;
  return Answer(0);
}
EXPORTED Error cuFileBufDeregister(const void*) {
  --Shim().buffers;
  return Answer(0);
}

#ifndef SHIM_LACKS_READ
EXPORTED ssize_t cuFileRead(cufile::Handle handle, void* base, size_t bytes, off_t file_offset,
                            off_t base_offset) {
  const auto bits = reinterpret_cast<intptr_t>(handle);
  if (!Shim().opened || (bits & 0xFF) != 0xC5) return -5027;
  // What is not aligned would go through bounce buffers: the server never asks for it.
  char* const to = static_cast<char*>(base) + base_offset;
  if (bytes % 4096 != 0 || file_offset % 4096 != 0 || reinterpret_cast<uintptr_t>(to) % 4096 != 0)
    return -5022;
  const long n = ++Shim().reads, from = Value("fail_from"), most = Value("most_bytes");
  if (const long delay = Value("delay_us"); delay > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
  if (from > 0 && n >= from && n < from + Value("fail_count")) {
    // Half of it may be there already.
    if (!Put(to, std::vector<char>(bytes / 2, '\xEE').data(), bytes / 2)) return -1;
    errno = EIO;
    return Value("fail_with");
  }
  if (most > 0) bytes = std::min(bytes, static_cast<size_t>(most));
  size_t done = 0;
  const size_t room = (bytes + 4095) / 4096 * 4096;
  const std::unique_ptr<char, decltype(&std::free)> staging(
      static_cast<char*>(std::aligned_alloc(4096, room)), &std::free);
  while (done < bytes) {
    // With O_DIRECT whole pages are read; a limit in between is a short answer.
    const ssize_t got = ::pread(static_cast<int>(bits >> 8), staging.get() + done, room - done,
                                file_offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  if (Value("wrong_bytes") != 0 && done > 0)
    staging.get()[done / 2] = static_cast<char>(~staging.get()[done / 2]);
  if (!Put(to, staging.get(), std::min(done, bytes))) return -1;
  return static_cast<ssize_t>(std::min(done, bytes));
}
#endif

}  // extern "C"
