#pragma once

// Private to gpu/cuda: the last steps of the fused kernel, power to placed voxels and en face projections.

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "gpu/cuda/fused_stage.cuh"
#include "gpu/cuda/fused_tables.h"
#include "gpu/math/placement.h"
#include "gpu/math/spectral.h"

namespace octavo::cuda::fused {

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

/// The integer that a share of the type's range stands for, in the low bits: 0 ... 1 is -0.5 ... top + 0.5, and rounding down after that
/// rounds half up.
__device__ __forceinline__ float IntegerOf(OutKind kind, float share) {
  return __fmaf_rd(share, (kind == OutKind::kU8 ? 256.0f : 65536.0f) * 0.99999994f, kMagic);
}

// Steps 6 and 7 of a thread's bins first + kStep k: stores them; `power` becomes what is stored, of integers their share of the type's
// range: 0 where a voxel is clipped below (or NaN), 1 where it is clipped above. kWhole: all of the lower half of the bins is kept.
template <OutKind kOut, math::Value kValue, bool kFloor, bool kWhole, int kStep, int kBins>
__device__ __forceinline__ void Finish(const FusedTables& t, float (&power)[kBins], int first, void* ascan) {
  using Out = OutType<kOut>;
  Out* out = static_cast<Out*>(ascan) + first;
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    const bool kept = kWhole || static_cast<unsigned>(first + kStep * k) < static_cast<unsigned>(t.depth);
    float number = fmaf(MeasureOf<kValue, kFloor>(power[k]), t.value_scale, t.value_offset);
    if constexpr (kOut == OutKind::kF32) {
      if (kept) out[kStep * k] = number;
    } else {
      number = __saturatef(number);  // takes NaN to 0
      if (kept) out[kStep * k] = static_cast<Out>(__float_as_uint(IntegerOf(kOut, number)));
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

// Adds a warp's clipped voxels to those of its block, which are in shared memory. Voxels are clipped where their share of the range is
// 0 or 1; mostly none of a warp is, and then the smallest and the largest share are all that is looked at: a count of every voxel costs
// several percent of the chain. `most`: the largest share of the thread's bins.
template <bool kWhole, int kStep, int kBins>
__device__ __forceinline__ void CountClipped(const FusedTables& t, const float (&share)[kBins], uint32_t most, int first, int lane,
                                             uint32_t* clipped) {
  constexpr uint32_t kOne = 0x3F800000u;
  uint32_t least = kOne;
#pragma unroll
  for (int k = 0; k < kBins; k += 2) least = __vimin3_u32(least, __float_as_uint(share[k]), __float_as_uint(share[k + 1]));
  if (__builtin_expect(__any_sync(0xFFFFFFFFu, least == 0 || most == kOne) == 0, 1)) return;
  uint32_t below = 0, above = 0;
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    const bool kept = kWhole || static_cast<unsigned>(first + kStep * k) < static_cast<unsigned>(t.depth);
    below += kept && share[k] == 0.0f ? 1 : 0;
    above += kept && share[k] == 1.0f ? 1 : 0;
  }
  const uint32_t both = __reduce_add_sync(0xFFFFFFFFu, below | above << 16);  // at most 512 each
  if (lane % 32 == 0) {
    if ((both & 0xFFFFu) != 0) atomicAdd(&clipped[0], both & 0xFFFFu);
    if (both >> 16 != 0) atomicAdd(&clipped[1], both >> 16);
  }
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
// `clipped`: shared memory [2], counts of the block.
template <class Form, class Chain>
__device__ __forceinline__ void Place(const FusedTables& t, float (&power)[Form::kRadix / 2], int64_t ascan, int lane, int bin,
                                      SlabPart (&part)[Form::kGroup / 32], const SpectralTarget& target, uint32_t* clipped) {
  constexpr int kGroup = Form::kGroup, kBins = Form::kRadix / 2;
  OutKind kind = t.out;
  if constexpr (Chain::kUsual) kind = Chain::kOut;
  const int64_t bytes = kind == OutKind::kU8 ? 1 : kind == OutKind::kU16 ? 2 : 4;
  void* out = static_cast<uint8_t*>(target.volume) + ascan * t.depth * bytes;
  const int first = Chain::kUsual ? bin : bin - t.first_bin;
  if constexpr (Chain::kUsual) {
    Finish<Chain::kOut, math::Value::kDb, Chain::kOut != OutKind::kU8, true, kGroup>(t, power, first, out);
  } else {
    switch (kind) {
      case OutKind::kU8: FinishAny<OutKind::kU8, kGroup>(t, power, first, out); break;
      case OutKind::kU16: FinishAny<OutKind::kU16, kGroup>(t, power, first, out); break;
      default: FinishAny<OutKind::kF32, kGroup>(t, power, first, out); break;
    }
  }
  const bool projections = target.mip != nullptr || target.aip != nullptr, count = kind != OutKind::kF32 && target.clipped != nullptr;
  if (!projections && !count) return;
  // As unsigned integers that are ordered like what they stand for: shares of 0 ... 1 are so already.
  uint32_t most = 0;
  if (kind != OutKind::kF32) {
#pragma unroll
    for (int k = 0; k < kBins; k += 2) most = __vimax3_u32(most, __float_as_uint(power[k]), __float_as_uint(power[k + 1]));
    if (count) CountClipped<Chain::kUsual, kGroup>(t, power, most, first, lane, clipped);
  }
  if (!projections) return;
  const auto in_slab = [&](int k) { return Chain::kUsual || (first + kGroup * k >= t.slab_begin && first + kGroup * k < t.slab_end); };
  if (kind == OutKind::kF32) {
    float v = -INFINITY;
#pragma unroll
    for (int k = 0; k < kBins; ++k) v = in_slab(k) ? fmaxf(v, power[k]) : v;
    most = OrderOf(v);
  } else if (!Chain::kUsual) {
    most = 0;
#pragma unroll
    for (int k = 0; k < kBins; k += 2) {
      most = __vimax3_u32(most, in_slab(k) ? __float_as_uint(power[k]) : 0, in_slab(k + 1) ? __float_as_uint(power[k + 1]) : 0);
    }
  }
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  if (kind != OutKind::kF32) most = __float_as_uint(IntegerOf(kind, __uint_as_float(most)));
  float sum = 0;
  if (target.aip != nullptr) {
#pragma unroll
    for (int k = 0; k < kBins; ++k) sum += !in_slab(k) ? 0.0f : kind == OutKind::kF32 ? power[k] : IntegerOf(kind, power[k]) - kMagic;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  }
  if constexpr (kGroup == 32) {
    if (lane == 0) Join<Form, Chain>(t, {{most, sum}}, ascan, target);
  } else {
    if (lane % 32 == 0) part[lane / 32] = {most, sum};
  }
}

}  // namespace octavo::cuda::fused
