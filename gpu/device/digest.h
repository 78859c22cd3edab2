#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"

#include "gpu/math/digest.h"

namespace octavo::inline gpu {

/// Where the bytes of a part lie within the whole that is digested. The first `run_bytes` of the
/// part lie at `first_byte`, the next `run_bytes` lie `stride_bytes` farther, and so on. All three
/// are multiples of 8. run_bytes 0 means that the part is one run.
struct DigestPlace {
  int64_t first_byte = 0, run_bytes = 0, stride_bytes = 0;
};

/// InvalidArgument unless all three numbers are non-negative multiples of 8 and the runs do not
/// overlap.
absl::Status CheckPlace(const DigestPlace& place);

/// sum64: position-dependent sum over the little-endian 8-byte words of an array (the last one
/// zero-padded) of a mixed word, modulo 2^64. The sum is additive, so that parts can be digested in
/// any order and on any device: the digest of a whole is the sum of the digests of its parts, each
/// part starting at a multiple of 8 bytes. The digest detects changes; it is not cryptographic.
/// `first_byte` is the offset of `data` within the whole.
inline uint64_t DigestBytes(const void* data, int64_t bytes, int64_t first_byte) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t sum = 0;
  uint64_t word_index = static_cast<uint64_t>(first_byte) / 8;
  int64_t i = 0;
  for (; i + 8 <= bytes; i += 8, ++word_index) {
    uint64_t word;
    std::memcpy(&word, p + i, 8);
    sum += math::DigestWord(word, word_index);
  }
  if (i < bytes) {
    uint64_t word = 0;
    std::memcpy(&word, p + i, static_cast<size_t>(bytes - i));
    sum += math::DigestWord(word, word_index);
  }
  return sum;
}

}  // namespace octavo::inline gpu
