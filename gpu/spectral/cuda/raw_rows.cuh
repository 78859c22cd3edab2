#pragma once

// Private to this folder: samples of raw records in device memory.

#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>

#include "gpu/math/raw.h"
#include "gpu/spectral/spectral.h"

namespace octavo::inline gpu::cuda {

/// The raw type that represents packed 12-bit samples.
struct Packed12 {};
/// The type in which a sample of a raw type is kept.
template <typename T>
using Kept = std::conditional_t<std::is_same_v<T, Packed12>, uint16_t, T>;

/// Calls f with a value of the type of `config`'s raw samples.
template <class F>
auto ForRawType(const SpectralConfig& config, F f) {
  if (config.packing != math::Packing::kNone) return f(Packed12{});
  switch (config.raw_type) {
    case DType::kU8: return f(uint8_t{});
    case DType::kI16: return f(int16_t{});
    case DType::kF32: return f(float{});
    default: return f(uint16_t{});
  }
}

/// The layout of the samples of a raw record (a row) in memory.
struct RawRows {
  int64_t samples, bytes, channels, channel;
  math::Packing packing;
};
inline RawRows RawRowsOf(const SpectralConfig& c) {
  return {.samples = c.samples_per_record,
          .bytes = RecordBytes(c) / c.record_average,
          .channels = c.channels,
          .channel = c.channel,
          .packing = c.packing};
}

/// Sample j of the chosen channel of a row.
template <typename T>
__device__ inline Kept<T> ReadSample(const RawRows& rows, const uint8_t* row, int64_t j) {
  const int64_t i = rows.channels == 1 ? j : j * rows.channels + rows.channel;
  if constexpr (std::is_same_v<T, Packed12>) {
    return static_cast<uint16_t>(math::ReadPacked12(rows.packing, row, i));
  } else {
    return reinterpret_cast<const T*>(row)[i];
  }
}

/// Eight neighbouring samples in the kept type, aligned so that loads and stores take few words.
template <typename T>
struct alignas(sizeof(Kept<T>) == 1 ? 8 : 16) EightSamples {
  Kept<T> at[8];
};

/// Samples 8 i ... 8 i + 7 of a row of one channel. The row must begin at a multiple of four bytes
/// (packed) or of eight samples.
template <typename T>
__device__ __forceinline__ EightSamples<T> ReadEight(const RawRows& rows, const uint8_t* row,
                                                     int64_t i) {
  if constexpr (std::is_same_v<T, Packed12>) {
    const auto* words = reinterpret_cast<const uint32_t*>(row) + 3 * i;
    const uint32_t a = __ldg(words), b = __ldg(words + 1), c = __ldg(words + 2);
    const uint32_t pairs[4] = {a, __funnelshift_r(a, b, 24), __funnelshift_r(b, c, 16), c >> 8};
    EightSamples<T> samples;
#pragma unroll
    for (int k = 0; k < 8; ++k)
      samples.at[k] = static_cast<uint16_t>(math::Unpack12(rows.packing, pairs[k / 2], k % 2 != 0));
    return samples;
  } else {
    return reinterpret_cast<const EightSamples<T>*>(row)[i];
  }
}

}  // namespace octavo::inline gpu::cuda
