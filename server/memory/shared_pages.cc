#include "server/memory/shared_pages.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

// Available since Linux 5.1; older headers lack it.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace octavo::memory {
namespace {

absl::Status None(int64_t bytes, const char* call, int error) {
  return absl::ResourceExhaustedError(absl::StrCat("no shared memory of ", bytes, " bytes (", call,
                                                   ": ", std::strerror(error), ")"));
}

}  // namespace

absl::StatusOr<SharedPages> SharedPages::Create(const char* name, int64_t bytes) {
  return Allocate(name, bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

absl::StatusOr<SharedPages> SharedPages::CreateReadOnly(const char* name, int64_t bytes) {
  // The mapping here is made before the seal and stays writable.
  OCTAVO_ASSIGN_OR_RETURN(
      SharedPages memory,
      Allocate(name, bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
  UniqueFd read_only(
      ::open(absl::StrCat("/proc/self/fd/", memory.fd()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only) return None(bytes, "open", errno);
  memory.fd_ = std::move(read_only);
  return memory;
}

absl::StatusOr<SharedPages> SharedPages::Allocate(const char* name, int64_t bytes, int seals) {
  SharedPages memory;
  const auto failed = [bytes](const char* call, int error) { return None(bytes, call, error); };
  memory.fd_ = UniqueFd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_) return failed("memfd_create", errno);
  if (::ftruncate(memory.fd(), bytes) != 0) return failed("ftruncate", errno);
  if (const int error = ::posix_fallocate(memory.fd(), 0, bytes); error != 0)
    return failed("fallocate", error);
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, memory.fd(), 0);
  if (data == MAP_FAILED) return failed("mmap", errno);
  memory.data_ = static_cast<char*>(data);
  memory.bytes_ = bytes;
  if (::fcntl(memory.fd(), F_ADD_SEALS, seals) != 0) return failed("F_ADD_SEALS", errno);
  return memory;
}

void SharedPages::DropPages(int64_t from) const {
  // If it fails, the pages go when the last process unmaps them.
  if (from < bytes_)
    (void)::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, bytes_ - from);
}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedPages::~SharedPages() {
  if (data_ != nullptr) (void)::munmap(data_, static_cast<size_t>(bytes_));
}

}  // namespace octavo::memory
