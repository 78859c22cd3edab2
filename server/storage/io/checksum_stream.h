#pragma once

#include <cstdint>

namespace octavo::storage {

/// CRC-32C and sum64 (gpu/device/digest.h) of a stream of bytes that comes in pieces of any length.
/// One thread calls; a piece is worked on by all threads of the caller's oneTBB arena.
class ChecksumStream {
 public:
  void Add(const void* data, int64_t bytes);
  int64_t bytes() const { return at_ + held_; }
  uint32_t Crc() const { return crc_; }
  uint64_t Sum() const;

 private:
  uint32_t crc_ = 0;
  uint64_t sum_ = 0;           // of the whole words so far
  int64_t at_ = 0, held_ = 0;  // bytes in whole words; bytes of the word left open, in word_
  char word_[8] = {};
};

}  // namespace octavo::storage
