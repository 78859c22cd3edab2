#include "server/storage/io/files.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/io/errno_status.h"

namespace octavo::storage {

absl::Status WriteAll(int fd, const std::string& path, const void* data, size_t bytes) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "writing", path);
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status WriteAllAt(int fd, const std::string& path, const void* data, size_t bytes,
                        int64_t offset) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, p, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "writing", path);
    p += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status ReadAllAt(int fd, const std::string& path, void* data, size_t bytes, int64_t offset) {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, p, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "reading", path);
    if (n == 0) return absl::DataLossError(absl::StrCat(path, " ends ", bytes, " bytes too early"));
    p += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status WriteNewFile(const std::string& path, const void* data, size_t bytes) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return ErrnoStatus(errno, "creating", path);
  OCTAVO_RETURN_IF_ERROR(WriteAll(fd.get(), path, data, bytes));
  if (::close(fd.release()) != 0) return ErrnoStatus(errno, "closing", path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(int fd, const std::string& path, size_t most) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "examining", path);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is no regular file"));
  // Do not trust the length: a sparse file of terabytes costs nothing to make.
  if (info.st_size > static_cast<int64_t>(most))
    return absl::DataLossError(
        absl::StrCat(path, " has ", info.st_size, " bytes; allowed at most ", most));
  std::string text(static_cast<size_t>(info.st_size), '\0');
  OCTAVO_RETURN_IF_ERROR(ReadAllAt(fd, path, text.data(), text.size(), 0));
  return text;
}

absl::Status SyncFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening", path);
  return ::fdatasync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "syncing", path);
}

absl::Status SyncDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening", path);
  // EINVAL: a file system that cannot sync directories keeps their entries by itself (some network
  // ones).
  return ::fsync(fd.get()) == 0 || errno == EINVAL ? absl::OkStatus()
                                                   : ErrnoStatus(errno, "syncing", path);
}

absl::Status MakeDirectory(const std::string& path) {
  return ::mkdir(path.c_str(), 0755) == 0 ? absl::OkStatus()
                                          : ErrnoStatus(errno, "creating directory", path);
}

absl::Status RenameNoReplace(const std::string& from, const std::string& to) {
  if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
    return absl::OkStatus();
  if (errno == EEXIST) {
    // Two names of one file: the fallback below was interrupted between its link and its unlink.
    struct stat a {
    }, b{};
    if (::lstat(from.c_str(), &a) == 0 && ::lstat(to.c_str(), &b) == 0 && S_ISREG(a.st_mode) &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
      return ::unlink(from.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "removing", from);
    }
    return ErrnoStatus(EEXIST, "renaming to", to);
  }
  if (errno != EINVAL && errno != ENOSYS) return ErrnoStatus(errno, "renaming to", to);
  // File systems without renameat2. A hard link does not replace a file either. Directories cannot
  // be linked, but renaming one onto a directory that was just created, and is therefore empty,
  // cannot replace another program's data.
  struct stat info {};
  if (::lstat(from.c_str(), &info) != 0) return ErrnoStatus(errno, "renaming", from);
  if (S_ISDIR(info.st_mode)) {
    OCTAVO_RETURN_IF_ERROR(MakeDirectory(to));
    if (::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    const int error = errno;
    ::rmdir(to.c_str());  // removes it only if it is still empty
    return ErrnoStatus(error, "renaming to", to);
  }
  if (::link(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "linking", to);
  return ::unlink(from.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "removing", from);
}

bool PathExists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}
std::string BaseOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string RealPath(const std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return "";
  std::string real = resolved;
  std::free(resolved);
  return real;
}

std::string DirectoryId(const std::string& path) {
  struct statx info {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &info) != 0) return "";
  const bool born = (info.stx_mask & STATX_BTIME) != 0;
  return born ? absl::StrCat(info.stx_ino, ".", info.stx_btime.tv_sec, ".", info.stx_btime.tv_nsec)
              : absl::StrCat(info.stx_ino);
}

bool IsInside(const std::string& path, const std::string& folder) {
  return folder == "/" ? absl::StartsWith(path, "/")
                       : absl::StartsWith(path, absl::StrCat(folder, "/"));
}

SpareDescriptors::Loan::Loan(SpareDescriptors* spare) : spare_(spare) {
  MutexLock lock(spare_->mutex_);
  ++spare_->loans_;
  spare_->set_aside_.clear();
}
SpareDescriptors::Loan::~Loan() {
  {
    MutexLock lock(spare_->mutex_);
    if (--spare_->loans_ > 0) return;
  }
  spare_->SetAside();
}

void SpareDescriptors::SetAside() {
  constexpr size_t kDescriptors = 12;  // one per level to remove a tree; Zarr's are the deepest
  MutexLock lock(mutex_);
  while (loans_ == 0 && set_aside_.size() < kDescriptors) {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd) return;  // keeps as many as it got; the next loan tries again
    set_aside_.push_back(std::move(fd));
  }
}

}  // namespace octavo::storage
