#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::storage {

enum class DeflateWrap { kGzip, kZlib };

/// Deflates blocks that lie in memory as a whole, by libdeflate: faster than zlib, to about the
/// same size. One thread at a time.
class BlockDeflater {
 public:
  BlockDeflater();
  ~BlockDeflater();
  /// Appends a gzip member or zlib stream of the block to `out`. `level`: 1 ... 9 (1 is taken
  /// as 2). ResourceExhausted: no memory.
  absl::Status Append(DeflateWrap wrap, int level, const void* data, size_t bytes,
                      std::string* out);

 private:
  struct Encoder;
  std::unique_ptr<Encoder> encoder_;  // of the last level
};

/// Whether `packed` is one gzip member or zlib stream, and nothing but it, of exactly `bytes` bytes
/// with the right checksum; then they are in `out`. By libdeflate, faster than zlib. No says
/// nothing of the reason, and some of `out` may be written: zlib decodes what is damaged, longer,
/// or of several members, and tells what is wrong.
bool InflateBlock(DeflateWrap wrap, absl::string_view packed, void* out, size_t bytes);

/// One gzip member or zlib stream made of pieces that are deflated in parallel (as pigz does): any
/// inflater reads it. One thread calls; pieces are worked on by all threads of the caller's oneTBB
/// arena.
class DeflateStream {
 public:
  using Wrap = DeflateWrap;
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
