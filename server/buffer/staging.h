#pragma once

#include <cstdint>
#include <memory>

#include "server/buffer/stream_ordering.h"

namespace octavo::buffer {

/// Longer writes and reads are split.
inline constexpr int64_t kStagedWhole = 16 << 20;

/// Page-locked memory on its way to or from a device.
struct StagedPiece {
  std::shared_ptr<void> memory;
  SharedEvent event;  // has passed once the bytes are copied; null: they are
  int64_t bytes = 0;
};

}  // namespace octavo::buffer
