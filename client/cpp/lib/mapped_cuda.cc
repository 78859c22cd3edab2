// Memory of a GPU through the driver, which is loaded at run time, because programs that map host
// memory need no driver. The types below are those of cuda.h, which this library does not include.
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>

#include "client/cpp/lib/mapped_memory.h"

namespace octavo::client {
namespace {

using Result = int;
using Device = int;
using Context = void*;
using Handle = unsigned long long;
using Pointer = unsigned long long;
struct Uuid {
  unsigned char bytes[16];
};
struct Location {
  int type, id;
};
struct AccessOf {
  Location where;
  int flags;
};
constexpr int
    kPosixDescriptor = 1,
    kOnDevice = 1,
    kRead =
        1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE, ..._PROT_READ

std::string HexOf(const std::string& uuid) {
  std::string hex;
  for (const char c : uuid.substr(uuid.rfind("GPU-", 0) == 0 ? 4 : 0)) {
    if (c != '-') hex += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return hex;
}

std::string HexOf(const Uuid& uuid) {
  std::string hex;
  for (const unsigned char byte : uuid.bytes) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

/// The driver calls in use.
class Driver {
 public:
  /// The process' one; it stays loaded.
  static Driver& Get() {
    static std::mutex mutex;
    static Driver* driver = nullptr;
    const std::lock_guard lock(mutex);
    if (driver == nullptr)
      driver = new Driver();  // throws if there is none; the next call tries again
    return *driver;
  }

  void Check(Result result, const char* call) const {
    if (result == 0) return;
    const char* text = nullptr;
    (void)error_string_(result, &text);
    throw Refusal(Code::kFailedPrecondition, "CUDA",
                  std::string(call) + ": " + (text != nullptr ? text : "?") + " (" +
                      std::to_string(result) + ")");
  }

  /// Finds the device by its UUID, because ordinals depend on CUDA_VISIBLE_DEVICES.
  Device Find(const std::string& uuid) const {
    int count = 0;
    Check(device_count_(&count), "cuDeviceGetCount");
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      Uuid found{};
      Check(device_uuid_(&found, ordinal), "cuDeviceGetUuid");
      if (HexOf(found) == HexOf(uuid)) return ordinal;
    }
    throw Refusal(
        Code::kFailedPrecondition, "CUDA",
        "this process sees no device " + uuid + "; is it hidden by CUDA_VISIBLE_DEVICES?");
  }

  /// Makes the device's primary context, which the CUDA runtime uses, current on this thread while
  /// the object lives.
  class Entered {
   public:
    Entered(Driver& driver, Device device) : driver_(driver) {
      driver_.Check(driver_.push_(driver_.Primary(device)), "cuCtxPushCurrent");
    }
    ~Entered() {
      Context ignored = nullptr;
      (void)driver_.pop_(&ignored);
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Driver& driver_;
  };

  Result (*import_)(Handle*, void*, int) = nullptr;
  Result (*release_)(Handle) = nullptr;
  Result (*reserve_)(Pointer*, size_t, size_t, Pointer, unsigned long long) = nullptr;
  Result (*free_)(Pointer, size_t) = nullptr;
  Result (*map_)(Pointer, size_t, size_t, Handle, unsigned long long) = nullptr;
  Result (*unmap_)(Pointer, size_t) = nullptr;
  Result (*set_access_)(Pointer, size_t, const AccessOf*, size_t) = nullptr;
  Result (*synchronize_)() = nullptr;
  Result (*copy_to_host_)(void*, Pointer, size_t) = nullptr;

 private:
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      const char* why = ::dlerror();
      throw Refusal(Code::kFailedPrecondition, "CUDA",
                    std::string("this is memory of a GPU, and libcuda cannot be loaded: ") +
                        (why != nullptr ? why : "?"));
    }
    Result (*init)(unsigned) = nullptr;
    Load(init, "cuInit");
    Load(error_string_, "cuGetErrorString");
    Load(device_count_, "cuDeviceGetCount");
    Load(device_uuid_, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
    Load(retain_, "cuDevicePrimaryCtxRetain");
    Load(push_, "cuCtxPushCurrent_v2");
    Load(pop_, "cuCtxPopCurrent_v2");
    Load(import_, "cuMemImportFromShareableHandle");
    Load(release_, "cuMemRelease");
    Load(reserve_, "cuMemAddressReserve");
    Load(free_, "cuMemAddressFree");
    Load(map_, "cuMemMap");
    Load(unmap_, "cuMemUnmap");
    Load(set_access_, "cuMemSetAccess");
    Load(synchronize_, "cuCtxSynchronize");
    Load(copy_to_host_, "cuMemcpyDtoH_v2");
    Check(init(0), "cuInit");
  }

  template <class Function>
  void Load(Function& function, const char* name, const char* older = nullptr) {
    void* found = ::dlsym(library_, name);
    if (found == nullptr && older != nullptr) found = ::dlsym(library_, older);
    if (found == nullptr)
      throw Refusal(Code::kFailedPrecondition, "CUDA",
                    std::string("the driver is too old: it has no ") + name);
    function = reinterpret_cast<Function>(found);
  }

  Context Primary(Device device) {
    const std::lock_guard lock(mutex_);
    Context& context = contexts_[device];
    if (context == nullptr) Check(retain_(&context, device), "cuDevicePrimaryCtxRetain");
    return context;
  }

  void* const library_;
  Result (*error_string_)(Result, const char**) = nullptr;
  Result (*device_count_)(int*) = nullptr;
  Result (*device_uuid_)(Uuid*, Device) = nullptr;
  Result (*retain_)(Context*, Device) = nullptr;
  Result (*push_)(Context) = nullptr;
  Result (*pop_)(Context*) = nullptr;
  std::mutex mutex_;
  std::map<Device, Context> contexts_;  // guarded by mutex_; kept
};

class CudaMemory final : public MappedMemory {
 public:
  CudaMemory(int fd, int64_t bytes, const std::string& uuid)
      : driver_(Driver::Get()), device_(driver_.Find(uuid)), bytes_(static_cast<size_t>(bytes)) {
    const Driver::Entered entered(driver_, device_);
    Handle handle = 0;
    // The driver's addresses are integers. NOLINTNEXTLINE(performance-no-int-to-ptr)
    driver_.Check(driver_.import_(&handle, reinterpret_cast<void*>(static_cast<uintptr_t>(fd)),
                                  kPosixDescriptor),
                  "cuMemImportFromShareableHandle");
    bool mapped = false;
    try {
      driver_.Check(driver_.reserve_(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve");
      driver_.Check(driver_.map_(address_, bytes_, 0, handle, 0), "cuMemMap");
      mapped = true;
      const AccessOf access{.where = {.type = kOnDevice, .id = device_}, .flags = kRead};
      driver_.Check(driver_.set_access_(address_, bytes_, &access, 1), "cuMemSetAccess");
    } catch (...) {
      if (mapped) (void)driver_.unmap_(address_, bytes_);
      if (address_ != 0) (void)driver_.free_(address_, bytes_);
      (void)driver_.release_(handle);
      throw;
    }
    (void)driver_.release_(handle);  // the mapping keeps the memory
  }
  ~CudaMemory() override {
    try {
      const Driver::Entered entered(driver_, device_);
      (void)driver_.synchronize_();
      (void)driver_.unmap_(address_, bytes_);
      (void)driver_.free_(address_, bytes_);
    } catch (const Error&) {  // the context and the mapping are gone
    }
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  // The driver's addresses are integers. NOLINTNEXTLINE(performance-no-int-to-ptr)
  const void* address() const override {
    return reinterpret_cast<const void*>(static_cast<uintptr_t>(address_));
  }
  int device() const override { return device_; }
  void Synchronize() override {
    const Driver::Entered entered(driver_, device_);
    driver_.Check(driver_.synchronize_(), "cuCtxSynchronize");
  }
  void Read(const void* from, void* to, size_t bytes) override {
    const Driver::Entered entered(driver_, device_);
    driver_.Check(driver_.copy_to_host_(to, reinterpret_cast<uintptr_t>(from), bytes),
                  "cuMemcpyDtoH");
  }

 private:
  Driver& driver_;
  const Device device_;
  const size_t bytes_;
  Pointer address_ = 0;
};

}  // namespace

std::shared_ptr<MappedMemory> MapCuda(int fd, int64_t bytes, const std::string& device_uuid) {
  return std::make_shared<CudaMemory>(fd, bytes, device_uuid);
}

}  // namespace octavo::client
