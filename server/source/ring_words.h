#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

// Access to words of memory that another process reads and writes concurrently.
namespace octavo::source {

template <class T>
T Load(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}
template <class T>
void Store(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_release);
}
template <class T>
void StoreInt(T& word, int64_t value) {
  Store(word, static_cast<T>(value));
}

// Between processes, so not FUTEX_PRIVATE.
inline void FutexWake(uint32_t& word) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
inline void FutexWait(uint32_t& word, uint32_t value, std::chrono::nanoseconds longest) {
  const timespec timeout{.tv_sec = static_cast<time_t>(longest.count() / 1'000'000'000),
                         .tv_nsec = static_cast<long>(longest.count() % 1'000'000'000)};
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

}  // namespace octavo::source
