#pragma once

// Two threads that each run one call at the same moment, repeatedly.

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "tests/support/rooms.h"

namespace octavo::engine::testing {

class Racers {
 public:
  Racers()
      : other_([this](const std::stop_token& stop) {
          for (;;) {
            barrier_.arrive_and_wait();
            if (stop.stop_requested()) return;
            (*task_)();
            barrier_.arrive_and_wait();
          }
        }) {}
  ~Racers() {
    other_.request_stop();
    barrier_.arrive_and_wait();
  }
  /// Returns when both calls have returned.
  void Race(const std::function<void()>& mine, const std::function<void()>& others) {
    task_ = &others;
    barrier_.arrive_and_wait();
    mine();
    barrier_.arrive_and_wait();
  }

 private:
  const std::function<void()>* task_ = nullptr;
  std::barrier<> barrier_{2};
  std::jthread other_;
};

/// Adjusts how long one of two racers waits at the start, so that both win about equally often
/// although their calls take different times.
class Handicap {
 public:
  /// Call after one or more races, with the number of wins of each racer.
  void Balance(int first, int second) {
    const int direction = (first > second ? 1 : 0) - (first < second ? 1 : 0);
    step_ns_ =
        direction == last_ ? std::min(2 * step_ns_, kMostNs) : std::max(step_ns_ / 2, kLeastNs);
    last_ = direction;
    lead_ns_ += direction * step_ns_;
  }
  void WaitFirst() const { Wait(lead_ns_); }
  void WaitSecond() const { Wait(-lead_ns_); }

 private:
  static constexpr int64_t kLeastNs = 50, kMostNs = 1'000'000;
  static void Wait(int64_t ns) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
    while (std::chrono::steady_clock::now() < end) continue;
  }

  int64_t lead_ns_ = 0, step_ns_ = 200;
  int last_ = 0;
};

}  // namespace octavo::engine::testing
