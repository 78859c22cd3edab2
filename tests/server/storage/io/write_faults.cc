#include "tests/server/storage/io/write_faults.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <dlfcn.h>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace octavo::storage::testing {

WriteFaults& Faults() {
  static WriteFaults faults;
  return faults;
}

void WriteFaults::Reset() {
  open_direct = write_direct = reserve = truncate = delay_ms = opened_direct = 0;
  most = direct = buffered = 0;
  room = -1;
  held = no_threads = false;
}

}  // namespace octavo::storage::testing

using octavo::storage::testing::Faults;

extern "C" int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list list;
    va_start(list, flags);
    mode = va_arg(list, mode_t);
    va_end(list);
  }
  if ((flags & O_DIRECT) != 0) {
    if (const int error = Faults().open_direct) {
      errno = error;
      return -1;
    }
    ++Faults().opened_direct;
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  const bool direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
  ++Faults().waiting;
  while (Faults().held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --Faults().waiting;
  if (const int delay = Faults().delay_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  if (const int error = direct ? Faults().write_direct.load() : 0) {
    errno = error;
    return -1;
  }
  if (const int64_t most = Faults().most) bytes = std::min(bytes, static_cast<size_t>(most));
  if (Faults().room >= 0) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    bytes = std::min(bytes, static_cast<size_t>(Faults().room));
    Faults().room -= static_cast<int64_t>(bytes);
    if (bytes == 0) {
      errno = ENOSPC;
      return -1;
    }
  }
  // A short count past the page cache is of whole sectors in the file, as from a drive: the rest of
  // the last one is written, and not told.
  const size_t whole = direct ? (bytes + 4095) / 4096 * 4096 : bytes;
  const ssize_t written = ::syscall(SYS_pwrite64, fd, data, whole, offset);
  if (written < 0) return written;
  (direct ? Faults().direct : Faults().buffered) += static_cast<int64_t>(bytes);
  return static_cast<ssize_t>(bytes);
}

extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (const int error = Faults().reserve) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}

extern "C" int ftruncate(int fd, off_t bytes) {
  if (const int error = Faults().truncate) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  if (Faults().no_threads) return EAGAIN;
  static const auto next =
      reinterpret_cast<decltype(&::pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}
