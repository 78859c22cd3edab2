#pragma once

#include <cstdint>

// How chunks are compressed. The codecs are in codec.h; this header stays small because everything
// that has writer options includes it.
namespace octavo::storage {

enum class Codec : uint8_t {
  kDefault = 0,
  kZstd = 1,
  kGzip = 2,
  kBloscZstd = 3,
  kBloscLz4 = 4
};  // values equal those of octavo.v1.Codec, which has NONE besides
enum class Shuffle : uint8_t {
  kDefault = 0,
  kNone = 1,
  kByte = 2,
  kBit = 3
};  // values equal octavo.v1.Shuffle

}  // namespace octavo::storage
