#include "server/model/checksum.h"

#include "server/storage/io/crc32c.h"

namespace octavo::model {

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  return storage::Crc32c(data, bytes, crc);
}

}  // namespace octavo::model
