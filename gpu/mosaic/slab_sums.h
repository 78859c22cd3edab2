#pragma once

#include <cstdint>

#include "gpu/math/element_value.h"
#include "gpu/math/host_device.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/team.h"

// The sums of FindZOverlap, one team to a plane or to a part of a candidate. Each plane is summed
// once, whatever the number of candidates that have it; only products of two planes belong to a
// candidate.
namespace octavo::inline gpu {

/// The middle of the planes of one slab.
template <typename T>
struct SlabReader {
  const T* data;
  int64_t plane, row, width;
  double pivot = 0;
  OCTAVO_HOST_DEVICE SlabReader(const SlabPair& s, int slab, const void* voxels)
      : data(static_cast<const T*>(voxels) + s.offset[slab]),
        plane(s.plane[slab]),
        row(s.row[slab]),
        width(s.width) {
    const double middle = (*this)(s.first[slab], s.height * s.width / 2);
    if (middle - middle == 0) pivot = middle;
  }
  OCTAVO_HOST_DEVICE double operator()(int64_t z, int64_t i) const {
    return math::ValueOf<double>(data[z * plane + i / width * row + i % width]) - pivot;
  }
};

/// Teams that SlabSums needs: a plane each, then kParts of each candidate.
OCTAVO_HOST_DEVICE inline int64_t SlabTeams(const SlabPair& s) {
  return s.planes[0] + s.planes[1] + s.candidates * SlabPair::kParts;
}

/// The share of team `k`.
template <typename T, class Team>
OCTAVO_HOST_DEVICE void SlabShare(const Team& team, const SlabPair& s, int64_t k,
                                  const SlabReader<T>& fixed, const SlabReader<T>& moving,
                                  double* out) {
  const int64_t area = s.height * s.width, planes = s.planes[0] + s.planes[1];
  if (k < planes) {
    double sums[2] = {0, 0};
    for (int64_t i = team.rank(); i < area; i += team.size()) {
      const double v =
          k < s.planes[0] ? fixed(s.first[0] + k, i) : moving(s.first[1] + k - s.planes[0], i);
      sums[0] += v;
      sums[1] += v * v;
    }
    team.Sum(sums);
    if (team.rank() == 0) out[2 * k] = sums[0], out[2 * k + 1] = sums[1];
    return;
  }
  const int64_t candidate = (k - planes) / SlabPair::kParts, part = (k - planes) % SlabPair::kParts;
  const int64_t overlap = s.first_overlap + candidate;
  const int64_t begin = area * part / SlabPair::kParts, end = area * (part + 1) / SlabPair::kParts;
  double sums[1] = {0};
  for (int64_t z = 0; z < overlap; ++z) {
    for (int64_t i = begin + team.rank(); i < end; i += team.size())
      sums[0] += fixed(s.end - overlap + z, i) * moving(s.first[1] + z, i);
  }
  team.Sum(sums);
  if (team.rank() == 0) out[2 * planes + (k - planes)] = sums[0];
}

}  // namespace octavo::inline gpu
