#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::model {

/// CRC-32C as in server/storage/io/crc32c.h, for folders that cannot include storage.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc);

}  // namespace octavo::model
