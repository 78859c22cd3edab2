#pragma once

// Private to this folder: the slices of a group as one value in registers.

#include <cuda_runtime.h>

namespace octavo::inline gpu::cuda {

template <int kLanes>
struct LaneValue;
template <>
struct LaneValue<1> {
  using Type = float;
};
template <>
struct LaneValue<4> {
  using Type = float4;
};

__device__ __forceinline__ void AddScaled(float& sum, float w, float v) { sum = fmaf(w, v, sum); }
__device__ __forceinline__ void AddScaled(float4& sum, float w, const float4& v) {
  sum.x = fmaf(w, v.x, sum.x);
  sum.y = fmaf(w, v.y, sum.y);
  sum.z = fmaf(w, v.z, sum.z);
  sum.w = fmaf(w, v.w, sum.w);
}
__device__ __forceinline__ float Scaled(float v, float s) { return v * s; }
__device__ __forceinline__ float4 Scaled(const float4& v, float s) {
  return make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
}

}  // namespace octavo::inline gpu::cuda
