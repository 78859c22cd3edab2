// Tests preload this library into octavod. From the moment the file $HANG_FSYNC_WHEN
// exists, fsync never returns.

#include <cstdlib>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

void HangIfTold() {
  const char* when = std::getenv("HANG_FSYNC_WHEN");
  while (when != nullptr && ::access(when, F_OK) == 0) ::usleep(100'000);
}

}  // namespace

extern "C" int fsync(int fd) {
  HangIfTold();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int fdatasync(int fd) {
  HangIfTold();
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
