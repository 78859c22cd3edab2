// A stand-in for libcuda.so.1 (this library's soname): one device whose memory is a memory file. It
// enforces the call order of the real library and counts resources that the caller has not freed.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace {

enum : int { kOk = 0, kInvalidValue = 1, kInvalidContext = 201, kInvalidDevice = 101 };
constexpr size_t kGranule = 2 << 20;
std::mutex mutex;
std::map<uint64_t, int> handles;    // imported: descriptors
std::map<uint64_t, size_t> ranges;  // reserved
std::map<uint64_t, size_t> mapped;
uint64_t next_handle = 1;
bool started = false;
std::atomic<int> fail_access{0}, synchronized{0};
thread_local int depth = 0;

}  // namespace

extern "C" {

// For the test.
int fake_cuda_open() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(handles.size() + ranges.size() + mapped.size()) + depth;
}
int fake_cuda_mapped() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(mapped.size());
}
void fake_cuda_fail_access(int times) { fail_access = times; }
int fake_cuda_synchronized() { return synchronized; }

int cuInit(unsigned flags) {
  started = flags == 0;
  return started ? kOk : kInvalidValue;
}
int cuGetErrorString(int, const char** text) {
  *text = "what the driver says";
  return kOk;
}
int cuDeviceGetCount(int* count) {
  *count = started ? 2 : 0;
  return kOk;
}
int cuDeviceGetUuid_v2(unsigned char* bytes, int device) {
  if (device < 0 || device > 1) return kInvalidDevice;
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<unsigned char>(0xa0 * device + i);
  return kOk;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  static int contexts[2];
  *context = &contexts[device];
  return kOk;
}
int cuCtxPushCurrent_v2(void*) { return ++depth > 0 ? kOk : kInvalidContext; }
int cuCtxPopCurrent_v2(void**) { return depth-- > 0 ? kOk : kInvalidContext; }
int cuCtxSynchronize() {
  if (depth == 0) return kInvalidContext;
  ++synchronized;
  return kOk;
}
int cuMemImportFromShareableHandle(uint64_t* handle, void* descriptor, int type) {
  if (depth == 0) return kInvalidContext;
  const int fd = ::dup(static_cast<int>(reinterpret_cast<uintptr_t>(descriptor)));
  if (type != 1 || fd < 0) return kInvalidValue;
  const std::lock_guard lock(mutex);
  handles[*handle = next_handle++] = fd;
  return kOk;
}
int cuMemRelease(uint64_t handle) {
  const std::lock_guard lock(mutex);
  const auto it = handles.find(handle);
  if (it == handles.end()) return kInvalidValue;
  ::close(it->second);
  handles.erase(it);
  return kOk;
}
int cuMemAddressReserve(uint64_t* address, size_t size, size_t, uint64_t, uint64_t) {
  if (depth == 0 || size % kGranule != 0) return kInvalidValue;
  void* range = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *address = reinterpret_cast<uintptr_t>(range);
  const std::lock_guard lock(mutex);
  ranges[*address] = size;
  return kOk;
}
int cuMemAddressFree(uint64_t address, size_t size) {
  const std::lock_guard lock(mutex);
  const auto it = ranges.find(address);
  if (it == ranges.end() || it->second != size || mapped.count(address) > 0) return kInvalidValue;
  ranges.erase(it);
  return ::munmap(reinterpret_cast<void*>(address), size) == 0 ? kOk : kInvalidValue;
}
int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t) {
  const std::lock_guard lock(mutex);
  if (ranges.count(address) == 0 || handles.count(handle) == 0) return kInvalidValue;
  // The caller must not read it before it has set its access.
  if (::mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED,
             handles[handle], static_cast<off_t>(offset)) == MAP_FAILED) {
    return kInvalidValue;
  }
  mapped[address] = size;
  return kOk;
}
int cuMemUnmap(uint64_t address, size_t size) {
  const std::lock_guard lock(mutex);
  const auto it = mapped.find(address);
  if (it == mapped.end() || it->second != size) return kInvalidValue;
  mapped.erase(it);
  return kOk;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  if (depth == 0) return kInvalidContext;
  std::memcpy(to, reinterpret_cast<const void*>(from), size);
  return kOk;
}
struct Access {
  int type, id, flags;
};
int cuMemSetAccess(uint64_t address, size_t size, const Access* access, size_t count) {
  if (fail_access > 0 && fail_access-- > 0) return kInvalidValue;
  if (count != 1 || access->type != 1 || access->id != 1 || access->flags != 1)
    return kInvalidValue;
  return ::mprotect(reinterpret_cast<void*>(address), size, PROT_READ) == 0 ? kOk : kInvalidValue;
}
}
