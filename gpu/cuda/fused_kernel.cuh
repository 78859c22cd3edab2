#pragma once

// Private to gpu/cuda: the kernel of the fused launch, a template over lengths; fused_LENGTH.cu instantiate it, fused_spectral.cu
// chooses.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "gpu/cuda/fused_tables.h"
#include "gpu/cuda/register_fft.cuh"
#include "gpu/math/raw.h"

namespace octavo::cuda {

// What bounds the kernel is the issue slots and the L1 and shared-memory pipe (128 bytes a clock and SM), about equally; device
// memory is far from it. Hence: two A-scans at once share what is loaded of the tables up to the window; interpolation weights are
// computed instead of loaded; twiddles stay in registers over all A-scans of a persistent block and are fused into butterflies;
// nothing but the raw samples and the results leaves the SM.

/// Length F = R R S of a transform: a group of G = R S threads takes two A-scans from raw samples in shared memory to placed output,
/// with R points a thread and one exchange through shared memory between the two halves of the transform. Without dispersion
/// (`real`) the two A-scans are the real and the imaginary part of one transform.
template <int kRadix_, int kSpread_, bool kReal_>
struct FusedForm {
  static constexpr int kRadix = kRadix_, kSpread = kSpread_;
  static constexpr bool kReal = kReal_;
  static constexpr int kGroup = kRadix * kSpread, kLength = kRadix * kGroup;
  static constexpr int kThreads = kGroup == 64 || kGroup == 96 ? kGroup : 128;
  /// The bin below G of a lane: for the S that divide a warp, S neighbours have those that differ by R and read the same numbers
  /// of the exchange, which costs one read.
  static constexpr bool kShared = kSpread == 2 || kSpread == 4;
  static __device__ int BinOf(int lane) { return kShared ? lane % kSpread * kRadix + lane / kSpread : lane; }
  // Twiddles in registers; the others are loaded where they are used. Found by measuring, with the warps of an SM.
  static constexpr int kTwiddlesKept = kSpread == 1 ? kRadix / 2 : kRadix == 32 && kSpread == 2 && !kReal ? 12 : kRadix / 4;
  static constexpr int kWarpsPerSm = kRadix == 16 ? 20 : kReal && kSpread < 3 ? 16 : 12;
  static constexpr int kBlocksPerSm = kWarpsPerSm * 32 / kThreads;
};

/// Usual chains: cubic interpolation, dB, whole lower half, F samples a record, types as given. Known at compile time because code
/// that is jumped over costs fetches.
template <RawKind kRaw_, OutKind kOut_>
struct UsualChain {
  static constexpr bool kUsual = true;
  static constexpr RawKind kRaw = kRaw_;
  static constexpr OutKind kOut = kOut_;
};
struct AnyChain {
  static constexpr bool kUsual = false;
};

namespace fused {

constexpr float kMagic = 8388608.0f;  // 2^23: adding it rounding down leaves the integer part in the low bits
constexpr uint32_t kMagicBits = 0x4B000000u;

__device__ __forceinline__ uint32_t SharedAddress(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
template <int kOffset>
__device__ __forceinline__ float2 LoadShared(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2 + %3];" : "=f"(v.x), "=f"(v.y) : "r"(address), "n"(kOffset));
  return v;
}

// One step of the interpolation for both A-scans: `at` is the position and less the background there, `base` the address of the
// samples less kTapOffset.
template <bool kCubic>
__device__ __forceinline__ float2 Interpolate(uint32_t base, float2 at) {
  const float floor_at = __fadd_rd(at.x, kMagic), t = at.x - (floor_at - kMagic);
  const uint32_t p = base + 8u * __float_as_uint(floor_at);
  const float2 p1 = LoadShared<0>(p), p2 = LoadShared<8>(p);
  if constexpr (kCubic) {
    // math::CubicWeights in eight operations: the last weight, and the others from it.
    const float2 p0 = LoadShared<-8>(p), p3 = LoadShared<16>(p);
    const float half = 0.5f * t, q = fmaf(half, t, -half), w3 = q * t, w0 = q - w3, w1 = fmaf(3.0f, w3, fmaf(-t, t, 1.0f)),
                w2 = fmaf(-3.0f, w3, t + q);
    return make_float2(fmaf(w0, p0.x, fmaf(w1, p1.x, fmaf(w2, p2.x, fmaf(w3, p3.x, at.y)))),
                       fmaf(w0, p0.y, fmaf(w1, p1.y, fmaf(w2, p2.y, fmaf(w3, p3.y, at.y)))));
  } else {
    return make_float2(fmaf(1.0f - t, p1.x, fmaf(t, p2.x, at.y)), fmaf(1.0f - t, p1.y, fmaf(t, p2.y, at.y)));
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
    } else {  // three bytes, in the word of the first and in that of the last
      word = __ldcs(reinterpret_cast<const uint32_t*>(row) + (3 * i >> 2));
      next = __ldcs(reinterpret_cast<const uint32_t*>(row) + ((3 * i + 2) >> 2));
    }
  }
  __device__ __forceinline__ float2 Samples(int i) const {
    // The numbers are made the low bits of 2^23 + number: conversions are slower.
    if constexpr (kRaw == RawKind::kU8) {
      return make_float2(Above(__byte_perm(word, kMagicBits, 0x7550)), Above(__byte_perm(word, kMagicBits, 0x7551)));
    } else if constexpr (kRaw == RawKind::kU16) {
      return make_float2(Above(__byte_perm(word, kMagicBits, 0x7610)), Above(__byte_perm(word, kMagicBits, 0x7632)));
    } else if constexpr (kRaw == RawKind::kI16) {
      const uint32_t moved = word ^ 0x80008000u;  // to 0 ... 65535
      return make_float2(Above(__byte_perm(moved, kMagicBits, 0x7610), 32768.0f), Above(__byte_perm(moved, kMagicBits, 0x7632), 32768.0f));
    } else {
      constexpr auto kPacking = kRaw == RawKind::kLowFirst12 ? math::Packing::kLowFirst12 : math::Packing::kHighFirst12;
      const uint32_t bytes = __funnelshift_r(word, next, 24 * (i & 3));  // of the amount the low five bits count
      return make_float2(Above(math::Unpack12(kPacking, bytes, false) | kMagicBits), Above(math::Unpack12(kPacking, bytes, true) | kMagicBits));
    }
  }
  static __device__ __forceinline__ float Above(uint32_t bits, float less = 0.0f) { return __uint_as_float(bits) - (kMagic + less); }
};

// Any sample, slowly.
template <RawKind kRaw>
__device__ inline float SampleOf(const uint8_t* row, int i) {
  if constexpr (kRaw == RawKind::kU8) {
    return static_cast<float>(row[i]);
  } else if constexpr (kRaw == RawKind::kU16) {
    return static_cast<float>(reinterpret_cast<const uint16_t*>(row)[i]);
  } else if constexpr (kRaw == RawKind::kI16) {
    return static_cast<float>(reinterpret_cast<const int16_t*>(row)[i]);
  } else {
    return static_cast<float>(math::ReadPacked12(kRaw == RawKind::kLowFirst12 ? math::Packing::kLowFirst12 : math::Packing::kHighFirst12, row, i));
  }
}

// The samples of two records side by side in shared memory, the first one repeated before and the last one twice after.
// kSamples: their number, 0 if it is not known.
template <RawKind kRaw, int kGroup, int kSamples>
__device__ __forceinline__ void Stage(const FusedTables& t, const uint8_t* a, const uint8_t* b, int lane, float2* staged) {
  const int samples = kSamples > 0 ? kSamples : t.samples;
  if (kSamples == 0 && !t.pairs) {
#pragma unroll 1
    for (int i = lane - 1; i < samples + 2; i += kGroup) {
      const int from = min(max(i, 0), samples - 1);
      staged[i] = make_float2(SampleOf<kRaw>(a, from), SampleOf<kRaw>(b, from));
    }
    return;
  }
  // Eight loads of each at once: their latencies overlap, and the code stays small.
  const int pairs = samples / 2;
#pragma unroll 1
  for (int begin = lane; begin < pairs; begin += 8 * kGroup) {
    SamplePair<kRaw> words_a[8], words_b[8];
    // Past the end: the last two again, which changes nothing.
    const auto pair = [&](int m) { return kSamples > 0 ? begin + kGroup * m : min(begin + kGroup * m, pairs - 1); };
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
__device__ __forceinline__ void StageAny(const FusedTables& t, const uint8_t* a, const uint8_t* b, int lane, float2* staged) {
  switch (t.raw) {
    case RawKind::kU8: Stage<RawKind::kU8, kGroup, 0>(t, a, b, lane, staged); break;
    case RawKind::kI16: Stage<RawKind::kI16, kGroup, 0>(t, a, b, lane, staged); break;
    case RawKind::kLowFirst12: Stage<RawKind::kLowFirst12, kGroup, 0>(t, a, b, lane, staged); break;
    case RawKind::kHighFirst12: Stage<RawKind::kHighFirst12, kGroup, 0>(t, a, b, lane, staged); break;
    default: Stage<RawKind::kU16, kGroup, 0>(t, a, b, lane, staged); break;
  }
}

/// What levels are linear in: log2 of the power for dB, the power, the magnitude.
template <math::Value kValue, bool kFloor>
__device__ __forceinline__ float MeasureOf(float power) {
  float v = power;
  if constexpr (kValue == math::Value::kDb) {
    if (kFloor) power = fmaxf(power, math::kPowerFloor);
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(power));
  } else if constexpr (kValue == math::Value::kMagnitude) {
    asm("sqrt.approx.f32 %0, %1;" : "=f"(v) : "f"(power));
  }
  return v;
}

template <OutKind kOut>
using OutType = std::conditional_t<kOut == OutKind::kU8, uint8_t, std::conditional_t<kOut == OutKind::kU16, uint16_t, float>>;

// Steps 6 and 7 of a thread's bins first + kStep k: stores them; `power` becomes what is stored, integers counted from kMagic.
// kWhole: all of the lower half of the bins is kept.
template <OutKind kOut, math::Value kValue, bool kFloor, bool kWhole, int kStep, int kBins>
__device__ __forceinline__ void Finish(const FusedTables& t, float (&power)[kBins], int first, void* ascan) {
  using Out = OutType<kOut>;
  constexpr float kTop = kOut == OutKind::kU8 ? 256.0f : 65536.0f;
  Out* out = static_cast<Out*>(ascan) + first;
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    const bool kept = kWhole || static_cast<unsigned>(first + kStep * k) < static_cast<unsigned>(t.depth);
    float number = fmaf(MeasureOf<kValue, kFloor>(power[k]), t.value_scale, t.value_offset);
    if constexpr (kOut == OutKind::kF32) {
      if (kept) out[kStep * k] = number;
    } else {
      // 0 ... 1 stands for -0.5 ... top + 0.5; saturation takes NaN to 0, and rounding down after that rounds half up.
      number = __fmaf_rd(__saturatef(number), kTop * 0.99999994f, kMagic);
      if (kept) out[kStep * k] = static_cast<Out>(__float_as_uint(number));
    }
    power[k] = number;
  }
}
template <OutKind kOut, int kStep, int kBins>
__device__ __forceinline__ void FinishAny(const FusedTables& t, float (&power)[kBins], int first, void* out) {
  switch (t.value) {
    case math::Value::kMagnitude: Finish<kOut, math::Value::kMagnitude, false, false, kStep>(t, power, first, out); break;
    case math::Value::kPower: Finish<kOut, math::Value::kPower, false, false, kStep>(t, power, first, out); break;
    default: Finish<kOut, math::Value::kDb, true, false, kStep>(t, power, first, out); break;
  }
}

template <class Form>
__device__ __forceinline__ void SyncGroup(int group) {
  if constexpr (Form::kGroup == 32) {
    __syncwarp();
  } else if constexpr (Form::kGroup == Form::kThreads) {
    __syncthreads();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(Form::kGroup) : "memory");
  }
}

// math::RasterAscan without 64-bit divisions where the numbers allow it.
__device__ inline int64_t AscanOf(const RecordPlacement& placement, int64_t record) {
  if (placement.table != nullptr) return placement.table[record];
  const int64_t at = placement.first_record + record, line = placement.raster.ascans_per_bscan + placement.raster.flyback_records;
  if (at < 0 || at > INT32_MAX || line > INT32_MAX) return math::RasterAscan(placement.raster, at);
  const uint32_t y = static_cast<uint32_t>(at) / static_cast<uint32_t>(line), x = static_cast<uint32_t>(at) - y * static_cast<uint32_t>(line);
  if (y >= placement.raster.bscans_per_volume || x >= placement.raster.ascans_per_bscan) return -1;
  const int64_t across = (placement.raster.bidirectional && (y & 1)) ? placement.raster.ascans_per_bscan - 1 - x : x;
  return y * placement.raster.ascans_per_bscan + across;
}

// A number as an unsigned integer of the same order, and back.
__device__ __forceinline__ uint32_t OrderOf(float v) {
  const uint32_t bits = __float_as_uint(v);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float OfOrder(uint32_t order) { return __uint_as_float(order >> 31 != 0 ? order & 0x7FFFFFFFu : ~order); }

/// Maximum and sum of a warp's part of a slab.
struct SlabPart {
  uint32_t most;
  float sum;
};

// The en face projections of an A-scan from those of its warps.
template <class Form, class Chain>
__device__ __forceinline__ void Join(const FusedTables& t, const SlabPart (&parts)[Form::kGroup / 32], int64_t ascan, const SpectralTarget& target) {
  OutKind kind = t.out;
  if constexpr (Chain::kUsual) kind = Chain::kOut;
  SlabPart slab = parts[0];
#pragma unroll
  for (int w = 1; w < Form::kGroup / 32; ++w) slab = {max(slab.most, parts[w].most), slab.sum + parts[w].sum};
  if (target.mip != nullptr) {
    if (kind == OutKind::kF32) {
      static_cast<float*>(target.mip)[ascan] = OfOrder(slab.most);
    } else if (kind == OutKind::kU16) {
      static_cast<uint16_t*>(target.mip)[ascan] = static_cast<uint16_t>(slab.most);
    } else {
      static_cast<uint8_t*>(target.mip)[ascan] = static_cast<uint8_t>(slab.most);
    }
  }
  if (target.aip != nullptr) target.aip[ascan] = slab.sum / static_cast<float>(t.slab_end - t.slab_begin);
}

// Steps 6 and 7 and placement of one A-scan, of which a thread holds the bins bin + G k below F/2; each warp's part of the slab.
template <class Form, class Chain>
__device__ __forceinline__ void Place(const FusedTables& t, float (&power)[Form::kRadix / 2], int64_t ascan, int lane, int bin,
                                      SlabPart (&part)[Form::kGroup / 32], const SpectralTarget& target) {
  constexpr int kGroup = Form::kGroup, kBins = Form::kRadix / 2;
  OutKind kind = t.out;
  if constexpr (Chain::kUsual) kind = Chain::kOut;
  const int64_t bytes = kind == OutKind::kU8 ? 1 : kind == OutKind::kU16 ? 2 : 4;
  void* out = static_cast<uint8_t*>(target.volume) + ascan * t.depth * bytes;
  const int first = Chain::kUsual ? bin : bin - t.first_bin;
  if constexpr (Chain::kUsual) {
    Finish<Chain::kOut, math::Value::kDb, Chain::kOut == OutKind::kF32, true, kGroup>(t, power, first, out);
  } else {
    switch (kind) {
      case OutKind::kU8: FinishAny<OutKind::kU8, kGroup>(t, power, first, out); break;
      case OutKind::kU16: FinishAny<OutKind::kU16, kGroup>(t, power, first, out); break;
      default: FinishAny<OutKind::kF32, kGroup>(t, power, first, out); break;
    }
  }
  if (target.mip == nullptr && target.aip == nullptr) return;
  const auto in_slab = [&](int k) { return Chain::kUsual || (first + kGroup * k >= t.slab_begin && first + kGroup * k < t.slab_end); };
  // As unsigned integers that are ordered like what they stand for: integers above kMagic are so already.
  uint32_t most = 0;
  if (kind == OutKind::kF32) {
    float v = -INFINITY;
#pragma unroll
    for (int k = 0; k < kBins; ++k) v = in_slab(k) ? fmaxf(v, power[k]) : v;
    most = OrderOf(v);
  } else {
#pragma unroll
    for (int k = 0; k < kBins; k += 2) {
      most = __vimax3_u32(most, in_slab(k) ? __float_as_uint(power[k]) : 0, in_slab(k + 1) ? __float_as_uint(power[k + 1]) : 0);
    }
  }
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  float sum = 0;
  if (target.aip != nullptr) {
#pragma unroll
    for (int k = 0; k < kBins; ++k) sum += in_slab(k) ? power[k] - (kind == OutKind::kF32 ? 0.0f : kMagic) : 0.0f;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  }
  if constexpr (kGroup == 32) {
    if (lane == 0) Join<Form, Chain>(t, {{most, sum}}, ascan, target);
  } else {
    if (lane % 32 == 0) part[lane / 32] = {most, sum};
  }
}

template <class Form, class Chain>
__global__ __launch_bounds__(Form::kThreads, Form::kBlocksPerSm) void FusedKernel(const __grid_constant__ FusedTables t,
                                                                                  const uint8_t* __restrict__ raw, int64_t records,
                                                                                  const __grid_constant__ RecordPlacement placement,
                                                                                  const __grid_constant__ SpectralTarget target) {
  constexpr int R = Form::kRadix, S = Form::kSpread, G = Form::kGroup, F = Form::kLength, kGroups = Form::kThreads / G, kBits = Log2(R);
  constexpr int kPitch = G + 2;  // complex numbers between rows of the exchange: two at a time are read without bank conflicts
  constexpr int kExchange = R * kPitch > F + 4 ? R * kPitch : F + 4;
  __shared__ float4 memory[kGroups][kExchange / 2];
  __shared__ SlabPart parts[kGroups][2][G / 32];
  const int lane = static_cast<int>(threadIdx.x) % G, group = static_cast<int>(threadIdx.x) / G;
  const int bin = Form::BinOf(lane);
  float2* const exchange = reinterpret_cast<float2*>(memory[group]);
  float2* const staged = exchange + 2;  // samples of both A-scans; one before, two after repeat the ends
  const uint32_t base = SharedAddress(staged) - t.tap_offset;
  const float4* const position = t.position + lane;
  const float2* const twiddles = t.twiddle + bin;
  float2 kept[Form::kTwiddlesKept];
#pragma unroll
  for (int i = 0; i < Form::kTwiddlesKept; ++i) kept[i] = __ldg(twiddles + i * G);
  const auto twiddle = [&](auto i) {
    if constexpr (i < Form::kTwiddlesKept) {
      return kept[i];
    } else {  // where it is used, not before the loop: registers are scarce
      float2 w;
      asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(w.x), "=f"(w.y) : "l"(twiddles + i * G));
      return w;
    }
  };
  float2 spread[S];
#pragma unroll
  for (int j = 1; j < S; ++j) spread[j] = __ldg(twiddles + (R / 2 + j - 1) * G);

  // The transform between x[m] of points lane + G m, whose first stage is done, and x[Reversed(k)] of bins bin + G k.
  const auto transform = [&](float2(&x)[R]) {
    TransformStages<R, 1>(x);  // over m, to frequencies below R
    Unrolled<R>([&](auto k) {
      constexpr int from = Reversed(k, kBits);
      exchange[k * kPitch + lane] = x[from];
    });
    SyncGroup<Form>(group);
    const float4* row = reinterpret_cast<const float4*>(exchange + bin % R * kPitch);
#pragma unroll
    for (int n = 0; n < R; n += 2) {
      const float4 two = row[n / 2];
      x[n] = make_float2(two.x, two.y), x[n + 1] = make_float2(two.z, two.w);
    }
#pragma unroll
    for (int j = 1; j < S; ++j) {
#pragma unroll
      for (int n = 0; n < R; n += 2) {
        const float4 two = row[(n + R * j) / 2];
        x[n] = PlusTimes(x[n], spread[j], make_float2(two.x, two.y));
        x[n + 1] = PlusTimes(x[n + 1], spread[j], make_float2(two.z, two.w));
      }
    }
    SyncGroup<Form>(group);
    TransformFrom<R, !Form::kReal>(x, twiddle);
  };

  const int64_t step = static_cast<int64_t>(gridDim.x) * kGroups * 2;
  int64_t place = -1;  // lane l of a warp knows that of record l % 2 of turn l / 2 of 16
  int turn = 0;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kGroups + group) * 2; first < records; first += step) {
    const bool two = first + 1 < records;
    const uint8_t *a = raw + first * t.record_bytes, *b = two ? a + t.record_bytes : a;
    if constexpr (Chain::kUsual) {
      Stage<Chain::kRaw, G, F>(t, a, b, lane, staged);
    } else {
      StageAny<G>(t, a, b, lane, staged);
    }
    if (first + step + 1 < records && lane * 128 < 2 * t.record_bytes) {  // the next two, into the L2 cache
      asm volatile("prefetch.global.L2 [%0];" ::"l"(raw + (first + step) * t.record_bytes + lane * 128));
    }
    SyncGroup<Form>(group);
    if (turn == 0) {
      const int64_t record = first + lane % 32 / 2 * step + lane % 2;
      place = record < records ? AscanOf(placement, record) : -1;
      if (place >= target.volume_ascans) place = -1;
    }
    const auto both = [&](auto cubic, auto use) {
#pragma unroll
      for (int m = 0; m < R / 2; ++m) {
        const float4 at = __ldg(position + m * G);
        const float2 y0 = Interpolate<decltype(cubic)::value>(base, make_float2(at.x, at.y));
        const float2 y1 = Interpolate<decltype(cubic)::value>(base, make_float2(at.z, at.w));
        use(m, y0, y1);
      }
    };
    const auto interpolate = [&](auto use) {
      if (Chain::kUsual || t.cubic) {
        both(std::true_type{}, use);
      } else {
        both(std::false_type{}, use);
      }
    };
    if constexpr (Form::kReal) {
      const float2* const real_h = static_cast<const float2*>(t.h) + lane;
      float2 x[R];
      interpolate([&](int m, float2 y0, float2 y1) {
        const float2 h = __ldg(real_h + m * G);
        y1 = make_float2(y1.x * h.y, y1.y * h.y);
        x[m] = make_float2(fmaf(y0.x, h.x, y1.x), fmaf(y0.y, h.x, y1.y));
        x[m + R / 2] = make_float2(fmaf(y0.x, h.x, -y1.x), fmaf(y0.y, h.x, -y1.y));
      });
      SyncGroup<Form>(group);
      transform(x);
      const auto slot = [](int i) { return i + (Form::kShared ? i / R * (16 / S) : 0); };  // without bank conflicts
      // Both spectra from bins k and F - k, which another thread holds: the sum with its conjugate, and the difference.
      Unrolled<R / 2>([&](auto k) {
        constexpr int from = Reversed(k + R / 2, kBits);
        exchange[slot(bin) + slot(G) * k] = x[from];
      });
      if (bin == 0) exchange[slot(F / 2)] = x[0];
      SyncGroup<Form>(group);
      float power[R / 2], other_power[R / 2];
      Unrolled<R / 2>([&](auto k) {
        constexpr int from = Reversed(k, kBits);
        const float2 c = x[from], d = exchange[slot(F / 2 - bin) - slot(G) * k];
        const float ar = c.x + d.x, ai = c.y - d.y, br = c.x - d.x, bi = c.y + d.y;
        power[k] = fmaf(ar, ar, ai * ai);
        other_power[k] = fmaf(br, br, bi * bi);
      });
#pragma unroll 1
      for (int s = 0; s < 2; ++s) {
        const int64_t ascan = __shfl_sync(0xFFFFFFFFu, place, 2 * turn + s);
        if (ascan >= 0) Place<Form, Chain>(t, power, ascan, lane, bin, parts[group][s], target);  // the same for the whole group
#pragma unroll
        for (int k = 0; k < R / 2; ++k) power[k] = other_power[k];
      }
    } else {
      const float4* const complex_h = static_cast<const float4*>(t.h) + lane;
      float now[R], next[R];
      interpolate([&](int m, float2 y0, float2 y1) {
        now[m] = y0.x, next[m] = y0.y;
        now[m + R / 2] = y1.x, next[m + R / 2] = y1.y;
      });
      SyncGroup<Form>(group);
#pragma unroll 1
      for (int s = 0; s < 2; ++s) {
        float2 x[R];
#pragma unroll
        for (int m = 0; m < R / 2; ++m) {
          const float4 h = __ldg(complex_h + m * G);
          const float y0 = now[m], y1 = now[m + R / 2];
          const float2 right = make_float2(y1 * h.z, y1 * h.w);
          x[m] = make_float2(fmaf(y0, h.x, right.x), fmaf(y0, h.y, right.y));
          x[m + R / 2] = make_float2(fmaf(y0, h.x, -right.x), fmaf(y0, h.y, -right.y));
          now[m] = next[m], now[m + R / 2] = next[m + R / 2];
        }
        transform(x);
        const int64_t ascan = __shfl_sync(0xFFFFFFFFu, place, 2 * turn + s);
        if (ascan < 0) continue;  // the same for the whole group
        float power[R / 2];
        Unrolled<R / 2>([&](auto k) {
          constexpr int from = Reversed(k, kBits);
          power[k] = fmaf(x[from].x, x[from].x, x[from].y * x[from].y);
        });
        Place<Form, Chain>(t, power, ascan, lane, bin, parts[group][s], target);
      }
    }
    if constexpr (G == 32) {
      SyncGroup<Form>(group);
    } else {
      // After the transform with dispersion nobody reads the memory that the next A-scans are staged in: no need to wait.
      const bool projections = target.mip != nullptr || target.aip != nullptr;
      if (Form::kReal || projections) SyncGroup<Form>(group);
      if (projections) {
        const int64_t ascan = __shfl_sync(0xFFFFFFFFu, place, 2 * turn + lane % 2);
        if (lane < 2 && ascan >= 0) Join<Form, Chain>(t, parts[group][lane], ascan, target);
      }
    }
    turn = (turn + 1) % 16;
  }
}

template <class Form, class Chain>
void Launch(cudaStream_t stream, int sms, const FusedTables& tables, const void* raw, int64_t records, const RecordPlacement& placement,
            const SpectralTarget& target) {
  const int64_t each = 2 * Form::kThreads / Form::kGroup;  // records of a block at once
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(int64_t{sms} * Form::kBlocksPerSm, (records + each - 1) / each));
  FusedKernel<Form, Chain><<<blocks, Form::kThreads, 0, stream>>>(tables, static_cast<const uint8_t*>(raw), records, placement, target);
}

template <class Form>
void LaunchForm(cudaStream_t stream, int sms, const FusedTables& t, const void* raw, int64_t records, const RecordPlacement& placement,
                const SpectralTarget& target) {
  if (t.usual && t.pairs && t.raw == RawKind::kU16 && t.out == OutKind::kU8) {
    Launch<Form, UsualChain<RawKind::kU16, OutKind::kU8>>(stream, sms, t, raw, records, placement, target);
  } else if (t.usual && t.pairs && t.raw == RawKind::kLowFirst12 && t.out == OutKind::kU8) {
    Launch<Form, UsualChain<RawKind::kLowFirst12, OutKind::kU8>>(stream, sms, t, raw, records, placement, target);
  } else {
    Launch<Form, AnyChain>(stream, sms, t, raw, records, placement, target);
  }
}

template <int kRadix, int kSpread>
void LaunchLength(cudaStream_t stream, int sms, const FusedTables& t, const void* raw, int64_t records, const RecordPlacement& placement,
                  const SpectralTarget& target) {
  if (t.real) {
    LaunchForm<FusedForm<kRadix, kSpread, true>>(stream, sms, t, raw, records, placement, target);
  } else {
    LaunchForm<FusedForm<kRadix, kSpread, false>>(stream, sms, t, raw, records, placement, target);
  }
}

template <int kRadix, int kSpread>
constexpr FusedLength LengthOf() {
  return {.radix = kRadix, .spread = kSpread, .launch = LaunchLength<kRadix, kSpread>};
}

}  // namespace fused
}  // namespace octavo::cuda
