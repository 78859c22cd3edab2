#include "gpu/array/scatter.h"

#include <algorithm>
#include <cstring>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/device/scalar.h"
#include "gpu/math/stored_element.h"

namespace octavo::inline gpu::host {
namespace {

using math::Half;

/// A run of elements along the last axis.
struct Row {
  const char* from;
  char* to;
  int64_t count, from_stride, to_stride;
};
using RowFunction = void (*)(const Row&, const ScatterSpec&);

template <int kUnit>
void CopyRow(const Row& row, int number) {
  const char* from = row.from;
  char* to = row.to;
  for (int64_t i = 0; i < row.count; ++i, from += row.from_stride, to += row.to_stride)
    math::CopyUnit(from, to, kUnit, number);
}

void CopyUnits(const Row& row, int unit, int number) {
  if (number == 1 && row.from_stride == unit && row.to_stride == unit) {
    std::memcpy(row.to, row.from, static_cast<size_t>(row.count * unit));
    return;
  }
  switch (unit) {
    case 1: return CopyRow<1>(row, number);
    case 2: return CopyRow<2>(row, number);
    case 4: return CopyRow<4>(row, number);
    case 8: return CopyRow<8>(row, number);
    default: return CopyRow<16>(row, number);
  }
}

template <class From, class To>
void ConvertRow(const Row& row, const ScatterSpec& spec) {
  const char* from = row.from;
  char* to = row.to;
  for (int64_t i = 0; i < row.count; ++i, from += row.from_stride, to += row.to_stride) {
    const auto value = math::ValueOf<double>(math::LoadNumber<From>(from, spec.swap_bytes));
    math::StoreStored(to, math::RoundedTo<To>(math::Scaled(value, spec.scale, spec.shift)));
  }
}
/// Real numbers have no imaginary part.
template <class From>
void ToComplexRow(const Row& row, const ScatterSpec& spec) {
  const char* from = row.from;
  char* to = row.to;
  for (int64_t i = 0; i < row.count; ++i, from += row.from_stride, to += row.to_stride) {
    const auto value = math::ValueOf<double>(math::LoadNumber<From>(from, spec.swap_bytes));
    math::StoreStored(to, static_cast<float>(math::Scaled(value, spec.scale, spec.shift)));
    math::StoreStored(to + 4, 0.0f);
  }
}
template <class Part>
void ComplexRow(const Row& row, const ScatterSpec& spec) {
  const char* from = row.from;
  char* to = row.to;
  for (int64_t i = 0; i < row.count; ++i, from += row.from_stride, to += row.to_stride) {
    const double re = math::LoadNumber<Part>(from, spec.swap_bytes),
                 im = math::LoadNumber<Part>(from + sizeof(Part), spec.swap_bytes);
    math::StoreStored(to, static_cast<float>(math::Scaled(re, spec.scale, spec.shift)));
    math::StoreStored(to + 4, static_cast<float>(math::Scaled(im, spec.scale, 0)));
  }
}

template <class From>
RowFunction RowFrom(DType to) {
  switch (to) {
    case DType::kU8: return ConvertRow<From, uint8_t>;
    case DType::kI8: return ConvertRow<From, int8_t>;
    case DType::kU16: return ConvertRow<From, uint16_t>;
    case DType::kI16: return ConvertRow<From, int16_t>;
    case DType::kF16: return ConvertRow<From, Half>;
    case DType::kF32: return ConvertRow<From, float>;
    case DType::kF64: return ConvertRow<From, double>;
    case DType::kC64: return ToComplexRow<From>;
  }
  return nullptr;
}
RowFunction RowOf(const ScatterSpec& spec) {
  switch (spec.from) {
    case Scalar::kU8: return RowFrom<uint8_t>(spec.to);
    case Scalar::kI8: return RowFrom<int8_t>(spec.to);
    case Scalar::kU16: return RowFrom<uint16_t>(spec.to);
    case Scalar::kI16: return RowFrom<int16_t>(spec.to);
    case Scalar::kU32: return RowFrom<uint32_t>(spec.to);
    case Scalar::kI32: return RowFrom<int32_t>(spec.to);
    case Scalar::kU64: return RowFrom<uint64_t>(spec.to);
    case Scalar::kI64: return RowFrom<int64_t>(spec.to);
    case Scalar::kF16: return RowFrom<Half>(spec.to);
    case Scalar::kF32: return RowFrom<float>(spec.to);
    case Scalar::kF64: return RowFrom<double>(spec.to);
    case Scalar::kC64: return ComplexRow<float>;
    case Scalar::kC128: return ComplexRow<double>;
    case Scalar::kC32: break;
  }
  return nullptr;
}

/// Elements [first, end) of a piece, in the order of the array.
void ScatterPart(const ScatterSpec& spec, RowFunction convert, const char* slab,
                 const ScatterPiece& piece, int64_t first, int64_t end, char* out) {
  const int64_t n2 = piece.count[2], n1 = piece.count[1];
  while (first < end) {
    const int64_t c = first % n2, row_number = first / n2, b = row_number % n1, a = row_number / n1;
    const Row row{.from = slab + piece.from + a * piece.from_stride[0] + b * piece.from_stride[1] +
                          c * piece.from_stride[2],
                  .to = out + piece.to + a * piece.to_stride[0] + b * piece.to_stride[1] +
                        c * piece.to_stride[2],
                  .count = std::min(n2 - c, end - first),
                  .from_stride = piece.from_stride[2],
                  .to_stride = piece.to_stride[2]};
    if (piece.unit > 0)
      CopyUnits(row, piece.unit, piece.number);
    else
      convert(row, spec);
    first += row.count;
  }
}

class HostScatterOps final : public ScatterOps {
 public:
  bool ReadsHostMemory() const override { return true; }
  absl::Status Scatter(StreamRef stream, const ScatterSpec& spec, const void* slab,
                       const ScatterPiece* pieces, int64_t count, int64_t blocks,
                       void* out) override {
    return Enqueue(stream, [=] {
      const RowFunction convert = RowOf(spec);
      // Larger parts than a GPU's: a task costs more here.
      constexpr int64_t kBlocks = 32;
      tbb::parallel_for(int64_t{0}, (blocks + kBlocks - 1) / kBlocks, [&](int64_t task) {
        const int64_t begin = task * kBlocks, stop = std::min(blocks, begin + kBlocks);
        const ScatterPiece* piece = std::upper_bound(pieces, pieces + count, begin,
                                                     [](int64_t block, const ScatterPiece& one) {
                                                       return block < one.first_block;
                                                     }) -
                                    1;
        for (int64_t block = begin; block < stop; ++piece) {
          const int64_t elements = piece->count[0] * piece->count[1] * piece->count[2],
                        next = piece + 1 < pieces + count ? (piece + 1)->first_block : blocks,
                        last = std::min(next, stop);
          ScatterPart(spec, convert, static_cast<const char*>(slab), *piece,
                      (block - piece->first_block) * kScatterBlock,
                      std::min(elements, (last - piece->first_block) * kScatterBlock),
                      static_cast<char*>(out));
          block = last;
        }
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ScatterOps>> MakeScatterOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", ScatterOps::kFamily));
  return std::make_unique<HostScatterOps>();
}

}  // namespace octavo::inline gpu::host
