#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/storage/zarr/number_filter.h"
#include "server/storage/zarr/scratch_memory.h"

namespace octavo::storage {

/// A codec from bytes to bytes that the reader decodes: one of a Zarr v3 chain, or a compressor or
/// filter of v2. Their data contain all other parameters.
struct ByteCodec {
  enum class Kind : uint8_t {
    kGzip,     // one member or several
    kZlib,     // one zlib stream
    kZstd,     // one frame or several, with or without their size
    kBlosc,    // a frame of libblosc 1, with any of its compressors
    kLz4,      // numcodecs: the length as 4 little-endian bytes, then a block
    kCrc32c,   // a CRC-32C, little-endian, behind the data
    kShuffle,  // numcodecs: the first bytes of all elements, then the second ones, …
    kNumbers   // a filter of numbers
  };
  Kind kind = Kind::kZstd;
  int64_t element_bytes = 1;  // of kShuffle
  bool lax = false;           // kGzip, kZlib: bytes behind the end are left out, as HDF5 does
  NumberFilter filter;        // of kNumbers

  /// Its name in messages.
  const char* Name() const;
  /// Whether the length of the encoded data depends only on that of the decoded data.
  bool HasFixedSize() const { return kind >= Kind::kCrc32c; }
  /// The encoded bytes of `decoded` bytes; for codecs without a fixed size a bound that no encoder
  /// exceeds. -1 if data of this length cannot be encoded.
  int64_t EncodedBytes(int64_t decoded) const;
};

/// The decoder of one thread. It keeps its contexts between chunks. All errors of damaged data are
/// DataLoss and begin with "damaged chunk: "; no input makes it write beyond the given size.
class ByteDecoder {
 public:
  ByteDecoder();
  ~ByteDecoder();
  ByteDecoder(const ByteDecoder&) = delete;

  /// Decodes to exactly `bytes` bytes at `out`, from all of `encoded`.
  absl::Status Decode(const ByteCodec& codec, absl::string_view encoded, char* out, int64_t bytes);
  /// Decodes data whose length is not known, at most `most` bytes. The result is in `memory`, which
  /// grows with the data, not with `most`; for kCrc32c it is a part of `encoded`.
  absl::StatusOr<absl::string_view> DecodeUpTo(const ByteCodec& codec, absl::string_view encoded,
                                               int64_t most, ScratchMemory* memory);

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace octavo::storage
