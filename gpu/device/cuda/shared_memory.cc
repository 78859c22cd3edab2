#include "gpu/device/cuda/shared_memory.h"

#include <cuda_runtime.h>
#include <fcntl.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/allocation_fault.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu::cuda {
namespace {

// The version of the driver API whose entry points the types below declare.
constexpr unsigned int kDriverApi = 12000;

template <class F>
bool Find(const char* name, F* out) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &entry, kDriverApi, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || entry == nullptr) {
    (void)cudaGetLastError();
    return false;
  }
  *out = reinterpret_cast<F>(entry);
  return true;
}

}  // namespace

absl::Status VirtualMemory::ToStatus(CUresult result, const char* call, int64_t bytes) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* text = nullptr;
  if (driver_.error_string(result, &text) != CUDA_SUCCESS || text == nullptr)
    text = "unknown error";
  const std::string what =
      absl::StrCat(call, " of ", bytes, " bytes: ", text, " (", static_cast<int>(result), ")");
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return WithInfo(absl::ResourceExhaustedError(what),
                    {.reason = Reason::kOutOfMemory,
                     .field = "",
                     .numbers = {{"wanted", absl::StrCat(bytes)}}});
  }
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED)
    return absl::UnimplementedError(what);
  return absl::InternalError(what);
}

CUmemAllocationProp VirtualMemory::Properties() const {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal_;
  return properties;
}

absl::StatusOr<std::shared_ptr<VirtualMemory>> VirtualMemory::Open(int ordinal,
                                                                   std::vector<int> peers) {
  std::shared_ptr<VirtualMemory> memory(new VirtualMemory(ordinal, std::move(peers)));
  Driver& driver = memory->driver_;
  const bool all = Find("cuMemGetAllocationGranularity", &driver.granularity) &&
                   Find("cuMemCreate", &driver.create) && Find("cuMemRelease", &driver.release) &&
                   Find("cuMemAddressReserve", &driver.reserve) &&
                   Find("cuMemAddressFree", &driver.free) && Find("cuMemMap", &driver.map) &&
                   Find("cuMemUnmap", &driver.unmap) &&
                   Find("cuMemSetAccess", &driver.set_access) &&
                   Find("cuMemExportToShareableHandle", &driver.export_handle) &&
                   Find("cuMemImportFromShareableHandle", &driver.import_handle) &&
                   Find("cuMemGetAllocationPropertiesFromHandle", &driver.properties) &&
                   Find("cuDeviceGetAttribute", &driver.attribute) &&
                   Find("cuGetErrorString", &driver.error_string);
  if (!all) return absl::UnimplementedError("the driver has no virtual memory management");
  // Runtime and driver use the same ordinals: both count the devices that CUDA_VISIBLE_DEVICES
  // leaves.
  int managed = 0, exportable = 0;
  if (driver.attribute(&managed, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                       ordinal) != CUDA_SUCCESS ||
      driver.attribute(&exportable, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                       ordinal) != CUDA_SUCCESS ||
      managed == 0 || exportable == 0) {
    return absl::UnimplementedError("the device's memory cannot be exported as file descriptors");
  }
  const CUmemAllocationProp properties = memory->Properties();
  OCTAVO_RETURN_IF_ERROR(memory->ToStatus(
      driver.granularity(&memory->granularity_, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      "cuMemGetAllocationGranularity", 0));
  if (memory->granularity_ == 0 || ClientMemory::kGranule % memory->granularity_ != 0) {
    return absl::UnimplementedError(absl::StrCat("the device's granule of ", memory->granularity_,
                                                 " bytes does not divide ours"));
  }
  return memory;
}

absl::StatusOr<DeviceBuffer> VirtualMemory::Allocate(const std::shared_ptr<VirtualMemory>& source,
                                                     int64_t bytes) {
  const Driver& driver = source->driver_;
  const size_t size = static_cast<size_t>(bytes);
  if (bytes <= 0 || size % source->granularity_ != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "asked for ", bytes, " bytes; allowed are multiples of ", source->granularity_));
  }
  if (AllocationFault::Hits())
    return source->ToStatus(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate (a test fails it)", bytes);
  const CUmemAllocationProp properties = source->Properties();
  CUmemGenericAllocationHandle handle = 0;
  OCTAVO_RETURN_IF_ERROR(
      source->ToStatus(driver.create(&handle, size, &properties, 0), "cuMemCreate", bytes));
  CUdeviceptr address = 0;
  bool reserved = false, mapped = false;
  int fd = -1;
  const absl::Status status = [&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(
        source->ToStatus(driver.reserve(&address, size, 0, 0, 0), "cuMemAddressReserve", bytes));
    reserved = true;
    OCTAVO_RETURN_IF_ERROR(
        source->ToStatus(driver.map(address, size, 0, handle, 0), "cuMemMap", bytes));
    mapped = true;
    OCTAVO_RETURN_IF_ERROR(
        source->ToStatus(source->Permit(address, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                         "cuMemSetAccess", bytes));
    // The descriptor is exported now and not on request, because this takes most of a millisecond.
    return source->ToStatus(
        driver.export_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle", bytes);
  }();
  // The mapping and the descriptor keep the memory alive.
  (void)driver.release(handle);
  if (!status.ok()) {
    if (mapped) (void)driver.unmap(address, size);
    if (reserved) (void)driver.free(address, size);
    return status;
  }
  void* data = reinterpret_cast<void*>(address);
  MutexLock lock(source->mutex_);
  source->blocks_[data] = {.fd = UniqueFd(fd), .id = RandomMemoryId(), .bytes = size};
  return DeviceBuffer(source, data, bytes);
}

CUresult VirtualMemory::Permit(CUdeviceptr address, size_t size, CUmemAccess_flags flags) const {
  std::vector<CUmemAccessDesc> access;
  for (const int device : peers_) {
    access.push_back(
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags});
  }
  access.push_back(
      {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal_}, .flags = flags});
  return driver_.set_access(address, size, access.data(), access.size());
}

absl::Status VirtualMemory::CheckLent(CUmemGenericAllocationHandle handle) const {
  CUmemAllocationProp properties = {};
  if (const CUresult result = driver_.properties(&properties, handle); result != CUDA_SUCCESS) {
    return WithInfo(ToStatus(result, "cuMemGetAllocationPropertiesFromHandle", 0),
                    {.reason = Reason::kImportKind, .field = "descriptor", .numbers = {}});
  }
  if (properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.location.id == ordinal_)
    return absl::OkStatus();
  return WithInfo(
      absl::InvalidArgumentError(absl::StrCat(
          "the descriptor is of memory of another place (type ",
          static_cast<int>(properties.location.type), ", number ", properties.location.id,
          "); allowed is memory of this GPU (number ", ordinal_, ")")),
      {.reason = Reason::kImportKind, .field = "descriptor", .numbers = {}});
}

absl::StatusOr<DeviceBuffer> VirtualMemory::Import(const std::shared_ptr<VirtualMemory>& source,
                                                   const UniqueFd& descriptor, int64_t bytes) {
  const Driver& driver = source->driver_;
  const size_t size = static_cast<size_t>(bytes);
  const auto refused = [&](Reason reason, const std::string& what) {
    return WithInfo(
        absl::InvalidArgumentError(what),
        {.reason = reason, .field = "descriptor", .numbers = {{"wanted", absl::StrCat(bytes)}}});
  };
  if (bytes <= 0 || size % source->granularity_ != 0) {
    return refused(
        Reason::kImportSize,
        absl::StrCat("byte_size: is ", bytes, "; allowed are multiples of ", source->granularity_));
  }
  if (::fcntl(descriptor.get(), F_GET_SEALS) >= 0) {
    return refused(Reason::kImportKind,
                   "the descriptor is a memory file of the host; allowed is memory of this GPU "
                   "(cuMemExportToShareableHandle)");
  }
  CUmemGenericAllocationHandle handle = 0;
  const CUresult imported = driver.import_handle(
      &handle, reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (imported != CUDA_SUCCESS) {
    return refused(
        Reason::kImportKind,
        absl::StrCat(
            "the descriptor is of no memory of a GPU: ",
            source->ToStatus(imported, "cuMemImportFromShareableHandle", bytes).message()));
  }
  CUdeviceptr address = 0;
  bool reserved = false, mapped = false;
  const absl::Status status = [&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(source->CheckLent(handle));
    OCTAVO_RETURN_IF_ERROR(
        source->ToStatus(driver.reserve(&address, size, 0, 0, 0), "cuMemAddressReserve", bytes));
    reserved = true;
    const CUresult result = driver.map(address, size, 0, handle, 0);
    // The driver alone knows the size of the allocation, and maps no other: NOT_SUPPORTED (H100).
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE) {
      return refused(Reason::kImportSize, absl::StrCat("the memory has not the ", bytes,
                                                       " bytes that were announced (byte_size)"));
    }
    OCTAVO_RETURN_IF_ERROR(source->ToStatus(result, "cuMemMap", bytes));
    mapped = true;
    return source->ToStatus(source->Permit(address, size, CU_MEM_ACCESS_FLAGS_PROT_READ),
                            "cuMemSetAccess", bytes);
  }();
  (void)driver.release(handle);  // the mapping keeps the memory alive
  if (!status.ok()) {
    if (mapped) (void)driver.unmap(address, size);
    if (reserved) (void)driver.free(address, size);
    return status;
  }
  return DeviceBuffer(source, reinterpret_cast<void*>(address), bytes);
}

absl::StatusOr<SharedMemory> VirtualMemory::Share(const DeviceBuffer& memory) {
  MutexLock lock(mutex_);
  const auto it = blocks_.find(memory.data());
  if (it == blocks_.end()) return absl::NotFoundError("this memory is not shareable");
  return SharedMemory{.id = it->second.id,
                      .fd = it->second.fd.get(),
                      .mapped_bytes = static_cast<int64_t>(it->second.bytes)};
}

void VirtualMemory::Release(void* data, int64_t bytes) {
  Block gone;
  {
    MutexLock lock(mutex_);
    if (const auto it = blocks_.find(data); it != blocks_.end()) {
      gone = std::move(it->second);
      blocks_.erase(it);
    }
  }
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  (void)driver_.unmap(address, static_cast<size_t>(bytes));
  (void)driver_.free(address, static_cast<size_t>(bytes));
}

}  // namespace octavo::inline gpu::cuda
