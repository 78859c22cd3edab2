#include "server/storage/direct/data_file.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

/// cachestat(2), from Linux 6.5 on; the C library does not know it yet.
struct CacheRange {
  uint64_t offset, bytes;
};
struct CacheState {
  uint64_t cached, dirty, writeback, evicted, recently_evicted;
};
constexpr long kCachestat = 451;

/// Pages of the range in the page cache; -1 if the kernel does not say.
int64_t CachedPages(int fd, int64_t offset, int64_t bytes, int64_t page) {
  const CacheRange range{static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes)};
  CacheState state{};
  if (::syscall(kCachestat, fd, &range, &state, 0) == 0) return static_cast<int64_t>(state.cached);
  void* const map = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, fd, offset);
  if (map == MAP_FAILED) return -1;
  std::vector<unsigned char> resident(static_cast<size_t>((bytes + page - 1) / page));
  const bool asked = ::mincore(map, static_cast<size_t>(bytes), resident.data()) == 0;
  (void)::munmap(map, static_cast<size_t>(bytes));
  if (!asked) return -1;
  return std::count_if(resident.begin(), resident.end(),
                       [](unsigned char one) { return (one & 1) != 0; });
}

}  // namespace

absl::StatusOr<std::shared_ptr<DataFile>> DataFile::Of(UniqueFd fd, std::string name) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "examining", name);
  if (!S_ISREG(info.st_mode)) return DamagedFile(name, "the path", "is no regular file");
  const bool own = info.st_uid == ::geteuid() || ::geteuid() == 0;
  return std::shared_ptr<DataFile>(new DataFile(std::move(fd), std::move(name), info.st_size, own));
}

absl::StatusOr<std::shared_ptr<DataFile>> DataFile::OfCopy(int fd, std::string name) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return ErrnoStatus(errno, "opening", name);
  return Of(std::move(copy), std::move(name));
}

DataFile::~DataFile() {
  if (handle_ != nullptr) cufile_->Deregister(handle_);
}

absl::Status DataFile::ReadBuffered(int64_t offset, int64_t bytes, char* out) const {
  return ReadAllAt(fd_.get(), name_, out, static_cast<size_t>(bytes), offset);
}

int DataFile::DirectFd() {
  if (no_direct_.load(std::memory_order_relaxed)) return -1;
  const MutexLock lock(mutex_);
  if (!direct_ && !no_direct_) {
    // By its descriptor: another file may have its name by now.
    direct_ = UniqueFd(
        ::open(absl::StrCat("/proc/self/fd/", fd_.get()).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    if (!direct_) no_direct_ = true;
  }
  return direct_.get();
}

absl::Status DataFile::ReadDirect(int64_t offset, int64_t bytes, char* out) {
  const int fd = DirectFd();
  const int64_t begin = offset / kDirectAlignment * kDirectAlignment, end = offset + bytes;
  int64_t at = begin;  // bytes before it are there
  while (fd >= 0 && at < end) {
    // A short read may end anywhere: the next one begins at a multiple again.
    const int64_t from = at / kDirectAlignment * kDirectAlignment;
    const ssize_t n = ::pread(fd, out + (from - offset),
                              static_cast<size_t>(RoundUp(end, kDirectAlignment) - from), from);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) no_direct_ = true;
    if (n < 0 || from + n <= at) break;
    at = from + n;
  }
  if (at >= end) return absl::OkStatus();
  const int64_t missing = std::max(at, offset);
  return ReadBuffered(missing, end - missing, out + (missing - offset));
}

bool DataFile::IsCached(int64_t offset, int64_t bytes) const {
  // Of files of others the kernel calls every page cached.
  if (!own_ || bytes <= 0) return false;
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t begin = offset / page * page, end = std::min(size_, offset + bytes);
  if (end <= begin) return false;
  const int64_t pages = (end - begin + page - 1) / page;
  return CachedPages(fd_.get(), begin, end - begin, page) * 8 >= pages * 7;
}

void DataFile::WillNeed(int64_t offset, int64_t bytes) const {
  (void)::posix_fadvise(fd_.get(), offset, bytes, POSIX_FADV_WILLNEED);
}

absl::StatusOr<cufile::Handle> DataFile::CuFileHandle(const CuFile& cufile) {
  const int fd = DirectFd();
  if (fd < 0) return absl::UnavailableError(absl::StrCat(name_, " cannot be opened with O_DIRECT"));
  const MutexLock lock(mutex_);
  if (handle_ != nullptr) return handle_;
  if (!refused_.ok()) return refused_;
  auto handle = cufile.Register(fd);
  if (!handle.ok()) return refused_ = Annotate(handle.status(), name_);
  cufile_ = &cufile;
  handle_ = *handle;
  return handle_;
}

std::string PathOfOpen(int fd) {
  char path[PATH_MAX];
  const ssize_t n = ::readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path, sizeof path);
  return n <= 0 || path[0] != '/' ? "" : std::string(path, static_cast<size_t>(n));
}

}  // namespace octavo::storage
