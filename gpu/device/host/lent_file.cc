#include "gpu/device/host/lent_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/allocation_fault.h"
#include "gpu/base/status.h"

// Available since Linux 5.1; older headers lack it.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace octavo::inline gpu::host {
namespace {

constexpr uint32_t kHugePages = 0x958458f6;  // HUGETLBFS_MAGIC of linux/magic.h

class Mappings final : public MemorySource {
 public:
  void Release(void* data, int64_t bytes) override { ::munmap(data, static_cast<size_t>(bytes)); }
};

absl::Status NotOfThisKind(const std::string& what) {
  return WithInfo(absl::InvalidArgumentError(
                      absl::StrCat(what,
                                   "; allowed is a memory file of memfd_create, opened to read "
                                   "and without MFD_HUGETLB")),
                  {.reason = Reason::kImportKind, .field = "descriptor", .numbers = {}});
}

absl::Status NotSealed(const std::string& missing, const std::string& why) {
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat("the memory file has no seal ", missing, ": ", why,
                                                 "; add it with fcntl(F_ADD_SEALS)")),
      {.reason = Reason::kImportNotSealed,
       .field = "descriptor",
       .numbers = {{"missing", missing}}});
}

absl::Status NotOfThisSize(const std::string& what, int64_t is, int64_t wanted) {
  return WithInfo(absl::InvalidArgumentError(what),
                  {.reason = Reason::kImportSize,
                   .field = "descriptor",
                   .numbers = {{"bytes", absl::StrCat(is)}, {"wanted", absl::StrCat(wanted)}}});
}

// The seals come first: of all calls on a file, this one alone does not ask its file system, which
// a client may run (FUSE) and may let us wait.
absl::Status Check(int fd, int64_t bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return NotOfThisKind("the descriptor is no memory file");
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0 || static_cast<uint32_t>(system.f_type) == kHugePages)
    return NotOfThisKind("the memory file has huge pages");
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
    return NotOfThisKind("the descriptor is open to write only");
  if ((seals & F_SEAL_SHRINK) == 0) {
    return NotSealed("F_SEAL_SHRINK",
                     "if it shrank, an access past its end would end this server (SIGBUS)");
  }
  if ((seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) == 0) {
    return NotSealed("F_SEAL_FUTURE_WRITE",
                     "a hole that is punched into it would be filled with memory of this server. "
                     "Mappings that were made before the seal stay writable");
  }
  struct stat about {};
  if (::fstat(fd, &about) != 0) return NotOfThisKind("the descriptor tells nothing of its file");
  if (about.st_size != bytes) {
    return NotOfThisSize(absl::StrCat("the memory file has ", about.st_size,
                                      " bytes; announced are ", bytes, " (byte_size)"),
                         about.st_size, bytes);
  }
  if (const int64_t filled = int64_t{512} * about.st_blocks; filled < bytes) {
    return NotOfThisSize(absl::StrCat("the memory file has holes: ", filled, " of its ", bytes,
                                      " bytes are allocated; fallocate it before it is sealed"),
                         filled, bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceBuffer> MapLentFile(const UniqueFd& descriptor, int64_t bytes) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("asked for ", bytes, " bytes"));
  OCTAVO_RETURN_IF_ERROR(Check(descriptor.get(), bytes));
  static const auto& mappings = *new std::shared_ptr<MemorySource>(std::make_shared<Mappings>());
  // Kernels before 6.7 take a shared mapping of a writable descriptor for one that writes, and
  // refuse it under F_SEAL_WRITE. If the file cannot be opened again (its mode, no descriptor
  // left), the descriptor itself has to do.
  const UniqueFd reader(
      ::open(absl::StrCat("/proc/self/fd/", descriptor.get()).c_str(), O_RDONLY | O_CLOEXEC));
  const int fd = reader ? reader.get() : descriptor.get();
  errno = ENOMEM;
  void* data = AllocationFault::Hits()
                   ? MAP_FAILED
                   : ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return WithInfo(
        absl::ResourceExhaustedError(absl::StrCat(
            "the memory file of ", bytes, " bytes cannot be mapped: ", std::strerror(errno))),
        {.reason = Reason::kOutOfMemory,
         .field = "",
         .numbers = {{"wanted", absl::StrCat(bytes)}}});
  }
  return DeviceBuffer(mappings, data, bytes);
}

}  // namespace octavo::inline gpu::host
