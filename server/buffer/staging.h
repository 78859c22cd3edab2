#pragma once

#include <cstdint>

namespace octavo::buffer {

/// Longer writes and reads are split.
inline constexpr int64_t kStagedWhole = 16 << 20;

}  // namespace octavo::buffer
