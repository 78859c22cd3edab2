#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::storage {

/// CRC-32C (Castagnoli, RFC 3720) of `bytes`, continuing from `crc` (0 to begin). "123456789" gives
/// 0xE3069283. Uses SSE4.2 where the processor has it, else a table.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

/// Copies `bytes` and gives their CRC-32C, continuing from `crc`: each piece comes into the caches
/// once.
uint32_t CopyWithCrc32c(void* to, const void* from, size_t bytes, uint32_t crc = 0);

/// CRC of the concatenation of two parts from the CRCs of the parts and the second's length.
uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes);

namespace internal {
/// The table fallback of Crc32c, for tests to compare with.
uint32_t Crc32cTable(const void* data, size_t bytes, uint32_t crc);
}  // namespace internal

}  // namespace octavo::storage
