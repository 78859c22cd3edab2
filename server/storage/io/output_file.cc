#include "server/storage/io/output_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/storage/io/direct_alignment.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {

int64_t OutputFile::Alignment() {
  static const int64_t alignment = std::max<int64_t>(kDirectAlignment, ::sysconf(_SC_PAGESIZE));
  return alignment;
}

absl::StatusOr<OutputFile> OutputFile::OpenWith(std::string path, int flags, bool direct) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644));
  if (!fd) return ErrnoStatus(errno, (flags & O_CREAT) != 0 ? "creating" : "opening", path);
  return OutputFile(std::move(path), std::move(fd), direct);
}

absl::StatusOr<OutputFile> OutputFile::Create(std::string path, bool direct) {
  return OpenWith(std::move(path), O_CREAT | O_EXCL, direct);
}
absl::StatusOr<OutputFile> OutputFile::Open(std::string path, bool direct) {
  return OpenWith(std::move(path), 0, direct);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      direct_(other.direct_.load()),
      refused_(other.refused_.load()) {
  const MutexLock lock(other.mutex_);
  direct_fd_ = std::move(other.direct_fd_);
}

// The C library would emulate the reservation by writing zeros, hence the bare system call.
absl::StatusOr<bool> OutputFile::Reserve(int64_t bytes) {
  while (::fallocate(fd_.get(), 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return false;
    return ErrnoStatus(errno, absl::StrCat("reserving ", bytes, " bytes for"), path_);
  }
  return true;
}

absl::Status OutputFile::Truncate(int64_t bytes) {
  while (::ftruncate(fd_.get(), bytes) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "writing", path_);
  }
  return absl::OkStatus();
}

int OutputFile::DirectFd() {
  if (!direct_.load(std::memory_order_relaxed)) return -1;
  const MutexLock lock(mutex_);
  if (!direct_fd_ && direct_) {
    // By its descriptor: another file may have its name by now.
    direct_fd_ = UniqueFd(
        ::open(absl::StrCat("/proc/self/fd/", fd_.get()).c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
    if (!direct_fd_) {
      direct_ = false;
      // Anything else (no descriptor left) says nothing about other files.
      if (errno == EINVAL || errno == EOPNOTSUPP) refused_ = true;
    }
  }
  return direct_fd_.get();
}

absl::Status OutputFile::WriteAt(const char* data, int64_t bytes, int64_t offset) {
  const int64_t end = offset + bytes, first = RoundUp(offset, Alignment()),
                last = end / Alignment() * Alignment();
  const int fd = last > first ? DirectFd() : -1;
  if (fd < 0) return WriteBuffered(data, bytes, offset);
  OCTAVO_RETURN_IF_ERROR(WriteBuffered(data, first - offset, offset));
  OCTAVO_RETURN_IF_ERROR(WriteDirect(fd, data + (first - offset), last - first, first));
  return WriteBuffered(data + (last - offset), end - last, last);
}

absl::Status OutputFile::WriteDirect(int fd, const char* data, int64_t bytes, int64_t offset) {
  while (bytes > 0 && offset % kDirectAlignment == 0) {
    const ssize_t n = ::pwrite(fd, data, static_cast<size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
      direct_ = false;
      refused_ = true;
      break;
    }
    if (n < 0) return ErrnoStatus(errno, "writing", path_);
    if (n == 0) break;
    data += n, offset += n, bytes -= n;
  }
  return WriteBuffered(data, bytes, offset);  // after a short write the rest of a page, too
}

absl::Status OutputFile::WriteBuffered(const char* data, int64_t bytes, int64_t offset) {
  OCTAVO_RETURN_IF_ERROR(WriteAllAt(fd_.get(), path_, data, static_cast<size_t>(bytes), offset));
  // Starts writing it back without waiting. Only a hint; a sync makes the file durable.
  if (bytes >= kDirectAlignment)
    (void)::sync_file_range(fd_.get(), offset, bytes, SYNC_FILE_RANGE_WRITE);
  return absl::OkStatus();
}

absl::Status OutputFile::Close() {
  direct_ = false;
  {
    const MutexLock lock(mutex_);
    if (direct_fd_ && ::close(direct_fd_.release()) != 0)
      return ErrnoStatus(errno, "closing", path_);
  }
  if (fd_ && ::close(fd_.release()) != 0) return ErrnoStatus(errno, "closing", path_);
  return absl::OkStatus();
}

}  // namespace octavo::storage
