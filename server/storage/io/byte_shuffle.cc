#include "server/storage/io/byte_shuffle.h"

namespace octavo::storage {
namespace {

// With a size that the compiler knows, it makes vector code; kBytes 0: any size.
template <int64_t kBytes>
void Shuffle(const char* __restrict in, int64_t count, int64_t element_bytes,
             char* __restrict out) {
  const int64_t size = kBytes > 0 ? kBytes : element_bytes;
  for (int64_t byte = 0; byte < size; ++byte) {
    char* const to = out + byte * count;
    for (int64_t i = 0; i < count; ++i) to[i] = in[i * size + byte];
  }
}

template <int64_t kBytes>
void Unshuffle(const char* __restrict in, int64_t count, int64_t element_bytes,
               char* __restrict out) {
  const int64_t size = kBytes > 0 ? kBytes : element_bytes;
  if constexpr (kBytes > 0) {  // whole elements at a time, so that `out` is written once
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t byte = 0; byte < kBytes; ++byte) out[i * kBytes + byte] = in[byte * count + i];
    }
  } else {
    for (int64_t byte = 0; byte < size; ++byte) {
      for (int64_t i = 0; i < count; ++i) out[i * size + byte] = in[byte * count + i];
    }
  }
}

}  // namespace

void ShuffleBytes(const char* in, int64_t count, int64_t element_bytes, char* out) {
  switch (element_bytes) {
    case 2: return Shuffle<2>(in, count, 2, out);
    case 4: return Shuffle<4>(in, count, 4, out);
    case 8: return Shuffle<8>(in, count, 8, out);
    default: return Shuffle<0>(in, count, element_bytes, out);
  }
}

void UnshuffleBytes(const char* in, int64_t count, int64_t element_bytes, char* out) {
  switch (element_bytes) {
    case 2: return Unshuffle<2>(in, count, 2, out);
    case 4: return Unshuffle<4>(in, count, 4, out);
    case 8: return Unshuffle<8>(in, count, 8, out);
    default: return Unshuffle<0>(in, count, element_bytes, out);
  }
}

}  // namespace octavo::storage
