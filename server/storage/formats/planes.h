#pragma once

#include <array>
#include <cstdint>

#include "server/storage/formats/volume_meta.h"

// How a volume is cut into planes for formats that prescribe their order.
namespace octavo::storage {

/// Positions of axes in the volume: a plane for each index of [0], whose rows run along [1] and
/// columns along [2].
using PlaneOrder = std::array<int, 3>;

/// Planes across the axis called `across`. Rows and columns run along the other two axes: columns
/// along x if possible, rows along z if the columns do not. The volume's first axis must not become
/// the columns, because slabs come along it and would cut rows into pieces.
PlaneOrder PlanesAcross(const VolumeMeta& meta, char across);

/// Rows [first, first + count), counted over all planes of a slab, of planes in an order whose [0]
/// is the volume's first axis (0). `extents`: of the slab. `size`: bytes of an element (1, 2, 4 or
/// 8).
void CopyRows(const char* slab, const int64_t extents[3], int64_t size, const PlaneOrder& order,
              int64_t first, int64_t count, char* out);

/// Planes [first, first + count) of a slab [plane, row, column], of an order whose [1] is the
/// volume's first axis: each to a place of its own, or one behind the other.
void CopyPlanes(const char* slab, const int64_t extents[3], int64_t size, const PlaneOrder& order,
                int64_t first, int64_t count, char* const* places);
void CopyPlanes(const char* slab, const int64_t extents[3], int64_t size, const PlaneOrder& order,
                int64_t first, int64_t count, char* out);

}  // namespace octavo::storage
