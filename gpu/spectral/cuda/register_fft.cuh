#pragma once

#include <cuda_runtime.h>
#include <type_traits>
#include <utility>

// Transforms of 16 and 32 complex numbers that live in a thread's registers, by decimation in time
// with a twiddle and a butterfly in six fused operations. All indices are constants after
// unrolling.
namespace octavo::inline gpu::cuda {

/// cos(2π k / 64), exact to float for any k.
__host__ __device__ constexpr float CosOf64(int k) {
  constexpr float kQuarter[17] = {
      1.0f,         0.995184727f, 0.980785280f, 0.956940336f,  0.923879533f, 0.881921264f,
      0.831469612f, 0.773010453f, 0.707106781f, 0.634393284f,  0.555570233f, 0.471396737f,
      0.382683432f, 0.290284677f, 0.195090322f, 0.0980171403f, 0.0f};
  k &= 63;
  if (k > 32) k = 64 - k;
  return k <= 16 ? kQuarter[k] : -kQuarter[32 - k];
}
__host__ __device__ constexpr float SinOf64(int k) { return CosOf64(k - 16); }

__host__ __device__ constexpr int Log2(int n) { return n <= 1 ? 0 : 1 + Log2(n / 2); }
/// The lowest `bits` bits of `i` in reverse.
__host__ __device__ constexpr int Reversed(int i, int bits) {
  return bits == 0 ? 0 : (i & 1) << (bits - 1) | Reversed(i >> 1, bits - 1);
}

/// a + w b. The order of the terms avoids register bank conflicts: never three even or three odd
/// registers.
__device__ __forceinline__ float2 PlusTimes(float2 a, float2 w, float2 b) {
  return make_float2(fmaf(w.x, b.x, fmaf(-w.y, b.y, a.x)), fmaf(w.y, b.x, fmaf(w.x, b.y, a.y)));
}
__device__ __forceinline__ float2 TimesI(float2 a) { return make_float2(-a.y, a.x); }

/// Replaces a, b with a + w b, a - w b; the difference is computed as 2 a minus the sum. kSumOnly:
/// a only.
template <bool kSumOnly>
__device__ __forceinline__ void Butterfly(float2& a, float2& b, float2 w) {
  const float2 sum = PlusTimes(a, w, b);
  if (!kSumOnly) b = make_float2(fmaf(2.0f, a.x, -sum.x), fmaf(2.0f, a.y, -sum.y));
  a = sum;
}
/// The same with w = 1.
template <bool kSumOnly>
__device__ __forceinline__ void Butterfly(float2& a, float2& b) {
  const float2 sum = make_float2(a.x + b.x, a.y + b.y);
  if (!kSumOnly) b = make_float2(a.x - b.x, a.y - b.y);
  a = sum;
}

// Stage s of a transform of R combines x[p] and x[p + R / 2^(s+1)]. The frequency so far is the
// first s bits of p in reverse. After the last stage x[p] holds the frequency Reversed(p).

/// Calls f with the constants 0 ... kCount-1.
template <int kCount, class F>
__device__ __forceinline__ void Unrolled(F f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (f(std::integral_constant<int, kIndex>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

/// Stages kFirst ... of X[k] = sum x[n] exp(2πi nk / R).
template <int R, int kFirst>
__device__ __forceinline__ void TransformStages(float2 (&x)[R]) {
  constexpr int kBits = Log2(R);
  Unrolled<kBits - kFirst>([&](auto stage) {
    constexpr int s = kFirst + stage, span = R >> (s + 1);
    Unrolled<R>([&](auto place) {
      constexpr int p = place;
      if constexpr ((p & span) == 0) {
        constexpr int turn = Reversed(p >> (kBits - s), s) * (32 >> s);  // in 64ths
        if constexpr (turn == 0) {
          Butterfly<false>(x[p], x[p + span]);
        } else if constexpr (turn == 16) {
          float2 b = TimesI(x[p + span]);
          Butterfly<false>(x[p], b);
          x[p + span] = b;
        } else {
          constexpr float kCos = CosOf64(turn), kSin = SinOf64(turn);
          Butterfly<false>(x[p], x[p + span], make_float2(kCos, kSin));
        }
      }
    });
  });
}

/// X[k] = sum x[n] exp(2πi n (f + G k) / (G R)) with an f of each thread, so that the twiddles
/// between two transforms cost nothing extra. twiddle(2^(s-1) + q) returns exp(2πi (f + G q) / (G
/// 2^(s+1))) for stage s > 0, and twiddle(0) that for stage 0; there are R / 2 of them. kLowerHalf:
/// computes only frequencies below R / 2, at even places.
template <int R, bool kLowerHalf, class Twiddle>
__device__ __forceinline__ void TransformFrom(float2 (&x)[R], Twiddle twiddle) {
  constexpr int kBits = Log2(R);
  Unrolled<kBits>([&](auto stage) {
    constexpr int s = stage, span = R >> (s + 1),
                  distinct = s == 0 ? 1 : 1 << (s - 1);  // the following ones are i times the same
    float2 w[distinct];
    Unrolled<distinct>([&](auto i) {
      w[i] = twiddle(std::integral_constant<int, (s == 0 ? 0 : distinct) + i>{});
    });
    Unrolled<R>([&](auto place) {
      constexpr int p = place;
      if constexpr ((p & span) == 0) {
        constexpr int q = Reversed(p >> (kBits - s), s);
        float2 b = x[p + span];
        if constexpr (q >= distinct) b = TimesI(b);
        Butterfly<kLowerHalf && s == kBits - 1>(x[p], b, w[q % distinct]);
        x[p + span] = b;
      }
    });
  });
}

}  // namespace octavo::inline gpu::cuda
