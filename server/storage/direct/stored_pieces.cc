#include "server/storage/direct/stored_pieces.h"

#include <algorithm>

namespace octavo::storage {
namespace {

/// Gaps are read with the elements around them unless the elements are this long a run …
constexpr int64_t kLongRun = 32 << 10;
/// … and the gap is this many times as long.
constexpr int64_t kSparse = 4;
constexpr int64_t kMostFilled = int64_t{1} << 30;

int64_t ElementsOf(const Extents& count) {
  int64_t elements = 1;
  for (const int64_t one : count) elements *= one;
  return elements;
}

/// The part of a piece with indices [first, first + count) along an axis.
StoredPiece Part(const StoredPiece& piece, size_t axis, int64_t first, int64_t count) {
  StoredPiece part = piece;
  if (part.file != nullptr) part.offset += first * piece.stride[axis];
  part.to[axis] += first;
  part.count[axis] = count;
  return part;
}

void CutFill(const StoredPiece& piece, std::vector<StoredPiece>* out) {
  if (ElementsOf(piece.count) <= kMostFilled) {
    out->push_back(piece);
    return;
  }
  const auto axis = static_cast<size_t>(std::max_element(piece.count.begin(), piece.count.end()) -
                                        piece.count.begin());
  const int64_t half = piece.count[axis] / 2;
  CutFill(Part(piece, axis, 0, half), out);
  CutFill(Part(piece, axis, half, piece.count[axis] - half), out);
}

}  // namespace

int64_t SpanBytes(absl::Span<const int64_t> count, absl::Span<const int64_t> stride,
                  int64_t element_bytes) {
  int64_t span = element_bytes;
  for (size_t d = 0; d < count.size(); ++d) span += (count[d] - 1) * stride[d];
  return span;
}

void CutPiece(const StoredPiece& piece, int64_t element_bytes, int64_t most,
              std::vector<StoredPiece>* out) {
  if (piece.file == nullptr) {
    CutFill(piece, out);
    return;
  }
  // The slowest axis in the file that has more than one element.
  size_t axis = piece.count.size();
  for (size_t d = 0; d < piece.count.size(); ++d) {
    if (piece.count[d] > 1 && (axis == piece.count.size() || piece.stride[d] > piece.stride[axis]))
      axis = d;
  }
  const int64_t span = SpanBytes(piece.count, piece.stride, element_bytes);
  if (axis == piece.count.size()) {
    out->push_back(piece);
    out->back().bytes = span;
    return;
  }
  const int64_t count = piece.count[axis], stride = piece.stride[axis],
                each = span - (count - 1) * stride;  // of one index
  const bool sparse = each >= kLongRun && stride > kSparse * each;
  if (span <= most && !sparse) {
    out->push_back(piece);
    out->back().bytes = span;
    return;
  }
  const int64_t fitting =
      sparse || each >= most ? 1 : std::clamp<int64_t>((most - each) / stride + 1, 1, count);
  // Parts of about one size.
  const int64_t parts = (count + fitting - 1) / fitting, together = (count + parts - 1) / parts;
  for (int64_t first = 0; first < count; first += together)
    CutPiece(Part(piece, axis, first, std::min(together, count - first)), element_bytes, most, out);
}

}  // namespace octavo::storage
