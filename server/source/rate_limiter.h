#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stop_token>

#include "gpu/base/mutex.h"

namespace octavo::source {

/// Paces records: they become due at a rate, counted from the first wait. Rate 0: always due.
class RateLimiter {
 public:
  explicit RateLimiter(double rate_hz) : rate_hz_(rate_hz) {}
  bool paced() const { return rate_hz_ > 0; }

  /// Waits until `records` records from the start are due. False if stopped before.
  bool WaitFor(int64_t records, std::stop_token stop) {
    if (!paced()) return !stop.stop_requested();
    const auto now = std::chrono::steady_clock::now();
    if (start_ == std::chrono::steady_clock::time_point{}) start_ = now;
    // At most 30 years, which the clock's integer still holds.
    const std::chrono::duration<double> after(
        std::min(static_cast<double>(records) / rate_hz_, 1e9));
    const auto due =
        start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(after);
    std::stop_callback wake(stop, [this] {
      MutexLock lock(mutex_);
      cv_.NotifyAll();
    });
    MutexLock lock(mutex_);
    for (auto left = due - std::chrono::steady_clock::now();
         left.count() > 0 && !stop.stop_requested();
         left = due - std::chrono::steady_clock::now()) {
      cv_.WaitFor(lock, left);
    }
    return !stop.stop_requested();
  }

 private:
  const double rate_hz_;
  std::chrono::steady_clock::time_point start_{};
  Mutex mutex_;
  CondVar cv_;
};

}  // namespace octavo::source
