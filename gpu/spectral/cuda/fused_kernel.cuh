#pragma once

// Private to this folder: the kernel of the fused launch, a template over lengths. Each
// fused_LENGTH.cu instantiates it, and fused_spectral.cu chooses one.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "gpu/spectral/cuda/fused_finish.cuh"
#include "gpu/spectral/cuda/fused_stage.cuh"
#include "gpu/spectral/cuda/fused_tables.h"
#include "gpu/spectral/cuda/register_fft.cuh"

namespace octavo::inline gpu::cuda {

// The issue slots and the L1 and shared-memory pipe (128 bytes per clock and SM) bound the kernel
// about equally; device memory is far from its limit. Hence two A-scans at once share the loads of
// all tables up to the window; interpolation weights are computed instead of loaded; twiddles stay
// in registers for all A-scans of a persistent block and are fused into butterflies; and only the
// raw samples and the results cross the border of the SM.

/// A transform of length F = R R S. A group of G = R S threads processes two A-scans from raw
/// samples in shared memory to placed output, with R points per thread and one exchange through
/// shared memory between the two halves of the transform. Without dispersion (`real`) the two
/// A-scans are the real and the imaginary part of one transform.
template <int kRadix_, int kSpread_, bool kReal_>
struct FusedForm {
  static constexpr int kRadix = kRadix_, kSpread = kSpread_;
  static constexpr bool kReal = kReal_;
  static constexpr int kGroup = kRadix * kSpread, kLength = kRadix * kGroup;
  static constexpr int kThreads = kGroup == 64 || kGroup == 96 ? kGroup : 128;
  /// The bin below G of a lane. If S divides a warp, S neighbouring lanes have bins that differ by
  /// R and read the same numbers of the exchange, which costs one read.
  static constexpr bool kShared = kSpread == 2 || kSpread == 4;
  static __device__ int BinOf(int lane) {
    return kShared ? lane % kSpread * kRadix + lane / kSpread : lane;
  }
  // The number of twiddles in registers; the others are loaded at their use. This number and the
  // warps per SM were found by measurement.
  static constexpr int kTwiddlesKept = kSpread == 1                             ? kRadix / 2
                                       : kRadix == 32 && kSpread == 2 && !kReal ? 12
                                                                                : kRadix / 4;
  static constexpr int kWarpsPerSm = kRadix == 16 ? 20 : kReal && kSpread < 3 ? 16 : 12;
  static constexpr int kBlocksPerSm = kWarpsPerSm * 32 / kThreads;
};

/// Usual chains: cubic interpolation, dB, whole lower half, F samples per record, the given types.
/// They are known at compile time, because skipped code still costs instruction fetches.
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

template <class Form, class Chain>
__global__ __launch_bounds__(Form::kThreads, Form::kBlocksPerSm) void FusedKernel(
    const __grid_constant__ FusedTables t, const uint8_t* __restrict__ raw,
    const __grid_constant__ FusedUnits units, const __grid_constant__ RecordPlacement placement,
    const __grid_constant__ SpectralTarget target) {
  constexpr int R = Form::kRadix, S = Form::kSpread, G = Form::kGroup, F = Form::kLength,
                kGroups = Form::kThreads / G, kBits = Log2(R);
  constexpr int kPitch = G + 2;  // complex numbers between rows of the exchange, so that reads of
                                 // two at a time have no bank conflicts
  constexpr int kExchange = R * kPitch > F + 4 ? R * kPitch : F + 4;
  __shared__ float4 memory[kGroups][kExchange / 2];
  __shared__ SlabPart parts[kGroups][2][G / 32];
  __shared__ uint32_t clipped[2];  // voxels of the block
  if (threadIdx.x < 2) clipped[threadIdx.x] = 0;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % G, group = static_cast<int>(threadIdx.x) / G;
  const int bin = Form::BinOf(lane);
  float2* const exchange = reinterpret_cast<float2*>(memory[group]);
  float2* const staged =
      exchange +
      2;  // samples of both A-scans; one before and two after them repeat the end samples
  const uint32_t base = SharedAddress(staged);
  const float2* const twiddles = t.twiddle + bin;
  float2 kept[Form::kTwiddlesKept];
#pragma unroll
  for (int i = 0; i < Form::kTwiddlesKept; ++i) kept[i] = __ldg(twiddles + i * G);
  const auto twiddle = [&](auto i) {
    if constexpr (i < Form::kTwiddlesKept) {
      return kept[i];
    } else {  // loaded at its use and not before the loop, because registers are scarce
      float2 w;
      asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];"
                   : "=f"(w.x), "=f"(w.y)
                   : "l"(twiddles + i * G));
      return w;
    }
  };
  float2 spread[S];
#pragma unroll
  for (int j = 1; j < S; ++j) spread[j] = __ldg(twiddles + (R / 2 + j - 1) * G);

  // The transform from x[m] of the points lane + G m, whose first stage is done, to x[Reversed(k)]
  // of the bins bin + G k.
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

  // A block processes consecutive units, which nearly always belong to one group, so that its table
  // stays in the L1 cache.
  const int takers = static_cast<int>(gridDim.x) * kGroups,
            taker = static_cast<int>(blockIdx.x) * kGroups + group;
  const int share = units.units / takers, more = units.units % takers;
  int unit = taker * share + min(taker, more);
  const int last_unit = unit + share + (taker < more ? 1 : 0);
  int first = 2 * unit, end = units.head,
      row = units.first_group;  // first record of the unit; end and table of its group
  if (unit >= units.head_units) {
    const int beyond = unit - units.head_units, groups = beyond / units.group_units;
    first = units.head + groups * t.group_records + 2 * (beyond - groups * units.group_units);
    end = min(units.records, units.head + (groups + 1) * t.group_records);
    row = (row + groups + 1) % t.rows;
  }
  const float4* position = t.position + static_cast<int64_t>(row) * (F / 2) + lane;
  int64_t place = -1;  // lane l of a warp holds the place of record l % 2 of turn l / 2 of 16
  int turn = 0;
  for (; unit < last_unit; ++unit) {
    const bool two = first + 1 < end;
    const uint8_t *a = raw + first * t.record_bytes, *b = two ? a + t.record_bytes : a;
    if constexpr (Chain::kUsual) {
      Stage<Chain::kRaw, G, F>(t, a, b, lane, staged);
    } else {
      StageAny<G>(t, a, b, lane, staged);
    }
    if (first + 3 < end && unit + 1 < last_unit &&
        lane * 128 < 2 * t.record_bytes) {  // prefetches the next two records into the L2 cache
      asm volatile("prefetch.global.L2 [%0];" ::"l"(a + 2 * t.record_bytes + lane * 128));
    }
    SyncGroup<Form>(group);
    if (turn == 0) {
      const int record = first + lane % 32;
      place = record < end ? AscanOf(placement, record) : -1;
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
      const auto slot = [](int i) {
        return i + (Form::kShared ? i / R * (16 / S) : 0);
      };  // without bank conflicts
      // Separates the two spectra from bins k and F - k, which another thread holds, by the sum
      // with the conjugate and the difference.
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
        if (ascan >= 0)
          Place<Form, Chain>(t, power, ascan, lane, bin, parts[group][s], target,
                             clipped);  // the same for the whole group
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
        Place<Form, Chain>(t, power, ascan, lane, bin, parts[group][s], target, clipped);
      }
    }
    if constexpr (G == 32) {
      SyncGroup<Form>(group);
    } else {
      // After the transform with dispersion no thread reads the memory in which the next A-scans
      // are staged, so no thread needs to wait.
      const bool projections = target.mip != nullptr || target.aip != nullptr;
      if (Form::kReal || projections) SyncGroup<Form>(group);
      if (projections) {
        const int64_t ascan = __shfl_sync(0xFFFFFFFFu, place, 2 * turn + lane % 2);
        if (lane < 2 && ascan >= 0) Join<Form, Chain>(t, parts[group][lane], ascan, target);
      }
    }
    turn = (turn + 1) % 16;
    first += 2;
    if (first >= end) {  // continues with the next group
      first = end;
      end = min(units.records, end + t.group_records);
      row = row + 1 < t.rows ? row + 1 : 0;
      position = t.position + static_cast<int64_t>(row) * (F / 2) + lane;
      turn = 0;
    }
  }
  if (target.clipped == nullptr) return;
  __syncthreads();
  if (threadIdx.x < 2 && clipped[threadIdx.x] != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(target.clipped) + threadIdx.x,
              static_cast<unsigned long long>(clipped[threadIdx.x]));  // NOLINT
  }
}

template <class Form, class Chain>
void Launch(cudaStream_t stream, int sms, const FusedTables& tables, const void* raw,
            const FusedUnits& units, const RecordPlacement& placement,
            const SpectralTarget& target) {
  constexpr int kEach = Form::kThreads / Form::kGroup;  // units of a block at once
  const auto blocks =
      static_cast<unsigned>(std::min(sms * Form::kBlocksPerSm, (units.units + kEach - 1) / kEach));
  FusedKernel<Form, Chain><<<blocks, Form::kThreads, 0, stream>>>(
      tables, static_cast<const uint8_t*>(raw), units, placement, target);
}

template <class Form>
void LaunchForm(cudaStream_t stream, int sms, const FusedTables& t, const void* raw,
                const FusedUnits& units, const RecordPlacement& placement,
                const SpectralTarget& target) {
  const bool usual = t.usual && t.pairs;
  if (usual && t.raw == RawKind::kU16 && t.out == OutKind::kU8) {
    Launch<Form, UsualChain<RawKind::kU16, OutKind::kU8>>(stream, sms, t, raw, units, placement,
                                                          target);
  } else if (usual && t.raw == RawKind::kU16 && t.out == OutKind::kU16) {
    Launch<Form, UsualChain<RawKind::kU16, OutKind::kU16>>(stream, sms, t, raw, units, placement,
                                                           target);
  } else if (usual && t.raw == RawKind::kLowFirst12 && t.out == OutKind::kU8) {
    Launch<Form, UsualChain<RawKind::kLowFirst12, OutKind::kU8>>(stream, sms, t, raw, units,
                                                                 placement, target);
  } else if (usual && t.raw == RawKind::kLowFirst12 && t.out == OutKind::kU16) {
    Launch<Form, UsualChain<RawKind::kLowFirst12, OutKind::kU16>>(stream, sms, t, raw, units,
                                                                  placement, target);
  } else {
    Launch<Form, AnyChain>(stream, sms, t, raw, units, placement, target);
  }
}

template <int kRadix, int kSpread>
void LaunchLength(cudaStream_t stream, int sms, const FusedTables& t, const void* raw,
                  const FusedUnits& units, const RecordPlacement& placement,
                  const SpectralTarget& target) {
  if (t.real) {
    LaunchForm<FusedForm<kRadix, kSpread, true>>(stream, sms, t, raw, units, placement, target);
  } else {
    LaunchForm<FusedForm<kRadix, kSpread, false>>(stream, sms, t, raw, units, placement, target);
  }
}

template <int kRadix, int kSpread>
constexpr FusedLength LengthOf() {
  return {.radix = kRadix, .spread = kSpread, .launch = LaunchLength<kRadix, kSpread>};
}

}  // namespace fused
}  // namespace octavo::inline gpu::cuda
