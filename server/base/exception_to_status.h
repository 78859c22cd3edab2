#pragma once

#include "absl/status/status.h"

namespace octavo::base {

/// Converts the exception being handled into a status for the caller: ResourceExhausted
/// (OUT_OF_MEMORY for lack of memory, NO_THREAD if no thread can start, NO_DESCRIPTORS), else
/// Internal. Throws nothing itself, however little memory is left. To be called in a catch clause.
absl::Status StatusOfException() noexcept;

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
