#pragma once

// Encoders of the filters of hdf5_filters.h, bit by bit, for tests. They share no code with the
// decoders.

#include <algorithm>
#include <cstdint>
#include <lz4.h>
#include <string>
#include <zstd.h>

namespace octavo::storage::testing {

inline std::string BigEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}

inline std::string Lz4Block(const std::string& bytes) {
  std::string out(static_cast<size_t>(LZ4_compressBound(static_cast<int>(bytes.size()))), '\0');
  out.resize(static_cast<size_t>(LZ4_compress_default(
      bytes.data(), out.data(), static_cast<int>(bytes.size()), static_cast<int>(out.size()))));
  return out;
}

inline std::string ZstdBlock(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

/// The chunk of the filter 32004.
inline std::string Lz4Chunk(const std::string& bytes, size_t block) {
  std::string out = BigEndian(bytes.size(), 8) + BigEndian(block, 4);
  for (size_t at = 0; at < bytes.size(); at += block) {
    const std::string part = bytes.substr(at, block);
    const std::string packed = Lz4Block(part), &kept = packed.size() < part.size() ? packed : part;
    out += BigEndian(kept.size(), 4) + kept;
  }
  return out;
}

/// A block of whole groups of 8 elements, one bit after the other.
inline std::string TransposeBits(const std::string& bytes, size_t element) {
  const size_t count = bytes.size() / element;
  std::string out(bytes.size(), '\0');
  for (size_t i = 0; i < count; ++i) {
    for (size_t bit = 0; bit < 8 * element; ++bit) {
      const int set = bytes[i * element + bit / 8] >> (bit % 8) & 1;
      char& to = out[bit * (count / 8) + i / 8];
      to = static_cast<char>(to | set << (i % 8));
    }
  }
  return out;
}

/// The chunk of the filter 32008. `inside`: 0 nothing, 2 LZ4, 3 zstd; `block` elements.
inline std::string BitshuffleChunk(const std::string& bytes, size_t element, size_t block,
                                   int inside) {
  std::string out;
  if (inside != 0) out = BigEndian(bytes.size(), 8) + BigEndian(block * element, 4);
  const size_t whole = bytes.size() / element / 8 * 8;
  for (size_t at = 0; at < whole; at += block) {
    const std::string part =
        TransposeBits(bytes.substr(at * element, std::min(block, whole - at) * element), element);
    const std::string packed = inside == 2 ? Lz4Block(part) : inside == 3 ? ZstdBlock(part) : part;
    if (inside != 0) out += BigEndian(packed.size(), 4);
    out += packed;
  }
  return out + bytes.substr(whole * element);
}

}  // namespace octavo::storage::testing
