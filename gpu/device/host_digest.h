#pragma once

#include <cstdint>

namespace octavo::inline gpu {

/// DigestBytes (gpu/device/digest.h) with the widest vectors of this processor: at the speed of
/// memory where they multiply 64-bit numbers (AVX-512), else one and a half times as fast.
uint64_t HostDigest(const void* data, int64_t bytes, int64_t first_byte);

}  // namespace octavo::inline gpu
