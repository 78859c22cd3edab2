// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/storage/formats/transpose.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include <algorithm>
#include <cstring>

#include "hwy/highway.h"

#include "server/storage/formats/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::storage::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of 16 bytes: longer ones shuffle within parts of 16 bytes only.
#if HWY_TARGET == HWY_SCALAR
template <class T>
constexpr int64_t kSide = 1;
#else
template <class T>
constexpr int64_t kSide = 16 / sizeof(T);
#endif

/// A square of kSide rows and columns. Each turn shuffles the rows perfectly, the first half into
/// the second; after as many turns as the side has doublings, columns are rows.
template <class T>
HWY_INLINE void TransposeSquare(const T* in, [[maybe_unused]] int64_t in_pitch, T* out,
                                [[maybe_unused]] int64_t out_pitch) {
#if HWY_TARGET == HWY_SCALAR
  *out = *in;
#else
  constexpr auto kRows = static_cast<size_t>(kSide<T>);
  const hn::FixedTag<T, kRows> d;
  hn::Vec<decltype(d)> rows[kRows], shuffled[kRows];
// Unrolled, else the vectors do not stay in registers: twice the time.
#pragma GCC unroll 16
  for (size_t i = 0; i < kRows; ++i)
    rows[i] = hn::LoadU(d, in + static_cast<int64_t>(i) * in_pitch);
#pragma GCC unroll 4
  for (size_t turn = 1; turn < kRows; turn *= 2) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kRows / 2; ++i) {
      shuffled[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kRows / 2]);
      shuffled[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kRows / 2]);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < kRows; ++i) rows[i] = shuffled[i];
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < kRows; ++i)
    hn::StoreU(rows[i], d, out + static_cast<int64_t>(i) * out_pitch);
#endif
}

/// A rectangle: squares, and the elements of the rest one by one. `ahead`: rows behind these that
/// are wanted next.
template <class T>
HWY_INLINE void TransposeTile(const T* in, int64_t in_pitch, int64_t rows, int64_t columns,
                              int64_t ahead, T* out, int64_t out_pitch) {
  constexpr int64_t kAhead = 64;
  const int64_t even_rows = rows / kSide<T> * kSide<T>,
                even_columns = columns / kSide<T> * kSide<T>;
  for (int64_t row = 0; row < even_rows; row += kSide<T>) {
    // Rows are often a page apart, where the processor does not read ahead by itself.
    for (int64_t i = row + kAhead; i < std::min(row + kAhead + kSide<T>, rows + ahead); ++i)
      __builtin_prefetch(in + i * in_pitch, 0, 2);
    for (int64_t column = 0; column < even_columns; column += kSide<T>)
      TransposeSquare(in + row * in_pitch + column, in_pitch, out + column * out_pitch + row,
                      out_pitch);
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = row < even_rows ? even_columns : 0; column < columns; ++column)
      out[column * out_pitch + row] = in[row * in_pitch + column];
  }
}

template <class T>
void Transpose(const char* matrix, int64_t rows, int64_t columns, int64_t first, int64_t count,
               char* const* places) {
  // Copy through a tile that stays in the L1 cache: planes are often a power of two apart, and then
  // map to few cache lines.
  constexpr int64_t kRows = 512 / sizeof(T), kColumns = 32;
  alignas(64) T tile[kColumns * kRows];
  const auto* in = reinterpret_cast<const T*>(matrix) + first;
  for (int64_t row0 = 0; row0 < rows; row0 += kRows) {
    const int64_t n = std::min(kRows, rows - row0);
    for (int64_t c0 = 0; c0 < count; c0 += kColumns) {
      const int64_t there = std::min(kColumns, count - c0);
      const T* const from = in + row0 * columns + c0;
      TransposeTile(from, columns, n, there, rows - row0 - n, tile, kRows);
      for (int64_t c = 0; c < there; ++c)
        std::memcpy(places[c0 + c] + row0 * static_cast<int64_t>(sizeof(T)), tile + c * kRows,
                    static_cast<size_t>(n) * sizeof(T));
    }
  }
}

void TransposeColumnsOf(const char* matrix, int64_t rows, int64_t columns, int64_t size,
                        int64_t first, int64_t count, char* const* places) {
  switch (size) {
    case 1: return Transpose<uint8_t>(matrix, rows, columns, first, count, places);
    case 2: return Transpose<uint16_t>(matrix, rows, columns, first, count, places);
    case 4: return Transpose<uint32_t>(matrix, rows, columns, first, count, places);
    default: return Transpose<uint64_t>(matrix, rows, columns, first, count, places);
  }
}

}  // namespace octavo::storage::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::storage {

HWY_EXPORT(TransposeColumnsOf);

void TransposeColumns(const char* matrix, int64_t rows, int64_t columns, int64_t size,
                      int64_t first, int64_t count, char* const* places) {
  HWY_DYNAMIC_DISPATCH(TransposeColumnsOf)(matrix, rows, columns, size, first, count, places);
}

}  // namespace octavo::storage
#endif
