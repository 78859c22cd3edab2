#pragma once

#include "absl/status/status.h"

namespace octavo::base {

/// What the exception that is being handled means to whoever asked for the work: ResourceExhausted
/// (OUT_OF_MEMORY for want of memory, NO_THREAD where no thread can start, NO_DESCRIPTORS), else
/// Internal. Throws nothing itself, however little memory is left. To be called in a catch clause.
absl::Status StatusOfException() noexcept;

/// Does `work`, which answers with a Status or a StatusOr. What it throws becomes the answer, so
/// that whoever waits for the end of the work gets one.
template <class Work>
auto ExceptionToStatus(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    return StatusOfException();
  }
}

}  // namespace octavo::base
