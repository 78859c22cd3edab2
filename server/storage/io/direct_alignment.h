#pragma once

#include <cstdint>

namespace octavo::storage {

/// File offsets and memory addresses of direct I/O are multiples of it. No drive needs more.
inline constexpr int64_t kDirectAlignment = 4096;

}  // namespace octavo::storage
