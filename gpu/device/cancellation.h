#pragma once

#include <functional>

#include "absl/status/status.h"

#include "gpu/base/status.h"
#include "gpu/device/stream.h"

namespace octavo::inline gpu {

/// Long work calls this between its pieces, on the thread that does the work. False means give up.
/// An empty function is never called.
using CancelCheck = std::function<bool()>;

/// Waits for the stream, so that no enqueued work is left to delay a cancellation, and then calls
/// `goes_on`. Returns Cancelled if the answer is false.
inline absl::Status CheckCancelled(StreamRef stream, const CancelCheck& goes_on) {
  if (!goes_on) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  return goes_on() ? absl::OkStatus() : absl::CancelledError("given up when asked");
}

}  // namespace octavo::inline gpu
