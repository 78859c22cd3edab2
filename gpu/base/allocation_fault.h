#pragma once

#include <atomic>
#include <cstdint>

namespace octavo::inline gpu {

/// Lets tests fail the n-th allocation of device or page-locked memory from now, on whatever
/// backend; a single atomic load otherwise.
class AllocationFault {
 public:
  /// `n` >= 1: the n-th one fails, once. 0: none.
  static void Arm(int64_t n) { Countdown() = n; }
  /// Whether the armed failure has not happened yet.
  static bool Pending() { return Countdown() > 0; }
  /// Every allocation of every backend calls it.
  static bool Hits() {
    std::atomic<int64_t>& left = Countdown();
    return left.load(std::memory_order_relaxed) > 0 && --left == 0;
  }

 private:
  static std::atomic<int64_t>& Countdown() {
    static std::atomic<int64_t> countdown{0};
    return countdown;
  }
};

}  // namespace octavo::inline gpu
