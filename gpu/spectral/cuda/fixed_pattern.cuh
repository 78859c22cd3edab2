#pragma once

// Private to this folder: the fixed pattern of each B-scan (step 5). spectral.cu launches the
// kernels.

#include "gpu/spectral/cuda/spectral_steps.cuh"

namespace octavo::inline gpu::cuda {

// Computes the sum for each depth of each segment of each run, and for quiet segments the variance:
// [run, segment, depth].
template <bool kReal>
__global__ void SegmentKernel(Tables t, const float2* spectra, int64_t ascans, bool variance,
                              float2* sums, float* variances) {
  const int64_t z = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (z >= t.depth) return;
  const int64_t segments = gridDim.z, begin = math::SegmentBegin(ascans, segments, blockIdx.z),
                end = math::SegmentBegin(ascans, segments, blockIdx.z + 1);
  const float2* run = spectra + static_cast<int64_t>(blockIdx.y) * ascans * t.pitch;
  const int64_t at = (static_cast<int64_t>(blockIdx.y) * segments + blockIdx.z) * t.depth + z;
  float2 sum = make_float2(0, 0);
  for (int64_t a = begin; a < end; ++a) {
    const float2 c = DepthSample<kReal>(t, run + a * t.pitch, z);
    sum = make_float2(sum.x + c.x, sum.y + c.y);
  }
  sums[at] = sum;
  if (!variance) return;
  const float share = 1.0f / static_cast<float>(end - begin);
  float square = 0;
  for (int64_t a = begin; a < end; ++a) {
    const float2 c = DepthSample<kReal>(t, run + a * t.pitch, z);
    const float x = c.x - sum.x * share, y = c.y - sum.y * share;
    square += x * x + y * y;
  }
  variances[at] = square * share;
}
// Computes the fixed pattern [run, depth]: the mean of all segments, or the mean of the segment
// with the least variance.
static __global__ void PatternKernel(int64_t depth, int64_t ascans, int64_t segments, bool quiet,
                                     const float2* sums, const float* variances, float2* pattern) {
  const int64_t z = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (z >= depth) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * segments * depth + z;
  float2 sum = make_float2(0, 0);
  int64_t count = ascans;
  if (quiet) {
    int64_t least = 0;
    for (int64_t s = 1; s < segments; ++s) {
      if (variances[first + s * depth] < variances[first + least * depth]) least = s;
    }
    sum = sums[first + least * depth];
    count = math::SegmentBegin(ascans, segments, least + 1) -
            math::SegmentBegin(ascans, segments, least);
  } else {
    for (int64_t s = 0; s < segments; ++s)
      sum = make_float2(sum.x + sums[first + s * depth].x, sum.y + sums[first + s * depth].y);
  }
  const float share = 1.0f / static_cast<float>(count);
  pattern[blockIdx.y * depth + z] = make_float2(sum.x * share, sum.y * share);
}

}  // namespace octavo::inline gpu::cuda
