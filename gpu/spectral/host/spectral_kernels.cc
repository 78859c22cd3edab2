// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/spectral/host/spectral_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

#include "gpu/device/host/fft-inl.h"
#include "gpu/device/host/vectors-inl.h"
#include "gpu/spectral/host/depth-inl.h"
#include "gpu/spectral/host/records-inl.h"
#include "gpu/spectral/host/spectral_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

// The number of copies of the end samples on either side. Taps beyond the ends read the copies,
// which avoids branches.
constexpr int64_t kRowsBefore = 3, kRowsAfter = 4;

// Rows of scratch: first the samples of the records, whose place the transform's second buffer
// takes later; then the transform's first buffer.
int64_t FirstRows(const TileTables& t) {
  const int64_t rows = HWY_MAX(t.samples + kRowsBefore + kRowsAfter, 2 * t.fft.rows);
  return (rows + 1) / 2 * 2;
}

// Performs steps 1 to 4 and returns the location of the transform's rows.
Rows TransformedRows(const TileTables& t, const void* raw, int64_t records,
                     const TileBackground& background, float* scratch) {
  const int64_t lanes = Lanes();
  float* x = scratch + kRowsBefore * lanes;
  const Rows b{scratch, scratch + lanes, 2 * lanes};
  float* const second = scratch + FirstRows(t) * lanes;
  const Rows a{second, second + lanes, 2 * lanes};
  const auto* bytes = static_cast<const uint8_t*>(raw);
  switch (t.raw_type) {
    case DType::kU8: LoadTransposed<uint8_t>(t, bytes, records, background, x); break;
    case DType::kI16: LoadTransposed<int16_t>(t, bytes, records, background, x); break;
    case DType::kF32: LoadTransposed<float>(t, bytes, records, background, x); break;
    default: LoadTransposed<uint16_t>(t, bytes, records, background, x); break;
  }
  const size_t row = static_cast<size_t>(lanes) * sizeof(float);
  for (int64_t i = 1; i <= kRowsBefore; ++i) std::memcpy(x - i * lanes, x, row);
  for (int64_t i = 0; i < kRowsAfter; ++i)
    std::memcpy(x + (t.samples + i) * lanes, x + (t.samples - 1) * lanes, row);
  // In the real transform every output contributes to two depth samples.
  const int64_t first = t.half ? 0 : t.first_row,
                last = t.half ? t.fft.rows : t.first_row + t.depth;
  const bool shaped = StartsShaped(t);
  const auto shape = [&](auto taps) HWY_ATTR {
    if (shaped) {
      FirstPass<taps()>(t, x, a);
    } else {
      Shape<taps()>(t, x, a);
    }
  };
  switch (t.interpolation) {
    case math::Interpolation::kNone: shape(std::integral_constant<int, 1>()); break;
    case math::Interpolation::kLinear: shape(std::integral_constant<int, 2>()); break;
    case math::Interpolation::kCubic: shape(std::integral_constant<int, 4>()); break;
    case math::Interpolation::kLanczos: shape(std::integral_constant<int, 8>()); break;
  }
  const Rows out =
      shaped ? RunPasses(t.fft, 1, a, b, first, last) : RunTransform(t.fft, a, b, first, last);
  // Magnitudes do not need the chirp on the outputs of a convolution. Complex values need it, and
  // so does the real transform, which mixes rows.
  if (t.chirp_out)
    TurnRows(static_cast<int64_t>(t.fft.chirp_out_re.size()), t.fft.chirp_out_re.data(),
             t.fft.chirp_out_im.data(), out);
  return out;
}

void Tile(const TileTables& t, const void* raw, int64_t records, const TileBackground& background,
          const LaneTarget* targets, float* scratch) {
  const Rows rows = TransformedRows(t, raw, records, background, scratch);
  if (t.half) {
    FinishAs(t, FromRows<true>{t, rows.re, rows.im, rows.pitch}, records, targets);
  } else {
    FinishAs(t, FromRows<false>{t, rows.re, rows.im, rows.pitch}, records, targets);
  }
}

template <class Fetch>
void StoreSpectra(const TileTables& t, const Fetch& fetch, float* HWY_RESTRICT spectra) {
  const D d;
  const int64_t lanes = Lanes();
  for (int64_t z = 0; z < t.depth; ++z) {
    const C c = fetch(z);
    hn::Store(c.re, d, spectra + z * lanes);
    hn::Store(c.im, d, spectra + (t.depth + z) * lanes);
  }
}

void SpectraOfTile(const TileTables& t, const void* raw, int64_t records,
                   const TileBackground& background, float* spectra, float* scratch) {
  const Rows rows = TransformedRows(t, raw, records, background, scratch);
  if (t.half) {
    StoreSpectra(t, FromRows<true>{t, rows.re, rows.im, rows.pitch}, spectra);
  } else {
    StoreSpectra(t, FromRows<false>{t, rows.re, rows.im, rows.pitch}, spectra);
  }
}

void FinishSpectra(const TileTables& t, const float* spectra, const float* pattern_re,
                   const float* pattern_im, int64_t records, const LaneTarget* targets) {
  FinishAs(t, FromSpectra{spectra, spectra + t.depth * Lanes(), pattern_re, pattern_im, Lanes()},
           records, targets);
}

void Sum(const TileTables& t, const float* spectra, int64_t begin, int64_t end, int64_t first,
         int64_t last, const float* mean_re, const float* mean_im, float* re, float* im) {
  const D d;
  const int64_t lanes = Lanes();
  constexpr int64_t kDepths =
      16;  // the number of sums that stay in cache while the depths of a tile are read in order
  for (int64_t z0 = first; z0 < last; z0 += kDepths) {
    const int64_t count = HWY_MIN(kDepths, last - z0);
    alignas(64) float sums[2 * kDepths * 16] = {};
    for (int64_t tile = begin / lanes; tile * lanes < end; ++tile) {
      const float* from = spectra + tile * 2 * t.depth * lanes;
      const V lane = hn::Iota(d, static_cast<float>(tile * lanes));
      const auto mask = hn::And(hn::Ge(lane, hn::Set(d, static_cast<float>(begin))),
                                hn::Lt(lane, hn::Set(d, static_cast<float>(end))));
      for (int64_t i = 0; i < count; ++i) {
        V a = hn::Load(d, from + (z0 + i) * lanes),
          b = hn::Load(d, from + (t.depth + z0 + i) * lanes);
        if (mean_re != nullptr) {
          a = hn::Sub(a, hn::Set(d, mean_re[z0 + i]));
          b = hn::Sub(b, hn::Set(d, mean_im[z0 + i]));
          a = hn::MulAdd(a, a, hn::Mul(b, b));
          b = hn::Zero(d);
        }
        float* to = sums + 2 * i * lanes;
        hn::Store(hn::Add(hn::Load(d, to), hn::IfThenElseZero(mask, a)), d, to);
        hn::Store(hn::Add(hn::Load(d, to + lanes), hn::IfThenElseZero(mask, b)), d, to + lanes);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      re[z0 + i] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums + 2 * i * lanes)));
      im[z0 + i] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums + (2 * i + 1) * lanes)));
    }
  }
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::inline gpu::host {

HWY_EXPORT(Tile);
HWY_EXPORT(SpectraOfTile);
HWY_EXPORT(FinishSpectra);
HWY_EXPORT(Sum);

int64_t TileScratchFloats(const TileTables& t) {
  return (std::max(t.samples + 8, 2 * t.fft.rows) + 2 * t.fft.rows) *
         TileLanes();  // at least FirstRows, and the first buffer
}

void ProcessTile(const TileTables& tables, const void* raw, int64_t records,
                 const TileBackground& background, const LaneTarget* targets, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Tile)(tables, raw, records, background, targets, scratch);
}

void TransformTile(const TileTables& tables, const void* raw, int64_t records,
                   const TileBackground& background, float* spectra, float* scratch) {
  HWY_DYNAMIC_DISPATCH(SpectraOfTile)(tables, raw, records, background, spectra, scratch);
}

void FinishTile(const TileTables& tables, const float* spectra, const float* pattern_re,
                const float* pattern_im, int64_t records, const LaneTarget* targets) {
  HWY_DYNAMIC_DISPATCH(FinishSpectra)(tables, spectra, pattern_re, pattern_im, records, targets);
}

void SumAscans(const TileTables& tables, const float* spectra, int64_t begin, int64_t end,
               int64_t first, int64_t last, const float* mean_re, const float* mean_im, float* re,
               float* im) {
  HWY_DYNAMIC_DISPATCH(Sum)(tables, spectra, begin, end, first, last, mean_re, mean_im, re, im);
}

}  // namespace octavo::inline gpu::host
#endif
