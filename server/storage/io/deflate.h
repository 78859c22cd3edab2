#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::storage {

/// One gzip member or zlib stream made of pieces that are deflated in parallel (as pigz does): any
/// inflater reads it. One thread calls; pieces are worked on by all threads of the caller's oneTBB
/// arena.
class DeflateStream {
 public:
  enum class Wrap { kGzip, kZlib };
  /// `level`: 1 ... 9.
  DeflateStream(Wrap wrap, int level)
      : wrap_(wrap), level_(level), check_(wrap == Wrap::kZlib ? 1 : 0) {}

  /// The header of the stream.
  std::string Head() const;
  /// The compressed form of these bytes, in order.
  absl::StatusOr<std::vector<std::string>> Add(const void* data, int64_t bytes);
  /// The end of the stream.
  std::string Tail() const;

 private:
  const Wrap wrap_;
  const int level_;
  uint32_t check_;      // CRC-32 or Adler-32 so far
  uint64_t bytes_ = 0;  // so far, before compression
};

}  // namespace octavo::storage
