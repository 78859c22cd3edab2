// Tests preload this library into octavod. It moves the clock of the day (CLOCK_REALTIME) by as
// many seconds as stand in the file $CLOCK_JUMP_FILE (8 bytes, int64), from one moment to the next,
// as a user or a time server would. The monotonic clock stays as it is.

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

// How long a wait until a time of the day may go on before it is looked whether the clock jumped.
constexpr int64_t kSliceNs = 20'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;
// Times of the monotonic clock are less: seconds since the machine started.
constexpr time_t kDayClock = 1'000'000'000;

int64_t Offset() {
  static const volatile int64_t* const seconds = [] {
    const char* const path = std::getenv("CLOCK_JUMP_FILE");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return static_cast<const int64_t*>(nullptr);
    void* const mapped = ::mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return mapped == MAP_FAILED ? nullptr : static_cast<const int64_t*>(mapped);
  }();
  return seconds == nullptr ? 0 : *seconds;
}

timespec Real(clockid_t clock) {
  timespec now{};
  ::syscall(SYS_clock_gettime, clock, &now);
  return now;
}

int64_t Ns(const timespec& time) { return time.tv_sec * kNsPerSecond + time.tv_nsec; }
timespec Time(int64_t ns) { return {.tv_sec = ns / kNsPerSecond, .tv_nsec = ns % kNsPerSecond}; }

/// How long it is until a time of the moved clock, at most a slice.
int64_t Slice(const timespec& until) {
  const int64_t left = Ns(until) - Ns(Real(CLOCK_REALTIME)) - Offset() * kNsPerSecond;
  return left < kSliceNs ? left : kSliceNs;
}

template <typename Function>
Function Next(const char* name, const char* version = nullptr) {
  return reinterpret_cast<Function>(version != nullptr ? ::dlvsym(RTLD_NEXT, name, version)
                                                       : ::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += Offset();
  return result;
}

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
  const timespec real = Real(CLOCK_REALTIME);
  now->tv_sec = real.tv_sec + Offset();
  now->tv_usec = real.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* now) noexcept {
  const time_t moved = Real(CLOCK_REALTIME).tv_sec + Offset();
  if (now != nullptr) *now = moved;
  return moved;
}

// Waiters for a time of the day wake up at the end of each slice, which they may (spuriously).
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static const auto next = Next<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)>(
      "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (until->tv_sec < kDayClock) return next(condition, mutex, until);
  const int64_t slice = Slice(*until);
  if (slice <= 0) return ETIMEDOUT;
  const timespec end = Time(Ns(Real(CLOCK_REALTIME)) + slice);
  const int result = next(condition, mutex, &end);
  return result == ETIMEDOUT && Slice(*until) > 0 ? 0 : result;
}

// Abseil waits this way.
long syscall(long number, ...) noexcept {
  va_list more;
  va_start(more, number);
  long a[6];
  for (long& one : a) one = va_arg(more, long);
  va_end(more);
  static const auto next = Next<long (*)(long, ...)>("syscall");
  const auto* const until = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 || until == nullptr)
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  const int64_t slice = Slice(*until);
  if (slice <= 0) {
    errno = ETIMEDOUT;
    return -1;
  }
  const timespec end = Time(Ns(Real(CLOCK_REALTIME)) + slice);
  const long result = next(number, a[0], a[1], a[2], &end, a[4], a[5]);
  if (result != 0 && errno == ETIMEDOUT && Slice(*until) > 0) errno = EINTR;
  return result;
}

}  // extern "C"
