#include "gpu/array/scatter.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

#include "gpu/device/scalar.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;

/// Makes axes whose elements follow one another in slab and array one axis.
void MergeAxes(ScatterPiece* piece) {
  struct Axis {
    int64_t count, from, to;
  } kept[3];  // from the last axis on
  int axes = 0;
  for (int d = 2; d >= 0; --d) {
    if (piece->count[d] == 1) continue;
    Axis* const inner = axes > 0 ? &kept[axes - 1] : nullptr;
    if (inner != nullptr && piece->from_stride[d] == inner->from * inner->count &&
        piece->to_stride[d] == inner->to * inner->count) {
      inner->count *= piece->count[d];
    } else {
      kept[axes++] = {piece->count[d], piece->from_stride[d], piece->to_stride[d]};
    }
  }
  for (int i = 0; i < 3; ++i) {
    const Axis axis = i < axes ? kept[i] : Axis{1, 0, 0};
    piece->count[2 - i] = axis.count;
    piece->from_stride[2 - i] = axis.from;
    piece->to_stride[2 - i] = axis.to;
  }
}

/// Copies several neighbouring elements at once, where all addresses allow it.
void Widen(ScatterPiece* piece) {
  if (piece->from_stride[2] != piece->unit || piece->to_stride[2] != piece->unit) return;
  while (piece->unit < 16 && piece->count[2] % 2 == 0) {
    const int64_t wider = piece->unit * 2;
    bool fits = piece->from % wider == 0 && piece->to % wider == 0;
    for (int d = 0; d < 2; ++d)
      fits = fits && piece->from_stride[d] % wider == 0 && piece->to_stride[d] % wider == 0;
    if (!fits) return;
    piece->unit = static_cast<int32_t>(wider);
    piece->count[2] /= 2;
    piece->from_stride[2] = piece->to_stride[2] = wider;
  }
}

}  // namespace

absl::StatusOr<int64_t> PrepareScatter(const ScatterSpec& spec, absl::Span<ScatterPiece> pieces) {
  const int64_t size = SizeOf(spec.from);
  if (size == 0 || spec.from == Scalar::kC32 || SizeOf(spec.to) == 0 ||
      (IsComplex(spec.from) && spec.to != DType::kC64))
    return absl::InvalidArgumentError(
        absl::StrCat("elements ", NameOf(spec.from), " cannot become ", Info(spec.to).name,
                     "; allowed are real numbers of all types, and complex ones to c64"));
  const bool copied = ScalarOf(spec.to) == spec.from && spec.scale == 1 && spec.shift == 0;
  const int64_t number = IsComplex(spec.from) ? size / 2 : size;
  int64_t blocks = 0;
  for (ScatterPiece& piece : pieces) {
    int64_t elements = 1;
    for (const int64_t count : piece.count) {
      if (count < 1 || count > kMostElements / elements)
        return absl::InvalidArgumentError(absl::StrCat("a piece of ", piece.count[0], " x ",
                                                       piece.count[1], " x ", piece.count[2],
                                                       " elements; allowed 1 to ", kMostElements));
      elements *= count;
    }
    piece.number = spec.swap_bytes ? static_cast<int32_t>(number) : 1;
    piece.unit = copied ? static_cast<int32_t>(size) : 0;
    MergeAxes(&piece);
    if (copied) Widen(&piece);
    piece.first_block = blocks;
    elements = piece.count[0] * piece.count[1] * piece.count[2];
    blocks += (elements + kScatterBlock - 1) / kScatterBlock;
  }
  return blocks;
}

}  // namespace octavo::inline gpu
