#pragma once

// Two threads that do one thing each at the same moment, again and again.

#include <atomic>
#include <functional>
#include <thread>

namespace octavo::engine::testing {

class Racers {
 public:
  Racers() : other_([this](const std::stop_token& stop) { Run(stop); }) {}
  ~Racers() {
    other_.request_stop();
    ++round_;
  }
  /// Returns when both are through.
  void Race(const std::function<void()>& mine, const std::function<void()>& others) {
    task_ = &others;
    const int round = ++round_;
    while (begun_ != round) std::this_thread::yield();
    go_ = round;
    mine();
    while (done_ != round) std::this_thread::yield();
  }

 private:
  void Run(const std::stop_token& stop) {
    for (int next = 1;; ++next) {
      while (round_ < next) std::this_thread::yield();
      if (stop.stop_requested()) return;
      begun_ = next;
      while (go_ != next) {
      }
      (*task_)();
      done_ = next;
    }
  }
  const std::function<void()>* task_ = nullptr;
  std::atomic<int> round_{0}, begun_{0}, go_{0}, done_{0};
  std::jthread other_;
};

}  // namespace octavo::engine::testing
