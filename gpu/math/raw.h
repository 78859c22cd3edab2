#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

// The layout of raw samples in memory, shared by all backends.
namespace octavo::inline gpu::math {

/// How the samples of a record are packed. Two packed samples of 12 bits take three bytes, without
/// gaps. A record of an odd number of samples ends with a byte of which half is unused, so that
/// every record starts at a byte.
enum class Packing : uint8_t {
  kNone,        // one element of the raw type a sample
  kLowFirst12,  // GenICam Mono12p: bytes s0[7:0], s1[3:0] s0[11:8], s1[11:4]
  kHighFirst12  // GigE Vision Mono12Packed: bytes s0[11:4], s1[3:0] s0[3:0], s1[11:4]
};

/// Bytes of `samples` samples; a sample that is not packed takes `element_bytes`.
OCTAVO_HOST_DEVICE inline int64_t PackedBytes(Packing packing, int64_t samples,
                                              int64_t element_bytes) {
  return packing == Packing::kNone ? samples * element_bytes : (samples * 3 + 1) / 2;
}

/// Sample of a packed pair: `word` holds the pair's bytes, the first one lowest; `odd` chooses the
/// second sample.
OCTAVO_HOST_DEVICE inline uint32_t Unpack12(Packing packing, uint32_t word, bool odd) {
  if (odd) return word >> 12 & 0xFFFu;  // the same in both packings
  return packing == Packing::kLowFirst12 ? word & 0xFFFu
                                         : (word << 4 & 0xFF0u) | (word >> 8 & 0xFu);
}

/// Sample `i` of a packed record.
OCTAVO_HOST_DEVICE inline uint32_t ReadPacked12(Packing packing, const uint8_t* record, int64_t i) {
  const uint8_t* pair = record + i / 2 * 3;
  const bool odd = (i & 1) != 0;
  // The last pair of an odd number of samples has only two bytes.
  return Unpack12(packing,
                  pair[0] | static_cast<uint32_t>(pair[1]) << 8 |
                      (odd ? static_cast<uint32_t>(pair[2]) << 16 : 0u),
                  odd);
}

/// Writes sample `i` of a packed record. The bits of the sample must be 0 before.
inline void WritePacked12(Packing packing, uint8_t* record, int64_t i, uint32_t value) {
  uint8_t* pair = record + i / 2 * 3;
  if ((i & 1) != 0) {
    pair[1] = static_cast<uint8_t>(pair[1] | (value & 0xFu) << 4);
    pair[2] = static_cast<uint8_t>(value >> 4);
  } else if (packing == Packing::kLowFirst12) {
    pair[0] = static_cast<uint8_t>(value & 0xFFu);
    pair[1] = static_cast<uint8_t>(pair[1] | (value >> 8 & 0xFu));
  } else {
    pair[0] = static_cast<uint8_t>(value >> 4);
    pair[1] = static_cast<uint8_t>(pair[1] | (value & 0xFu));
  }
}

}  // namespace octavo::inline gpu::math
