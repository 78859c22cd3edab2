#include "server/storage/formats/planes.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace octavo::storage {
namespace {

/// `count` places of `bytes` each, one behind the other.
std::vector<char*> PlacesIn(char* out, int64_t count, int64_t bytes) {
  std::vector<char*> places(static_cast<size_t>(count));
  for (size_t i = 0; i < places.size(); ++i) places[i] = out + static_cast<int64_t>(i) * bytes;
  return places;
}

/// Columns [first, first + count) of a matrix [rows, columns], as rows at these places.
template <class T>
void Transpose(const char* matrix, int64_t rows, int64_t columns, int64_t first, int64_t count,
               char* const* places) {
  // Copy through a tile that stays in the L1 cache: planes are often a power of two apart, and then
  // map to few cache lines.
  constexpr int64_t kRows = 64, kColumns = 32;
  T tile[kColumns * kRows];
  const auto* in = reinterpret_cast<const T*>(matrix) + first;
  for (int64_t row0 = 0; row0 < rows; row0 += kRows) {
    const int64_t n = std::min(kRows, rows - row0);
    for (int64_t c0 = 0; c0 < count; c0 += kColumns) {
      const int64_t there = std::min(kColumns, count - c0);
      for (int64_t row = 0; row < n; ++row) {
        const T* const from = in + (row0 + row) * columns + c0;
        // Rows are often a page apart, where the processor does not read ahead by itself.
        if (row0 + kRows + row < rows) __builtin_prefetch(from + kRows * columns);
        for (int64_t c = 0; c < there; ++c) tile[c * kRows + row] = from[c];
      }
      for (int64_t c = 0; c < there; ++c)
        std::memcpy(places[c0 + c] + row0 * static_cast<int64_t>(sizeof(T)), tile + c * kRows,
                    static_cast<size_t>(n) * sizeof(T));
    }
  }
}

void TransposeColumns(const char* matrix, int64_t rows, int64_t columns, int64_t size,
                      int64_t first, int64_t count, char* const* places) {
  switch (size) {
    case 1: return Transpose<uint8_t>(matrix, rows, columns, first, count, places);
    case 2: return Transpose<uint16_t>(matrix, rows, columns, first, count, places);
    case 4: return Transpose<uint32_t>(matrix, rows, columns, first, count, places);
    default: return Transpose<uint64_t>(matrix, rows, columns, first, count, places);
  }
}

}  // namespace

PlaneOrder PlanesAcross(const VolumeMeta& meta, char across) {
  PlaneOrder order{AxisAt(meta, across), 0, 0};
  size_t next = 1;
  for (const char axis : {'z', 'y', 'x'}) {
    if (axis != across) order[next++] = AxisAt(meta, axis);
  }
  return order;
}

void CopyRows(const char* slab, const int64_t extents[3], int64_t size, const PlaneOrder& order,
              int64_t first, int64_t count, char* out) {
  const int64_t rows = extents[order[1]], row_bytes = extents[order[2]] * size;
  if (order[1] == 1) {
    std::memcpy(out, slab + first * row_bytes, static_cast<size_t>(count * row_bytes));
    return;
  }
  while (count > 0) {
    const int64_t row = first % rows, portion = std::min(count, rows - row);
    TransposeColumns(slab + first / rows * rows * row_bytes, extents[1], rows, size, row, portion,
                     PlacesIn(out, portion, row_bytes).data());
    first += portion, count -= portion, out += portion * row_bytes;
  }
}

void CopyPlanes(const char* slab, const int64_t extents[3], int64_t size, const PlaneOrder& order,
                int64_t first, int64_t count, char* const* places) {
  if (order[0] == 2)
    return TransposeColumns(slab, extents[0] * extents[1], extents[2], size, first, count, places);
  const int64_t row_bytes = extents[2] * size;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t row = 0; row < extents[0]; ++row) {
      std::memcpy(places[i] + row * row_bytes, slab + (row * extents[1] + first + i) * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  }
}

void CopyPlanes(const char* slab, const int64_t extents[3], int64_t size, const PlaneOrder& order,
                int64_t first, int64_t count, char* out) {
  const int64_t bytes = extents[0] * extents[1] * extents[2] / extents[order[0]] * size;
  CopyPlanes(slab, extents, size, order, first, count, PlacesIn(out, count, bytes).data());
}

}  // namespace octavo::storage
