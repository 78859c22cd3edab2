#pragma once

#include <cuda_runtime.h>

// Transforms of 4, 8 and 32 complex numbers that live in a thread's registers: X[k] = sum x[n] exp(+2πi nk / length), no
// factor. All indices are constants after unrolling.
namespace octavo::cuda {

/// cos(2π k / 64), exact to float for any k.
__host__ __device__ constexpr float CosOf64(int k) {
  constexpr float kQuarter[17] = {1.0f,         0.995184727f, 0.980785280f, 0.956940336f,  0.923879533f, 0.881921264f,
                                  0.831469612f, 0.773010453f, 0.707106781f, 0.634393284f,  0.555570233f, 0.471396737f,
                                  0.382683432f, 0.290284677f, 0.195090322f, 0.0980171403f, 0.0f};
  k &= 63;
  if (k > 32) k = 64 - k;
  return k <= 16 ? kQuarter[k] : -kQuarter[32 - k];
}
__host__ __device__ constexpr float SinOf64(int k) { return CosOf64(k - 16); }

__device__ __forceinline__ float2 Add(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float2 Subtract(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ __forceinline__ float2 Multiply(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
__device__ __forceinline__ float2 TimesI(float2 a) { return make_float2(-a.y, a.x); }
/// a exp(2πi k / 32).
__device__ __forceinline__ float2 Turn32(float2 a, int k) {
  constexpr float kHalfRoot = 0.707106781f;
  if (k == 0) return a;
  if (k == 4) return make_float2(kHalfRoot * (a.x - a.y), kHalfRoot * (a.x + a.y));
  if (k == 8) return TimesI(a);
  if (k == 12) return make_float2(-kHalfRoot * (a.x + a.y), kHalfRoot * (a.x - a.y));
  return Multiply(a, make_float2(CosOf64(2 * k), SinOf64(2 * k)));
}

__device__ __forceinline__ void Fft4(float2& a, float2& b, float2& c, float2& d) {
  const float2 s0 = Add(a, c), s1 = Subtract(a, c), s2 = Add(b, d), s3 = TimesI(Subtract(b, d));
  a = Add(s0, s2);
  b = Add(s1, s3);
  c = Subtract(s0, s2);
  d = Subtract(s1, s3);
}

__device__ __forceinline__ void Fft8(float2* x) {
  Fft4(x[0], x[2], x[4], x[6]);
  Fft4(x[1], x[3], x[5], x[7]);
  const float2 e0 = x[0], e1 = x[2], e2 = x[4], e3 = x[6];
  const float2 o0 = x[1], o1 = Turn32(x[3], 4), o2 = TimesI(x[5]), o3 = Turn32(x[7], 12);
  x[0] = Add(e0, o0), x[4] = Subtract(e0, o0);
  x[1] = Add(e1, o1), x[5] = Subtract(e1, o1);
  x[2] = Add(e2, o2), x[6] = Subtract(e2, o2);
  x[3] = Add(e3, o3), x[7] = Subtract(e3, o3);
}

/// 32 = 4 x 8. X[k] ends at x[Place32(k)].
__host__ __device__ constexpr int Place32(int k) { return k % 4 * 8 + k / 4; }
__device__ __forceinline__ void Fft32(float2 (&x)[32]) {
#pragma unroll
  for (int n = 0; n < 8; ++n) Fft4(x[n], x[n + 8], x[n + 16], x[n + 24]);
#pragma unroll
  for (int k = 1; k < 4; ++k) {
#pragma unroll
    for (int n = 1; n < 8; ++n) x[n + 8 * k] = Turn32(x[n + 8 * k], n * k);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) Fft8(&x[8 * k]);
}

}  // namespace octavo::cuda
