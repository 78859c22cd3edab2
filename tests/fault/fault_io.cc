// Tests preload this library into octavod. It lets calls on files below a folder fail, as a full,
// broken or read-only disk would, from the moment that the file $FAULT_IO_RULES says so. Each line
// of that file, which tests replace as a whole, is a rule:
//
//   <calls> <path prefix> <errno> <skip> <times>
//
// <calls>: of open (to write), write, sync, rename, mkdir, joined by commas. The first <skip>
// matching calls work; the next <times> fail (0 = all). $FAULT_IO_LOG gets a line for each call
// that failed, "<call> <errno> <inode> <path>", and for each sync that worked, with errno 0.

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

struct Rule {
  std::string calls, prefix;
  int error = 0;
  int64_t skip = 0, times = 0;
};

std::mutex mutex;
std::vector<Rule> rules;
struct stat read_as {};

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void ReadRules() {
  const char* const path = std::getenv("FAULT_IO_RULES");
  struct stat now {};
  if (path == nullptr || ::stat(path, &now) != 0) {
    rules.clear();
    read_as = {};
    return;
  }
  if (now.st_ino == read_as.st_ino && now.st_mtim.tv_sec == read_as.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == read_as.st_mtim.tv_nsec)
    return;
  read_as = now;
  rules.clear();
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return;
  char calls[64], prefix[PATH_MAX];
  Rule rule;
  while (std::fscanf(file, "%63s %4095s %d %ld %ld", calls, prefix, &rule.error, &rule.skip,
                     &rule.times) == 5) {
    rule.calls = std::string(",") + calls + ",";
    rule.prefix = prefix;
    rules.push_back(rule);
  }
  std::fclose(file);
}

void Log(const char* call, int error, uint64_t inode, const std::string& path) {
  const char* const name = std::getenv("FAULT_IO_LOG");
  if (name == nullptr) return;
  const int fd =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND, 0600));
  if (fd < 0) return;
  const std::string line = std::string(call) + " " + std::to_string(error) + " " +
                           std::to_string(inode) + " " + path + "\n";
  (void)::syscall(SYS_write, fd, line.data(), line.size());
  ::close(fd);
}

/// The errno that a call on this path fails with, or 0.
int ErrorOf(const char* call, const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex);
  ReadRules();
  for (Rule& rule : rules) {
    if (path.compare(0, rule.prefix.size(), rule.prefix) != 0 ||
        rule.calls.find(std::string(",") + call + ",") == std::string::npos)
      continue;
    if (rule.skip > 0) {
      --rule.skip;
      continue;
    }
    if (rule.times < 0) continue;  // it is used up
    if (rule.times > 0 && --rule.times == 0) rule.times = -1;
    return rule.error;
  }
  return 0;
}

std::string PathOf(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t bytes = ::readlink(link, path, sizeof path);
  return bytes > 0 ? std::string(path, static_cast<size_t>(bytes)) : std::string();
}

/// Also of a path that begins with /proc/self/fd: octavod writes below folders that it has open.
std::string PathAt(int folder, const char* path) {
  std::string whole = path;
  if (path[0] != '/' && folder != AT_FDCWD) whole = PathOf(folder) + "/" + path;
  const size_t slash = whole.rfind('/');
  char parent[PATH_MAX];
  if (::realpath(slash == std::string::npos ? "." : whole.substr(0, slash + 1).c_str(), parent) ==
      nullptr)
    return whole;
  return std::string(parent) + "/" + whole.substr(slash == std::string::npos ? 0 : slash + 1);
}

/// Whether the call fails; sets errno. Keeps errno otherwise.
bool Fails(const char* call, const std::string& path, uint64_t inode = 0) {
  const int before = errno;
  const int error = ErrorOf(call, path);
  if (error != 0) Log(call, error, inode, path);
  errno = error != 0 ? error : before;
  return error != 0;
}

bool FailsOn(const char* call, int fd) {
  const int before = errno;
  struct stat info {};
  const bool file = ::fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode));
  errno = before;
  return file && Fails(call, PathOf(fd), info.st_ino);
}

int Sync(int fd, long number) {
  if (FailsOn("sync", fd)) return -1;
  const int result = static_cast<int>(::syscall(number, fd));
  const int error = errno;
  struct stat info {};
  if (result == 0 && ::fstat(fd, &info) == 0) Log("sync", 0, info.st_ino, PathOf(fd));
  errno = error;
  return result;
}

bool Writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0; }

}  // namespace

extern "C" {

int fsync(int fd) { return Sync(fd, SYS_fsync); }
int fdatasync(int fd) { return Sync(fd, SYS_fdatasync); }

ssize_t write(int fd, const void* data, size_t bytes) {
  return FailsOn("write", fd) ? -1 : ::syscall(SYS_write, fd, data, bytes);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  return FailsOn("write", fd) ? -1 : ::syscall(SYS_pwrite64, fd, data, bytes, at);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t at) {
  return pwrite(fd, data, bytes, at);
}
int ftruncate(int fd, off_t bytes) {
  return FailsOn("write", fd) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}
int ftruncate64(int fd, off64_t bytes) { return ftruncate(fd, bytes); }
int fallocate(int fd, int mode, off_t at, off_t bytes) {
  return FailsOn("write", fd) ? -1
                              : static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, bytes));
}
int posix_fallocate(int fd, off_t at, off_t bytes) {  // gives the error, does not set errno
  const int before = errno;
  if (FailsOn("write", fd)) return std::exchange(errno, before);
  return Next<int (*)(int, off_t, off_t)>("posix_fallocate")(fd, at, bytes);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (Writes(flags) && Fails("open", PathAt(folder, path))) return -1;
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return openat(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int rename(const char* from, const char* to) {
  if (Fails("rename", PathAt(AT_FDCWD, to))) return -1;
  return static_cast<int>(::syscall(SYS_rename, from, to));
}
int mkdir(const char* path, mode_t mode) {
  return Fails("mkdir", PathAt(AT_FDCWD, path))
             ? -1
             : static_cast<int>(::syscall(SYS_mkdir, path, mode));
}
int mkdirat(int folder, const char* path, mode_t mode) {
  return Fails("mkdir", PathAt(folder, path))
             ? -1
             : static_cast<int>(::syscall(SYS_mkdirat, folder, path, mode));
}

// octavod calls renameat2 and openat2 this way.
long syscall(long number, ...) {
  va_list more;
  va_start(more, number);
  long a[6];
  for (long& one : a) one = va_arg(more, long);
  va_end(more);
  static const auto next = Next<long (*)(long, ...)>("syscall");
  if (number == SYS_renameat2 &&
      Fails("rename", PathAt(static_cast<int>(a[2]), reinterpret_cast<const char*>(a[3]))))
    return -1;
  // The first field of open_how are the flags.
  if (number == SYS_openat2 && Writes(static_cast<int>(*reinterpret_cast<const uint64_t*>(a[2]))) &&
      Fails("open", PathAt(static_cast<int>(a[0]), reinterpret_cast<const char*>(a[1]))))
    return -1;
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
