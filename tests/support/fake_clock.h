#pragma once

#include <atomic>

#include "gpu/base/clock.h"

namespace octavo::testing {

/// A clock that advances only on command. Thread-safe.
class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return {now_ns_, 1'700'000'000'000'000'000 + now_ns_}; }
  void Advance(double seconds) { now_ns_ += static_cast<int64_t>(seconds * 1e9); }

 private:
  std::atomic<int64_t> now_ns_{1};
};

}  // namespace octavo::testing
