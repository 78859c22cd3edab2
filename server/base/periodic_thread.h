#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace octavo::base {

/// A thread that does its work now and then: first after a pause, then after each pause again. It
/// ends, without waiting for the pause, when the object does. Declare it last among the members
/// that the work uses. An exception ends one turn, which the log tells, not the thread.
class PeriodicThread {
 public:
  /// `name`: of the thread, at most 15 characters.
  PeriodicThread(std::string name, std::chrono::milliseconds pause, std::function<void()> work);

 private:
  std::jthread thread_;
};

}  // namespace octavo::base
