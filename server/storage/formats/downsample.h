#pragma once

#include <cstdint>

#include "gpu/device/dtype.h"

namespace octavo::storage {

/// Extent after halving: floor(n / 2), so that every voxel is the mean of a complete pair and its
/// centre is shifted by exactly half a (finer) voxel; an odd last voxel is left out. An extent of 1
/// stays.
inline constexpr int64_t Halved(int64_t extent) { return extent > 1 ? extent / 2 : 1; }

/// Number of arrays that a pyramid of this shape [3] can have, down to a single voxel.
int PyramidLevelsPossible(const int64_t* shape);

/// Means of 2 x 2 x 2 voxels (fewer along axes of extent 1). `in` [bscans, nx, nz], with bscans
/// even (or the volume's only one: `ny` is 1); `out` [bscans / 2 or 1, Halved(nx), Halved(nz)],
/// both C order. Integers are rounded to the nearest, ties to even; floats take the mean of those
/// that are not NaN, NaN if none is. Runs in the caller's oneTBB arena. `dtype`: not kC64.
void HalveSlab(DType dtype, const void* in, int64_t bscans, int64_t nx, int64_t nz, void* out);

}  // namespace octavo::storage
