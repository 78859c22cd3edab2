#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

// The threads that work on one thing together. The text of such work is the same for both twins: it
// takes a team as a template argument, whose members each take every size()th item and then agree.
// A CUDA twin has a team of a block's threads (gpu/mosaic/cuda/block_team.cuh).
namespace octavo::inline gpu {

/// A place and how good it is; of equal ones the first counts.
struct Candidate {
  double value = 0;
  int64_t index = -1;  // -1: none
};
OCTAVO_HOST_DEVICE inline bool IsBetter(const Candidate& a, const Candidate& b) {
  if (a.index < 0 || b.index < 0) return b.index < 0 && a.index >= 0;
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/// The team of one thread.
struct SingleTeam {
  OCTAVO_HOST_DEVICE int64_t rank() const { return 0; }
  OCTAVO_HOST_DEVICE int64_t size() const { return 1; }
  /// Replaces `values` by their sums over all members, for every member.
  template <int kCount>
  OCTAVO_HOST_DEVICE void Sum(double (&)[kCount]) const {}
  /// The best of all members' candidates, for every member.
  OCTAVO_HOST_DEVICE Candidate Best(Candidate mine) const { return mine; }
};

}  // namespace octavo::inline gpu
