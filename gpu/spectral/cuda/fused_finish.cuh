#pragma once

// Private to this folder: the last steps of the fused kernel, from power to placed voxels and en
// face projections.

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "gpu/math/placement.h"
#include "gpu/math/spectral.h"
#include "gpu/spectral/cuda/fused_stage.cuh"
#include "gpu/spectral/cuda/fused_tables.h"

namespace octavo::inline gpu::cuda::fused {

// math::RasterAscan, without 64-bit divisions if the numbers allow it.
__device__ inline int64_t AscanOf(const RecordPlacement& placement, int64_t record) {
  if (placement.table != nullptr) return placement.table[record];
  const int64_t at = placement.first_record + record,
                line = placement.raster.ascans_per_bscan + placement.raster.flyback_records;
  if (at < 0 || at > INT32_MAX || line > INT32_MAX) return math::RasterAscan(placement.raster, at);
  const uint32_t y = static_cast<uint32_t>(at) / static_cast<uint32_t>(line),
                 x = static_cast<uint32_t>(at) - y * static_cast<uint32_t>(line);
  if (y >= placement.raster.bscans_per_volume || x >= placement.raster.ascans_per_bscan) return -1;
  const int64_t across =
      (placement.raster.bidirectional && (y & 1)) ? placement.raster.ascans_per_bscan - 1 - x : x;
  return y * placement.raster.ascans_per_bscan + across;
}

/// fmaxf returns the number if the other argument is NaN.
__device__ __forceinline__ float MaxOrNan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

/// The measure in which levels are linear: log2 of the power for dB, the power, or the magnitude.
template <math::Value kValue, bool kFloor>
__device__ __forceinline__ float MeasureOf(float power) {
  float v = power;
  if constexpr (kValue == math::Value::kDb) {
    if (kFloor) power = MaxOrNan(power, math::kPowerFloor);
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(power));
  } else if constexpr (kValue == math::Value::kMagnitude) {
    asm("sqrt.approx.f32 %0, %1;" : "=f"(v) : "f"(power));
  }
  return v;
}

template <OutKind kOut>
using OutType = std::conditional_t<kOut == OutKind::kU8, uint8_t,
                                   std::conditional_t<kOut == OutKind::kU16, uint16_t, float>>;

/// The integer, in the low bits, for a share of the type's range. 0 ... 1 maps to -0.5 ... top +
/// 0.5, so that rounding down then rounds half up.
__device__ __forceinline__ float IntegerOf(OutKind kind, float share) {
  return __fmaf_rd(share, (kind == OutKind::kU8 ? 256.0f : 65536.0f) * 0.99999994f, kMagic);
}

// Bits of 1.0f. Read as an unsigned integer, the bits of a number are below these exactly if the
// number is at least 0 and less than 1; the bits of negative numbers, NaN and larger numbers are
// not. So the largest of many bits shows whether any number is outside.
constexpr uint32_t kOneBits = 0x3F800000u;

// Step 6 for a thread's bins: replaces `power` with its value in levels; for integers with the
// share of the type's range.
template <math::Value kValue, bool kFloor, int kBins>
__device__ __forceinline__ void Measure(const FusedTables& t, float (&power)[kBins]) {
#pragma unroll
  for (int k = 0; k < kBins; ++k)
    power[k] = fmaf(MeasureOf<kValue, kFloor>(power[k]), t.value_scale, t.value_offset);
}
template <int kBins>
__device__ __forceinline__ void MeasureAny(const FusedTables& t, float (&power)[kBins]) {
  switch (t.value) {
    case math::Value::kMagnitude: Measure<math::Value::kMagnitude, false>(t, power); break;
    case math::Value::kPower: Measure<math::Value::kPower, false>(t, power); break;
    default: Measure<math::Value::kDb, true>(t, power); break;
  }
}

// The rare case, in a function of its own: some voxel of the warp is clipped. Clamps a thread's
// shares to 0 ... 1 (NaN to 0), adds the number of those outside to the count of the block in
// shared memory, and returns the thread's largest share as bits.
template <bool kWhole, int kStep, int kBins>
__device__ __forceinline__ uint32_t Clip(const FusedTables& t, float (&share)[kBins], int first,
                                         int lane, uint32_t* clipped) {
  // No power has the measure of the floor.
  const float floor = t.value == math::Value::kDb ? fmaf(MeasureOf<math::Value::kDb, true>(0),
                                                         t.value_scale, t.value_offset)
                                                  : -INFINITY;
  uint32_t below = 0, above = 0, most = 0;
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    const bool kept =
        kWhole || static_cast<unsigned>(first + kStep * k) < static_cast<unsigned>(t.depth);
    share[k] = MaxOrNan(share[k], floor);
    below += kept && !(share[k] >= 0) ? 1 : 0;
    above += kept && share[k] >= 1 ? 1 : 0;
    share[k] = __saturatef(share[k]);
    most = max(most, __float_as_uint(share[k]));
  }
  const uint32_t both = __reduce_add_sync(0xFFFFFFFFu, below | above << 16);  // at most 512 each
  if (lane % 32 == 0) {
    if ((both & 0xFFFFu) != 0) atomicAdd(&clipped[0], both & 0xFFFFu);
    if (both >> 16 != 0) atomicAdd(&clipped[1], both >> 16);
  }
  return most;
}

// Step 7 for a thread's bins first + kStep k, to integers: stores them and counts the clipped ones.
// Returns the thread's largest share as bits. kWhole: the whole lower half of the bins is kept.
// Usually no voxel of a warp is clipped. A vote on the largest shares (kOneBits), which an en face
// maximum needs anyway, detects this, and then the warp need not clip or count. To count every
// voxel would cost several percent of the chain.
template <OutKind kOut, bool kWhole, int kStep, int kBins>
__device__ __forceinline__ uint32_t StoreIntegers(const FusedTables& t, float (&share)[kBins],
                                                  int first, int lane, void* ascan,
                                                  uint32_t* clipped) {
  OutType<kOut>* const out = static_cast<OutType<kOut>*>(ascan) + first;
  uint32_t most = 0;
#pragma unroll
  for (int k = 0; k < kBins; k += 2)
    most = __vimax3_u32(most, __float_as_uint(share[k]), __float_as_uint(share[k + 1]));
  if (__builtin_expect(__any_sync(0xFFFFFFFFu, most >= kOneBits), 0))
    most = Clip<kWhole, kStep>(t, share, first, lane, clipped);
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    const bool kept =
        kWhole || static_cast<unsigned>(first + kStep * k) < static_cast<unsigned>(t.depth);
    if (kept)
      out[kStep * k] = static_cast<OutType<kOut>>(__float_as_uint(IntegerOf(kOut, share[k])));
  }
  return most;
}

// The same for f32.
template <int kStep, int kBins>
__device__ __forceinline__ void StoreFloats(const FusedTables& t, const float (&number)[kBins],
                                            int first, void* ascan) {
  float* const out = static_cast<float*>(ascan) + first;
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    if (static_cast<unsigned>(first + kStep * k) < static_cast<unsigned>(t.depth))
      out[kStep * k] = number[k];
  }
}

// Converts a number to an unsigned integer with the same order, and back.
__device__ __forceinline__ uint32_t OrderOf(float v) {
  const uint32_t bits = __float_as_uint(v);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float OfOrder(uint32_t order) {
  return __uint_as_float(order >> 31 != 0 ? order & 0x7FFFFFFFu : ~order);
}

/// The maximum and the sum over a warp's part of a slab.
struct SlabPart {
  uint32_t most;
  float sum;
};

// Makes the en face projections of an A-scan from those of its warps.
template <class Form, class Chain>
__device__ __forceinline__ void Join(const FusedTables& t,
                                     const SlabPart (&parts)[Form::kGroup / 32], int64_t ascan,
                                     const SpectralTarget& target) {
  OutKind kind = t.out;
  if constexpr (Chain::kUsual) kind = Chain::kOut;
  SlabPart slab = parts[0];
#pragma unroll
  for (int w = 1; w < Form::kGroup / 32; ++w)
    slab = {max(slab.most, parts[w].most), slab.sum + parts[w].sum};
  if (target.mip != nullptr) {
    if (kind == OutKind::kF32) {
      static_cast<float*>(target.mip)[ascan] = OfOrder(slab.most);
    } else if (kind == OutKind::kU16) {
      static_cast<uint16_t*>(target.mip)[ascan] = static_cast<uint16_t>(slab.most);
    } else {
      static_cast<uint8_t*>(target.mip)[ascan] = static_cast<uint8_t>(slab.most);
    }
  }
  if (target.aip != nullptr)
    target.aip[ascan] = slab.sum / static_cast<float>(t.slab_end - t.slab_begin);
}

// Steps 6 and 7 and placement of one A-scan. A thread holds the bins bin + G k below F/2. Writes
// each warp's part of the slab. `clipped`: counts of the block, shared memory [2].
template <class Form, class Chain>
__device__ __forceinline__ void Place(const FusedTables& t, float (&power)[Form::kRadix / 2],
                                      int64_t ascan, int lane, int bin,
                                      SlabPart (&part)[Form::kGroup / 32],
                                      const SpectralTarget& target, uint32_t* clipped) {
  constexpr int kGroup = Form::kGroup, kBins = Form::kRadix / 2;
  OutKind kind = t.out;
  if constexpr (Chain::kUsual) kind = Chain::kOut;
  const int64_t bytes = kind == OutKind::kU8 ? 1 : kind == OutKind::kU16 ? 2 : 4;
  void* out = static_cast<uint8_t*>(target.volume) + ascan * t.depth * bytes;
  const int first = Chain::kUsual ? bin : bin - t.first_bin;
  uint32_t most = 0;  // an unsigned integer with the order of the value it represents; shares of 0
                      // ... 1 need no conversion
  if constexpr (Chain::kUsual) {
    Measure<math::Value::kDb, false>(t, power);
    most = StoreIntegers<Chain::kOut, true, kGroup>(t, power, first, lane, out, clipped);
  } else {
    MeasureAny(t, power);
    switch (kind) {
      case OutKind::kU8:
        StoreIntegers<OutKind::kU8, false, kGroup>(t, power, first, lane, out, clipped);
        break;
      case OutKind::kU16:
        StoreIntegers<OutKind::kU16, false, kGroup>(t, power, first, lane, out, clipped);
        break;
      default: StoreFloats<kGroup>(t, power, first, out); break;
    }
  }
  if (target.mip == nullptr && target.aip == nullptr) return;
  const auto in_slab = [&](int k) {
    return Chain::kUsual || (first + kGroup * k >= t.slab_begin && first + kGroup * k < t.slab_end);
  };
  if (kind == OutKind::kF32) {
    float v = -INFINITY;
#pragma unroll
    for (int k = 0; k < kBins; ++k) v = in_slab(k) ? fmaxf(v, power[k]) : v;
    most = OrderOf(v);
  } else if (!Chain::kUsual) {
#pragma unroll
    for (int k = 0; k < kBins; k += 2) {
      most = __vimax3_u32(most, in_slab(k) ? __float_as_uint(power[k]) : 0,
                          in_slab(k + 1) ? __float_as_uint(power[k + 1]) : 0);
    }
  }
  most = __reduce_max_sync(0xFFFFFFFFu, most);  // of the warp
  if (kind != OutKind::kF32) most = __float_as_uint(IntegerOf(kind, __uint_as_float(most)));
  float sum = 0;
  if (target.aip != nullptr) {
#pragma unroll
    for (int k = 0; k < kBins; ++k)
      sum += !in_slab(k)             ? 0.0f
             : kind == OutKind::kF32 ? power[k]
                                     : IntegerOf(kind, power[k]) - kMagic;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  }
  if constexpr (kGroup == 32) {
    if (lane == 0) Join<Form, Chain>(t, {{most, sum}}, ascan, target);
  } else {
    if (lane % 32 == 0) part[lane / 32] = {most, sum};
  }
}

}  // namespace octavo::inline gpu::cuda::fused
