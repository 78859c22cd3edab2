#pragma once

#include <cstdint>

#include "gpu/math/element_value.h"
#include "gpu/math/host_device.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/team.h"

// The sums of FindZOverlap, one team to a part of a candidate. Which voxels count depends on both
// slabs, because a voxel without a number in one of them counts in none of the sums; so each
// candidate has sums of its own.
namespace octavo::inline gpu {

/// The middle of the planes of one slab.
template <typename T>
struct SlabReader {
  static constexpr int64_t kProbes = 64;
  const T* data;
  int64_t plane, row, width;
  double pivot = 0;
  OCTAVO_HOST_DEVICE SlabReader(const SlabPair& s, int slab, const void* voxels)
      : data(static_cast<const T*>(voxels) + s.offset[slab]),
        plane(s.plane[slab]),
        row(s.row[slab]),
        width(s.width) {
    // Any value near those of the slab does. Voxels may have no number, so more than one is tried.
    const int64_t area = s.height * s.width, planes = s.end - s.first[0];
    for (int64_t k = 0; k < kProbes; ++k) {
      const double here =
          (*this)(s.first[slab] + k % planes, (area / 2 + k * (area / kProbes + 1)) % area);
      if (here - here != 0) continue;
      pivot = here;
      return;
    }
  }
  OCTAVO_HOST_DEVICE double operator()(int64_t z, int64_t i) const {
    return math::ValueOf<double>(data[z * plane + i / width * row + i % width]) - pivot;
  }
};

/// Share `k`.
template <typename T, class Team>
OCTAVO_HOST_DEVICE void SlabShare(const Team& team, const SlabPair& s, int64_t k,
                                  const SlabReader<T>& fixed, const SlabReader<T>& moving,
                                  double* out) {
  const int64_t area = s.height * s.width, part = k % SlabPair::kParts,
                overlap = s.first_overlap + k / SlabPair::kParts;
  const int64_t begin = area * part / SlabPair::kParts, end = area * (part + 1) / SlabPair::kParts;
  double sums[SlabPair::kSums] = {0, 0, 0, 0, 0, 0};
  int64_t turn = 0;
  for (int64_t z = 0; z < overlap; ++z) {
    for (int64_t i = begin + team.rank(); i < end && !team.Stops(turn++); i += team.size()) {
      const double f = fixed(s.end - overlap + z, i), m = moving(s.first[1] + z, i);
      const double product = f * m;
      if (!(product - product == 0)) continue;  // NaN or infinite in one of them
      sums[0] += 1;
      sums[1] += f;
      sums[2] += m;
      sums[3] += f * f;
      sums[4] += m * m;
      sums[5] += product;
    }
  }
  team.Sum(sums);
  if (team.rank() != 0) return;
  for (int i = 0; i < SlabPair::kSums; ++i) out[k * SlabPair::kSums + i] = sums[i];
}

}  // namespace octavo::inline gpu
