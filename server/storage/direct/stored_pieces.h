#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "server/storage/direct/data_file.h"

// What a box of an array in files consists of, for a reader that needs no host memory in the
// box's order (device_reader.h).
namespace octavo::storage {

/// A number for each axis of an array.
using Extents = absl::InlinedVector<int64_t, 4>;

/// How the bytes of an encoded piece become elements. Any thread.
class StoredDecoder {
 public:
  virtual ~StoredDecoder() = default;
  /// Writes the elements of the piece to `out`, packed in C order of the axes, in the array's byte
  /// order. DataLoss.
  virtual absl::Status Decode(absl::string_view encoded, char* out) const = 0;
};

/// A part of a box. Three kinds: plain elements in a range of a file; the same element everywhere
/// (no file); bytes of a file that are decoded first.
struct StoredPiece {
  std::shared_ptr<DataFile> file;  // null: `fill` is everywhere
  int64_t offset = 0, bytes = 0;   // of the range in the file
  Extents stride;                  // bytes between neighbours in the range; plain elements only
  Extents to, count;               // the place in the box, and the elements along each axis
  std::string fill;                // an element in the array's byte order
  std::shared_ptr<const StoredDecoder> decoder;  // null: plain elements, the first at `offset`
};

/// The parts of one box. Thread-safe.
class PieceSource {
 public:
  virtual ~PieceSource() = default;
  int64_t element_bytes() const { return element_bytes_; }
  bool big_endian() const { return big_endian_; }
  /// Most bytes of the elements of a piece that is decoded; 0: all are plain.
  int64_t most_decoded_bytes() const { return most_decoded_; }
  /// Units that are opened one by one, in this order: files.
  int64_t units() const { return units_; }
  /// Appends the parts of a unit. Opens its file.
  virtual absl::Status Open(int64_t unit, std::vector<StoredPiece>* out) const = 0;
  /// An error of reading or decoding as the input tells it.
  virtual absl::Status Told(const absl::Status& error) const { return error; }

 protected:
  int64_t element_bytes_ = 1, most_decoded_ = 0, units_ = 0;
  bool big_endian_ = false;
};

/// Bytes that the elements of plain pieces span.
int64_t SpanBytes(absl::Span<const int64_t> count, absl::Span<const int64_t> stride,
                  int64_t element_bytes);

/// Cuts a plain piece into pieces that span at most `most` bytes (not less than an element), and
/// leaves out long gaps between its elements. A fill is cut into parts of at most 2^30 elements.
/// Appends them, in the order of the file.
void CutPiece(const StoredPiece& piece, int64_t element_bytes, int64_t most,
              std::vector<StoredPiece>* out);

}  // namespace octavo::storage
