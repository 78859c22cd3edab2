#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace octavo::cli {

constexpr int kInterrupted = 130;  // exit code, as shells have it

/// While it lives, SIGINT, SIGTERM and SIGHUP (the terminal is gone) do not end the program: the
/// first signal calls `act` on a separate thread, so that the program can end its work on the
/// server. A second signal ends the program at once. Only one object at a time.
class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void()> act);
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

  bool came() const { return came_; }

 private:
  void Wait();

  const std::function<void()> act_;
  std::atomic<bool> came_{false}, over_{false};
  void (*before_int_)(int);
  void (*before_term_)(int);
  void (*before_hup_)(int);
  std::thread thread_;
};

}  // namespace octavo::cli
