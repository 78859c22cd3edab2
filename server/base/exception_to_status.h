#pragma once

#include <chrono>
#include <thread>

#include "absl/status/status.h"

namespace octavo::base {

/// Converts the exception being handled into a status for the caller: ResourceExhausted
/// (OUT_OF_MEMORY for lack of memory, NO_THREAD if no thread can start, NO_DESCRIPTORS), else
/// Internal. Throws nothing itself, however little memory is left. To be called in a catch clause.
absl::Status StatusOfException() noexcept;

/// Logs the exception being handled: what was being done, and the status of StatusOfException.
/// Throws nothing; where there is no memory even to log, nothing is logged. To be called in a catch
/// clause.
void LogException(const char* what) noexcept;

/// Runs one turn of a thread that works until the server ends. An exception, such as for lack of
/// memory, is logged, and the thread pauses and goes on with its next turn. Whether there was none.
template <class Turn>
bool GuardedTurn(const char* what, Turn&& turn) noexcept {
  try {
    turn();
    return true;
  } catch (...) {
    LogException(what);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return false;
  }
}

/// Runs `work`, which returns a Status or a StatusOr. An exception becomes that status, so that
/// every waiter for the end of the work gets an answer.
template <class Work>
auto ExceptionToStatus(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    return StatusOfException();
  }
}

}  // namespace octavo::base
