#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

// Linear filters along an axis, shared by all backends.
namespace octavo::inline gpu::math {

/// How an array continues beyond its ends; the values equal octavo.v1.FilterEdge.
enum class Edge : uint8_t {
  kReflect = 1,   // d c b a | a b c d | d c b a
  kNearest = 2,   // a a a a | a b c d | d d d d
  kMirror = 3,    // d c b | a b c d | c b a
  kConstant = 4,  // v v v v | a b c d | v v v v
  kWrap = 5,      // a b c d | a b c d | a b c d
};

/// The sample of an axis of n samples that continues it at position i; -1: the constant.
OCTAVO_HOST_DEVICE inline int64_t EdgeIndex(Edge edge, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  switch (edge) {
    case Edge::kNearest: return i < 0 ? 0 : n - 1;
    case Edge::kConstant: return -1;
    case Edge::kWrap: i %= n; return i < 0 ? i + n : i;
    default: break;
  }
  if (n == 1) return 0;
  const bool mirror = edge == Edge::kMirror;
  const int64_t period = mirror ? 2 * n - 2 : 2 * n;
  i %= period;
  if (i < 0) i += period;
  return i < n ? i : period - (mirror ? 0 : 1) - i;
}

/// A correlation's sum with one more weighted sample. Every backend adds the samples of a window in
/// their order.
template <typename T>
OCTAVO_HOST_DEVICE inline T WithTap(T sum, T weight, T sample) {
  return sum + weight * sample;
}

/// kResults neighbouring results of a correlation: sums[k] is the sum of weight(t) sample(k + t)
/// over `taps` taps. Each sample is read once; no sample outside a result's window reaches it, so
/// that an infinite one does no harm.
template <int kResults, typename T, typename Sample, typename Weight>
OCTAVO_HOST_DEVICE inline void Correlate(const Sample& sample, const Weight& weight, int taps,
                                         T (&sums)[kResults]) {
  // window[k]: the weight of the present sample in result k.
  T window[kResults];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int k = 0; k < kResults; ++k) {
    sums[k] = 0;
    window[k] = 0;
  }
  if (taps < kResults) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = 0; k < kResults; ++k) {
      for (int t = 0; t < taps; ++t) sums[k] = WithTap(sums[k], weight(t), sample(k + t));
    }
    return;
  }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int j = 0; j < kResults - 1; ++j) {  // windows that have not begun get nothing
    const T v = sample(j);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = kResults - 1; k > 0; --k) window[k] = window[k - 1];
    window[0] = weight(j);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = 0; k <= j; ++k) sums[k] = WithTap(sums[k], window[k], v);
  }
#if defined(__CUDA_ARCH__)
#pragma unroll kResults
#endif
  for (int j = kResults - 1; j < taps; ++j) {
    const T v = sample(j);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = kResults - 1; k > 0; --k) window[k] = window[k - 1];
    window[0] = weight(j);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = 0; k < kResults; ++k) sums[k] = WithTap(sums[k], window[k], v);
  }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int j = 0; j < kResults - 1; ++j) {  // windows that have ended get nothing more
    const T v = sample(taps + j);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = kResults - 1; k > 0; --k) window[k] = window[k - 1];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = j + 1; k < kResults; ++k) sums[k] = WithTap(sums[k], window[k], v);
  }
}

}  // namespace octavo::inline gpu::math
