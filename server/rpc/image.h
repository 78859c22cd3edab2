#pragma once

#include "absl/status/statusor.h"
#include "server/engine/frame.h"

namespace octavo::rpc {

/// An image frame as an 8-bit grey PNG, display levels mapped to black and white; NaN is black. Milliseconds of work.
absl::StatusOr<engine::Bytes> EncodePng(const engine::Frame& frame);

}  // namespace octavo::rpc
