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

/// Whether the flag is set (gpu/array/sliced_program.h).
OCTAVO_HOST_DEVICE inline bool IsSet(const int32_t* flag) {
  if (flag == nullptr) return false;
#if defined(__CUDA_ARCH__)
  return *static_cast<const volatile int32_t*>(flag) != 0;
#else
  return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
#endif
}

/// The team of one thread.
struct SingleTeam {
  const int32_t* stop = nullptr;
  OCTAVO_HOST_DEVICE int64_t rank() const { return 0; }
  OCTAVO_HOST_DEVICE int64_t size() const { return 1; }
  /// Whether a loop is to end early, which a member asks in each turn: the flag is looked at now
  /// and then. What was computed so far is of no use then.
  OCTAVO_HOST_DEVICE bool Stops(int64_t turn) const { return (turn & 0xFFF) == 0 && IsSet(stop); }
  /// Replaces `values` by their sums over all members, for every member.
  template <int kCount>
  OCTAVO_HOST_DEVICE void Sum(double (&)[kCount]) const {}
  /// The best of all members' candidates, for every member.
  OCTAVO_HOST_DEVICE Candidate Best(Candidate mine) const { return mine; }
};

}  // namespace octavo::inline gpu
