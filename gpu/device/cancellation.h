#pragma once

#include <functional>

#include "absl/status/status.h"

#include "gpu/base/status.h"
#include "gpu/device/stream.h"

namespace octavo::inline gpu {

/// Asked between pieces of long work, on the thread that does it: false = give up. Empty = never
/// asked.
using CancelCheck = std::function<bool()>;

/// Waits for the stream, so that what has been enqueued is no long work that is left, and asks.
/// Cancelled if the answer is no.
inline absl::Status CheckCancelled(StreamRef stream, const CancelCheck& goes_on) {
  if (!goes_on) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  return goes_on() ? absl::OkStatus() : absl::CancelledError("given up when asked");
}

}  // namespace octavo::inline gpu
