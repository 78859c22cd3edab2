#include "server/storage/formats/planes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "server/storage/formats/transpose.h"

namespace octavo::storage {
namespace {

/// `count` places of `bytes` each, one behind the other.
std::vector<char*> PlacesIn(char* out, int64_t count, int64_t bytes) {
  std::vector<char*> places(static_cast<size_t>(count));
  for (size_t i = 0; i < places.size(); ++i) places[i] = out + static_cast<int64_t>(i) * bytes;
  return places;
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
