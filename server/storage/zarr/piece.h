#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/storage/zarr/box.h"
#include "server/storage/zarr/chain.h"

namespace octavo::storage {

/// What happens to a chunk that is not there.
enum class MissingChunk : uint8_t { kFill, kDamage };

/// A part of a box that comes from one place: a range of a file, or the fill value. A reader that
/// does not need the host's memory takes raw ranges as they are and the others through Decode.
struct ZarrPiece {
  enum class Form : uint8_t {
    kFill,       // no bytes: the array's fill value
    kRaw,        // the elements of the whole chunk, as they are, with the strides of `chain`
    kRawCrc32c,  // the same, then 4 bytes: their CRC-32C, little-endian
    kEncoded     // to be decoded
  };
  Form form = Form::kFill;
  std::string file;                  // below the array's folder
  int64_t offset = 0, bytes = 0;     // of the range in the file
  AxisValues from;                   // its first element in the chunk …
  AxisValues to;                     // … and in the box
  AxisValues count;                  // its elements along each axis
  const ZarrChain* chain = nullptr;  // of the reader that made the piece; null for kFill

  /// kRaw, kRawCrc32c: the place of the first element in the range, and the bytes that the piece
  /// spans from there.
  int64_t RawBegin() const { return OffsetOf(from, chain->stride); }
  int64_t RawSpan(int64_t element_bytes) const;
};

/// Bytes that hold a chunk or a shard.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  virtual absl::Status Read(int64_t offset, int64_t bytes, char* out) const = 0;
};

/// The pieces of a chunk, or of a shard's chunks, that lie in `window` (whose form, range and chain
/// are not used). `offset`, `bytes`: the range of the chunk in `source`. DataLoss: the range cannot
/// be such a chunk; an entry of a shard's index leads outside; an inner chunk is missing and
/// `missing` is kDamage.
absl::Status AppendPieces(const ZarrChain& chain, const ChunkSource& source, int64_t offset,
                          int64_t bytes, const ZarrPiece& window, MissingChunk missing,
                          std::vector<ZarrPiece>* out);

/// Decodes pieces; for one thread.
class PieceDecoder {
 public:
  /// Writes the piece, whose whole range is `bytes`, to the box at `out` with these strides
  /// (bytes). kFill takes no bytes. DataLoss.
  absl::Status Decode(const ZarrPiece& piece, absl::string_view bytes, const std::string& fill,
                      MissingChunk missing, char* out, absl::Span<const int64_t> stride);
  /// Memory for the caller.
  ScratchMemory* encoded() { return &encoded_; }
  /// Frees memory beyond what chunks of usual sizes need.
  void Shrink();

 private:
  absl::Status DecodeShard(const ZarrPiece& piece, absl::string_view shard, const std::string& fill,
                           MissingChunk missing, char* out, absl::Span<const int64_t> stride);

  ByteDecoder decoder_;
  ScratchMemory encoded_, parts_[2], chunk_;
};

}  // namespace octavo::storage
