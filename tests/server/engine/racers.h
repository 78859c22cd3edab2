#pragma once

// Two threads that do one thing each at the same moment, again and again.

#include <barrier>
#include <functional>
#include <thread>

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
  /// Returns when both are through.
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

}  // namespace octavo::engine::testing
