#pragma once

// Private to this folder: kernels of the chain's steps before and after a transform by cuFFT;
// spectral.cu launches them.

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "gpu/math/element.h"
#include "gpu/math/projection.h"
#include "gpu/spectral/cuda/raw_rows.cuh"
#include "gpu/spectral/spectral.h"

namespace octavo::inline gpu::cuda {

inline constexpr int kPrepareThreads = 256, kFinishThreads = 128;

/// Device tables and numbers of a chain.
struct Tables {
  RawRows rows;
  int64_t average;                          // rows of a record
  int64_t n, fft, pitch, first_bin, depth;  // pitch: complex numbers from one spectrum to the next
  math::Interpolation interpolation;
  const int32_t* tap;
  const float* weights;     // [n][taps]
  const float2* h;          // window × dispersion × 1/F
  const float* background;  // null = none
  int64_t background_step;  // floats from one run's background to the next one's; 0 = the same for
                            // all runs
  int64_t group_records;    // > 0: group g of the volume has background g % group_rows
  int64_t group_rows;
  const float2* pattern;  // [run, depth]; null = none
  math::Value value;
  bool scaled;
  float scale, offset, bottom, top;
  int64_t slab_begin, slab_end;
  int64_t repeat_ascans;
};

__device__ inline int64_t Clamp(int64_t i, int64_t samples) {
  return i < 0 ? 0 : i >= samples ? samples - 1 : i;
}

// The position of the launch's record `b`, and its run.
struct Place {
  int64_t record, run;
};
__device__ inline Place PlaceOf(const RecordRuns& runs, unsigned b) {
  if (runs.runs == 1) return {b, 0};
  const unsigned run = b / static_cast<unsigned>(runs.active);
  return {static_cast<int64_t>(run) * runs.pitch + b % static_cast<unsigned>(runs.active), run};
}

// Steps 1 to 3 and the zero padding: one block per record, staged in shared memory. kReal: rows of
// real numbers for the real transform.
template <typename T, bool kStaged, bool kReal>
__global__ void PrepareKernel(Tables t, const uint8_t* raw, RecordRuns runs, int64_t first_record,
                              float2* out) {
  extern __shared__ float staged[];
  const Place place = PlaceOf(runs, blockIdx.x);
  const uint8_t* record = raw + place.record * t.average * t.rows.bytes;
  const float* background =
      t.background == nullptr ? nullptr : t.background + place.run * t.background_step;
  if (t.group_records > 0)
    background += (first_record + place.record) / t.group_records % t.group_rows * t.rows.samples;
  float2* spectrum = out + static_cast<int64_t>(blockIdx.x) * t.pitch;
  const auto load = [&](int64_t i) {
    float v = static_cast<float>(ReadSample<T>(t.rows, record, i));
    if (t.average > 1) {
      for (int64_t r = 1; r < t.average; ++r)
        v += static_cast<float>(ReadSample<T>(t.rows, record + r * t.rows.bytes, i));
      v *= 1.0f / static_cast<float>(t.average);
    }
    return v - (background != nullptr ? background[i] : 0.0f);
  };
  if constexpr (kStaged) {
    for (int64_t i = threadIdx.x; i < t.rows.samples; i += blockDim.x) staged[i] = load(i);
    __syncthreads();
  }
  const auto at = [&](int64_t i) {
    i = Clamp(i, t.rows.samples);
    if constexpr (kStaged) {
      return staged[i];
    } else {
      return load(i);
    }
  };
  for (int64_t j = threadIdx.x; j < t.fft; j += blockDim.x) {
    float v = 0;
    if (j < t.n) {
      if (t.interpolation == math::Interpolation::kNone) {
        v = at(j);
      } else if (t.interpolation == math::Interpolation::kLinear) {
        const int64_t i = t.tap[j];
        v = t.weights[2 * j] * at(i) + t.weights[2 * j + 1] * at(i + 1);
      } else if (t.interpolation == math::Interpolation::kCubic) {
        const int64_t i = t.tap[j];
        const float4 w = reinterpret_cast<const float4*>(t.weights)[j];
        v = w.x * at(i - 1) + w.y * at(i) + w.z * at(i + 1) + w.w * at(i + 2);
      } else {
        const int64_t i = t.tap[j];
        const float4 w = reinterpret_cast<const float4*>(t.weights)[2 * j],
                     u = reinterpret_cast<const float4*>(t.weights)[2 * j + 1];
        v = w.x * at(i - 3) + w.y * at(i - 2) + w.z * at(i - 1) + w.w * at(i) + u.x * at(i + 1) +
            u.y * at(i + 2) + u.z * at(i + 3) + u.w * at(i + 4);
      }
    }
    const float2 h = j < t.n ? t.h[j] : make_float2(0, 0);
    if constexpr (kReal) {
      reinterpret_cast<float*>(spectrum)[j] = v * h.x;
    } else {
      spectrum[j] = make_float2(v * h.x, v * h.y);
    }
  }
}

// Depth sample z of a spectrum. The real transform is a forward transform with half of the bins;
// symmetry gives its depth samples.
template <bool kReal>
__device__ inline float2 DepthSample(const Tables& t, const float2* spectrum, int64_t z) {
  const int64_t bin = t.first_bin + z;
  if constexpr (kReal) {
    if (2 * bin > t.fft) return spectrum[t.fft - bin];
    const float2 c = spectrum[bin];
    return make_float2(c.x, -c.y);
  } else {
    return spectrum[bin];
  }
}

// Converts a number to its stored form and back.
template <typename T>
__device__ inline T Stored(const Tables& t, float v) {
  if constexpr (std::is_same_v<T, math::Half>) {
    return {math::FloatToHalf(v)};
  } else if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<int8_t>(math::QuantiseSigned(v, t.bottom, t.top));
  } else if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    return static_cast<T>(math::Quantise(v, t.top));
  }
}
template <typename T>
__device__ inline float NumberOf(T v) {
  if constexpr (std::is_same_v<T, math::Half>) {
    return math::HalfToFloat(v.bits);
  } else {
    return static_cast<float>(v);
  }
}

// Steps 6 and 7, placement and en face projections: one block per A-scan. T: element of the volume.
template <typename T, bool kReal>
__global__ void FinishKernel(Tables t, const float2* spectra, RecordRuns runs,
                             RecordPlacement placement, SpectralTarget target, RepeatSums repeats) {
  using P = decltype(math::Projected(T{}));
  const Place place = PlaceOf(runs, blockIdx.x);
  const int64_t ascan =
      placement.table != nullptr
          ? placement.table[place.record]
          : math::RasterAscan(placement.raster, placement.first_record + place.record);
  if (ascan < 0 || ascan >= target.volume_ascans) return;
  const float2* in = spectra + static_cast<int64_t>(blockIdx.x) * t.pitch;
  const float2* pattern = t.pattern == nullptr ? nullptr : t.pattern + place.run * t.depth;
  T* out = static_cast<T*>(target.volume) + ascan * t.depth;
  float* sums = nullptr;
  int32_t before = 0;
  if (t.repeat_ascans > 0) {  // the same for all threads
    const int64_t slot = ascan % t.repeat_ascans;
    sums = repeats.power + slot * t.depth;
    before = repeats.owner[slot] == static_cast<int32_t>(ascan) ? repeats.count[slot] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      repeats.owner[slot] = static_cast<int32_t>(ascan);
      repeats.count[slot] = before + 1;
    }
  }
  uint32_t below = 0, above = 0;  // clipped
  float most = std::is_same_v<P, int8_t> ? -128.0f
               : std::is_integral_v<P>   ? 0.0f
                                         : -INFINITY,
        sum = 0;
  for (int64_t z = threadIdx.x; z < t.depth; z += blockDim.x) {
    float2 c = DepthSample<kReal>(t, in, z);
    if (pattern != nullptr) c = make_float2(c.x - pattern[z].x, c.y - pattern[z].y);
    float number;
    if constexpr (std::is_same_v<T, math::Complex64>) {
      out[z] = {c.x, c.y};
      number = math::ValueOf(t.value, c.x, c.y);
    } else {
      float v;
      if (sums != nullptr) {
        sums[z] = math::JoinRepeat(before == 0 ? 0.0f : sums[z], before, c.x * c.x + c.y * c.y);
        v = math::ValueOfPower(t.value, math::MeanOfRepeats(sums[z], before + 1));
      } else {
        v = math::ValueOf(t.value, c.x, c.y);
      }
      if (t.scaled) v = math::ToLevels(v, t.scale, t.offset);
      if constexpr (std::is_integral_v<T>) {
        below += math::ClippedBelow(v, t.bottom);
        above += math::ClippedAbove(v, t.top);
      }
      const T stored = Stored<T>(t, v);
      out[z] = stored;
      number = NumberOf(stored);
    }
    if (z >= t.slab_begin && z < t.slab_end) {
      most = fmaxf(most, number);
      sum += number;
    }
  }
  const bool count =
      std::is_integral_v<T> && target.clipped != nullptr;                // the same for all threads
  if (!count && target.mip == nullptr && target.aip == nullptr) return;  // the same for all threads
  __shared__ float mosts[kFinishThreads / 32], block_sums[kFinishThreads / 32];
  __shared__ uint32_t clipped[kFinishThreads / 32][2];
  for (int offset = 16; offset > 0; offset /= 2) {
    most = fmaxf(most, __shfl_down_sync(0xFFFFFFFFu, most, offset));
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  }
  if (count) {
    below = __reduce_add_sync(0xFFFFFFFFu, below);
    above = __reduce_add_sync(0xFFFFFFFFu, above);
  }
  if ((threadIdx.x & 31) == 0) {
    clipped[threadIdx.x / 32][0] = below;
    clipped[threadIdx.x / 32][1] = above;
    mosts[threadIdx.x / 32] = most;
    block_sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kFinishThreads / 32; ++w) {
    most = fmaxf(most, mosts[w]);
    sum += block_sums[w];
    below += clipped[w][0];
    above += clipped[w][1];
  }
  if (count) {
    const uint32_t counts[2] = {below, above};
    for (int end = 0; end < 2; ++end) {
      unsigned long long added = counts[end];  // NOLINT: the type of atomicAdd
      if (sums != nullptr) {  // the previous mean was overwritten, so its count is subtracted
        uint32_t& last = repeats.clipped[2 * (ascan % t.repeat_ascans) + end];
        if (before > 0) added -= last;
        last = counts[end];
      }
      if (added != 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(target.clipped) + end, added);  // NOLINT
    }
  }
  if (target.mip != nullptr) {
    if constexpr (std::is_same_v<P, math::Half>) {
      static_cast<P*>(target.mip)[ascan] = {math::FloatToHalf(most)};
    } else {
      static_cast<P*>(target.mip)[ascan] = static_cast<P>(most);
    }
  }
  if (target.aip != nullptr)
    target.aip[ascan] = sum / static_cast<float>(t.slab_end - t.slab_begin);
}

}  // namespace octavo::inline gpu::cuda
