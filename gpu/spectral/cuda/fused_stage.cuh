#pragma once

// Private to this folder: the first steps of the fused kernel, from raw samples to interpolated
// samples.

#include <cstdint>
#include <cuda_runtime.h>

#include "gpu/math/raw.h"
#include "gpu/spectral/cuda/fused_tables.h"

namespace octavo::inline gpu::cuda::fused {

constexpr float kMagic = 8388608.0f;  // 2^23: below it a number's integer part is in the low bits
constexpr uint32_t kMagicBits = 0x4B000000u;

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
template <int kOffset>
__device__ __forceinline__ float2 LoadShared(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2 + %3];"
               : "=f"(v.x), "=f"(v.y)
               : "r"(address), "n"(kOffset));
  return v;
}

// One step of the interpolation for both A-scans. `at` holds the position (math::PositionBits) and
// the negative background there; `base` is the address of the samples.
template <bool kCubic>
__device__ __forceinline__ float2 Interpolate(uint32_t base, float2 at) {
  const uint32_t position = __float_as_uint(at.x), p = base + 8u * math::PositionSample(position);
  const float t = math::PositionFraction(position);
  const float2 p1 = LoadShared<0>(p), p2 = LoadShared<8>(p);
  if constexpr (kCubic) {
    // math::CubicWeights in eight operations: first the last weight, then the others from it.
    const float2 p0 = LoadShared<-8>(p), p3 = LoadShared<16>(p);
    const float half = 0.5f * t, q = fmaf(half, t, -half), w3 = q * t, w0 = q - w3,
                w1 = fmaf(3.0f, w3, fmaf(-t, t, 1.0f)), w2 = fmaf(-3.0f, w3, t + q);
    return make_float2(fmaf(w0, p0.x, fmaf(w1, p1.x, fmaf(w2, p2.x, fmaf(w3, p3.x, at.y)))),
                       fmaf(w0, p0.y, fmaf(w1, p1.y, fmaf(w2, p2.y, fmaf(w3, p3.y, at.y)))));
  } else {
    return make_float2(fmaf(1.0f - t, p1.x, fmaf(t, p2.x, at.y)),
                       fmaf(1.0f - t, p1.y, fmaf(t, p2.y, at.y)));
  }
}

// Two neighbouring samples of a record; the load does not push the tables out of the cache.
template <RawKind kRaw>
struct SamplePair {
  uint32_t word, next;
  __device__ __forceinline__ void Load(const uint8_t* row, int i) {
    if constexpr (kRaw == RawKind::kU8) {
      word = __ldcs(reinterpret_cast<const uint16_t*>(row) + i);
    } else if constexpr (kRaw == RawKind::kU16 || kRaw == RawKind::kI16) {
      word = __ldcs(reinterpret_cast<const uint32_t*>(row) + i);
    } else {  // the three bytes lie in the word of the first byte and in that of the last byte
      word = __ldcs(reinterpret_cast<const uint32_t*>(row) + (3 * i >> 2));
      next = __ldcs(reinterpret_cast<const uint32_t*>(row) + ((3 * i + 2) >> 2));
    }
  }
  __device__ __forceinline__ float2 Samples(int i) const {
    // The numbers become the low bits of 2^23 + number, because conversions are slower.
    if constexpr (kRaw == RawKind::kU8) {
      return make_float2(Above(__byte_perm(word, kMagicBits, 0x7550)),
                         Above(__byte_perm(word, kMagicBits, 0x7551)));
    } else if constexpr (kRaw == RawKind::kU16) {
      return make_float2(Above(__byte_perm(word, kMagicBits, 0x7610)),
                         Above(__byte_perm(word, kMagicBits, 0x7632)));
    } else if constexpr (kRaw == RawKind::kI16) {
      const uint32_t moved = word ^ 0x80008000u;  // to 0 ... 65535
      return make_float2(Above(__byte_perm(moved, kMagicBits, 0x7610), 32768.0f),
                         Above(__byte_perm(moved, kMagicBits, 0x7632), 32768.0f));
    } else {
      constexpr auto kPacking =
          kRaw == RawKind::kLowFirst12 ? math::Packing::kLowFirst12 : math::Packing::kHighFirst12;
      const uint32_t bytes =
          __funnelshift_r(word, next, 24 * (i & 3));  // only the low five bits of the amount count
      return make_float2(Above(math::Unpack12(kPacking, bytes, false) | kMagicBits),
                         Above(math::Unpack12(kPacking, bytes, true) | kMagicBits));
    }
  }
  static __device__ __forceinline__ float Above(uint32_t bits, float less = 0.0f) {
    return __uint_as_float(bits) - (kMagic + less);
  }
};

// Loads any sample; slow.
template <RawKind kRaw>
__device__ inline float SampleOf(const uint8_t* row, int i) {
  if constexpr (kRaw == RawKind::kU8) {
    return static_cast<float>(row[i]);
  } else if constexpr (kRaw == RawKind::kU16) {
    return static_cast<float>(reinterpret_cast<const uint16_t*>(row)[i]);
  } else if constexpr (kRaw == RawKind::kI16) {
    return static_cast<float>(reinterpret_cast<const int16_t*>(row)[i]);
  } else {
    return static_cast<float>(math::ReadPacked12(
        kRaw == RawKind::kLowFirst12 ? math::Packing::kLowFirst12 : math::Packing::kHighFirst12,
        row, i));
  }
}

// Stages the samples of two records side by side in shared memory, with the first sample repeated
// once before them and the last sample twice after them. kSamples: the number of samples, 0 if not
// known at compile time.
template <RawKind kRaw, int kGroup, int kSamples>
__device__ __forceinline__ void Stage(const FusedTables& t, const uint8_t* a, const uint8_t* b,
                                      int lane, float2* staged) {
  const int samples = kSamples > 0 ? kSamples : t.samples;
  if (kSamples == 0 && !t.pairs) {
#pragma unroll 1
    for (int i = lane - 1; i < samples + 2; i += kGroup) {
      const int from = min(max(i, 0), samples - 1);
      staged[i] = make_float2(SampleOf<kRaw>(a, from), SampleOf<kRaw>(b, from));
    }
    return;
  }
  // Eight loads of each record at once, so that their latencies overlap and the code stays small.
  const int pairs = samples / 2;
#pragma unroll 1
  for (int begin = lane; begin < pairs; begin += 8 * kGroup) {
    SamplePair<kRaw> words_a[8], words_b[8];
    // Past the end a thread stores the last two samples again, which changes nothing.
    const auto pair = [&](int m) {
      return kSamples > 0 ? begin + kGroup * m : min(begin + kGroup * m, pairs - 1);
    };
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      words_a[m].Load(a, pair(m));
      words_b[m].Load(b, pair(m));
    }
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      const float2 u = words_a[m].Samples(pair(m)), v = words_b[m].Samples(pair(m));
      reinterpret_cast<float4*>(staged)[pair(m)] = make_float4(u.x, v.x, u.y, v.y);
    }
  }
  if (lane < 2) {
    const int i = lane == 0 ? 0 : pairs - 1;
    SamplePair<kRaw> word_a, word_b;
    word_a.Load(a, i);
    word_b.Load(b, i);
    const float2 u = word_a.Samples(i), v = word_b.Samples(i);
    const float2 end = lane == 0 ? make_float2(u.x, v.x) : make_float2(u.y, v.y);
    staged[lane == 0 ? -1 : samples] = end;
    if (lane == 1) staged[samples + 1] = end;
  }
}
template <int kGroup>
__device__ __forceinline__ void StageAny(const FusedTables& t, const uint8_t* a, const uint8_t* b,
                                         int lane, float2* staged) {
  switch (t.raw) {
    case RawKind::kU8: Stage<RawKind::kU8, kGroup, 0>(t, a, b, lane, staged); break;
    case RawKind::kI16: Stage<RawKind::kI16, kGroup, 0>(t, a, b, lane, staged); break;
    case RawKind::kLowFirst12: Stage<RawKind::kLowFirst12, kGroup, 0>(t, a, b, lane, staged); break;
    case RawKind::kHighFirst12:
      Stage<RawKind::kHighFirst12, kGroup, 0>(t, a, b, lane, staged);
      break;
    default: Stage<RawKind::kU16, kGroup, 0>(t, a, b, lane, staged); break;
  }
}

}  // namespace octavo::inline gpu::cuda::fused
