#pragma once

// Private to ops*.cc.

#include <cstdint>

namespace octavo {

/// Where the next of several tables or buffers in one piece of memory may begin.
constexpr int64_t AlignedBytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace octavo
