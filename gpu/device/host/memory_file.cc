#include "gpu/device/host/memory_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/allocation_fault.h"
#include "gpu/base/descriptors.h"
#include "gpu/base/memory_limit.h"
#include "gpu/base/status.h"

// Available since Linux 5.1; older headers lack it.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace octavo::inline gpu::host {
absl::StatusOr<DeviceBuffer> MemoryFiles::Allocate(const std::shared_ptr<MemoryFiles>& source,
                                                   int64_t bytes) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("asked for ", bytes, " bytes"));
  const auto none = [&](const char* what) {
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat("the host has no ", bytes,
                                                              " bytes left to share (", what, ": ",
                                                              std::strerror(errno), ")")),
                    {.reason = Reason::kOutOfMemory,
                     .field = "",
                     .numbers = {{"wanted", absl::StrCat(bytes)}}});
  };
  errno = ENOMEM;
  if (AllocationFault::Hits()) return none("a test");
  // A memory file has no limit of its own: the kernel would take pages from other processes until
  // none are left.
  if (bytes > ReadMemoryLimit().available_bytes) return none("more than is free");
  const UniqueFd fd(::memfd_create("octavo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    return errno == ENOSYS ? absl::UnimplementedError("this kernel has no memfd_create")
                           : none("memfd_create");
  // The pages are allocated now, so that a full tmpfs is an error here and not a SIGBUS in the
  // middle of a scan.
  int allocated;
  do {
    allocated = ::fallocate(fd.get(), 0, 0, bytes);
  } while (allocated != 0 && errno == EINTR);
  if (allocated != 0) return none("fallocate");
  void* data =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return none("mmap");
  File file{.read_only = UniqueFd(
                ::open(absl::StrCat("/proc/self/fd/", fd.get()).c_str(), O_RDONLY | O_CLOEXEC)),
            .id = RandomMemoryId(),
            .bytes = bytes};
  // This mapping was made before the seal and stays writable; later mappings are not writable.
  if (!file.read_only ||
      ::fcntl(fd.get(), F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    const std::string why = std::strerror(errno);
    ::munmap(data, static_cast<size_t>(bytes));
    return absl::UnimplementedError(absl::StrCat("memory files cannot be sealed here: ", why));
  }
  if (!LeavesDescriptors(file.read_only.get())) {
    ::munmap(data, static_cast<size_t>(bytes));
    errno = EMFILE;
    return none("memory that can be shared takes a descriptor");
  }
  MutexLock lock(source->mutex_);
  source->files_[data] = std::move(file);
  return DeviceBuffer(source, data, bytes);
}

absl::StatusOr<SharedMemory> MemoryFiles::Share(const DeviceBuffer& memory) {
  MutexLock lock(mutex_);
  const auto it = files_.find(memory.data());
  if (it == files_.end()) return absl::NotFoundError("this memory is not shareable");
  return SharedMemory{
      .id = it->second.id, .fd = it->second.read_only.get(), .mapped_bytes = it->second.bytes};
}

void MemoryFiles::Release(void* data, int64_t bytes) {
  File gone;
  {
    MutexLock lock(mutex_);
    if (const auto it = files_.find(data); it != files_.end()) {
      gone = std::move(it->second);
      files_.erase(it);
    }
  }
  ::munmap(data, static_cast<size_t>(bytes));
}

}  // namespace octavo::inline gpu::host
