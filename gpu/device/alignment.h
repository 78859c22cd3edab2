#pragma once

#include <cstdint>

namespace octavo::inline gpu {

/// Tables and buffers that share one piece of device memory begin at multiples of this many bytes,
/// as allocations do.
inline constexpr int64_t kMemoryAlignment = 256;

/// `count` rounded up to a multiple of `step`.
constexpr int64_t RoundUp(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

/// The size that `bytes` take, with padding, when another table or buffer follows them.
constexpr int64_t AlignedBytes(int64_t bytes) { return RoundUp(bytes, kMemoryAlignment); }

}  // namespace octavo::inline gpu
