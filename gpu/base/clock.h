#pragma once

#include <chrono>
#include <cstdint>

namespace octavo::inline gpu {

/// Both clocks at one moment, in nanoseconds.
struct TimePoint {
  int64_t monotonic_ns = 0;
  int64_t unix_ns = 0;
};

/// Source of time, so that tests need not sleep. Any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint Now() const override {
    using std::chrono::duration_cast;
    using std::chrono::nanoseconds;
    return {
        duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(),
        duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
  }
};

}  // namespace octavo::inline gpu
