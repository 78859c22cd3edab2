// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/tomography/host/gridding_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include <cmath>
#include <cstring>

#include "hwy/highway.h"

#include "gpu/tomography/host/gridding_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kN = hn::MaxLanes(D());
// The taps of one axis: 8 complex points, each with its weight twice, as 16 floats.
constexpr int64_t kTaps = 8, kFloats = 2 * kTaps;
constexpr int kVectors = static_cast<int>(kFloats / kN);
// A tile in the middle of a buffer that has room for all taps of samples that reach the tile.
constexpr int64_t kMargin = math::GridKernel::kMostWidth + 2;
constexpr int64_t kPitch = kGridTile + 2 * kMargin + kTaps;

template <int kWidth>
struct AxisWeights {
  V v[kVectors];
  // Weights of the taps first, first + 1 …; `first_off`: from the sample to the first.
  HWY_INLINE void Set(const math::GridKernel& kernel, float first_off) {
    const D d;
    const V half = hn::Set(d, 0.5f), inverse = hn::Set(d, kernel.inverse_half);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const V tap = hn::Floor(hn::Mul(hn::Iota(d, static_cast<float>(i * kN)), half));
      const V off = hn::Mul(hn::Add(tap, hn::Set(d, first_off)), inverse);
      const V s = hn::NegMulAdd(off, off, hn::Set(d, 1.0f));
      constexpr int kTerms = math::GridKernel::TermsOf(kWidth);
      V value = hn::Set(d, kernel.terms[kTerms - 1]);
#pragma GCC unroll 16
      for (int k = kTerms - 2; k >= 0; --k)
        value = hn::MulAdd(value, s, hn::Set(d, kernel.terms[k]));
      v[i] = hn::IfThenElseZero(hn::Gt(s, hn::Zero(d)), value);
    }
  }
};

// Adds the samples of the lines through one place of the tile to the buffer, in the order of the
// lines.
template <int kWidth>
void AddLines(const GriddingView& v, const TileImage& image, int64_t column, int64_t row,
              const ComplexF* HWY_RESTRICT samples, float* HWY_RESTRICT buffer) {
  const D d;
  const math::TileLines range = v.tiles[image.index];
  const int64_t x0 = column * kGridTile - v.shape.grid_size / 2 + image.shift_x,
                y0 = row * kGridTile - v.shape.grid_size / 2 + image.shift_y;
  const float half = 0.5f * kWidth;
  const double step = static_cast<double>(v.shape.grid_size) / static_cast<double>(v.shape.length);
  const int64_t middle = v.shape.length / 2;
  alignas(64) float weights_y[kFloats];
  for (int32_t i = 0; i < range.count; ++i) {
    int64_t at = range.begin + i;
    if (at >= v.shape.lines) at -= v.shape.lines;
    const math::GridLine& line = v.lines[at];
    const SampleRange span =
        SamplesWithin(v, line, static_cast<float>(x0), static_cast<float>(y0),
                      static_cast<float>(kGridTile - 1), static_cast<float>(kGridTile - 1));
    if (span.begin >= span.end) continue;
    // Positions from the tile's first point.
    const double step_x = step * static_cast<double>(line.cosine),
                 step_y = step * static_cast<double>(line.minus_sine),
                 first = static_cast<double>(span.begin - middle);
    const auto from_x = static_cast<float>(first * step_x - static_cast<double>(x0)),
               from_y = static_cast<float>(first * step_y - static_cast<double>(y0)),
               dx = static_cast<float>(step_x), dy = static_cast<float>(step_y);
    const ComplexF* HWY_RESTRICT sample = samples + at * v.samples() + span.begin;
    for (int32_t k = 0; k < span.end - span.begin; ++k, ++sample) {
      const float x = fmaf(static_cast<float>(k), dx, from_x),
                  y = fmaf(static_cast<float>(k), dy, from_y), first_x = std::ceil(x - half),
                  first_y = std::ceil(y - half);
      // A sample beyond the range of the tile's lines reaches no point of it.
      if (first_x < -static_cast<float>(kMargin) || first_y < -static_cast<float>(kMargin) ||
          first_x > static_cast<float>(kGridTile + 1) ||
          first_y > static_cast<float>(kGridTile + 1))
        continue;
      AxisWeights<kWidth> wx, wy;
      wx.Set(v.kernel, first_x - x);
      wy.Set(v.kernel, first_y - y);
      const V value = hn::OddEven(hn::Set(d, sample->im), hn::Set(d, sample->re));
#pragma GCC unroll 4
      for (int p = 0; p < kVectors; ++p) {
        wx.v[p] = hn::Mul(wx.v[p], value);
        hn::Store(wy.v[p], d, weights_y + p * kN);
      }
      float* HWY_RESTRICT to = buffer + 2 * ((static_cast<int64_t>(first_y) + kMargin) * kPitch +
                                             static_cast<int64_t>(first_x) + kMargin);
#pragma GCC unroll 8
      for (int t = 0; t < kWidth; ++t) {
        const V weight = hn::Set(d, weights_y[2 * t]);
#pragma GCC unroll 4
        for (int p = 0; p < kVectors; ++p) {
          float* HWY_RESTRICT part = to + 2 * t * kPitch + p * kN;
          hn::StoreU(hn::MulAdd(wx.v[p], weight, hn::LoadU(d, part)), d, part);
        }
      }
    }
  }
}

void GatherAny(const GriddingView& v, int64_t column, int64_t row, const ComplexF* samples,
               ComplexF* grid) {
  constexpr int64_t kRows = kGridTile + 2 * kMargin + kTaps;
  alignas(64) float buffer[2 * kRows * kPitch];
  bool any = false;
  for (int i = 0; i < kTileImages; ++i) {
    const TileImage image =
        ImageOfTile(v.tile_columns(), v.tile_rows(), v.shape.grid_size, column, row, i);
    if (image.index < 0 || v.tiles[image.index].count == 0) continue;
    if (!any) std::memset(buffer, 0, sizeof buffer);
    any = true;
    switch (v.shape.width) {
      case 3: AddLines<3>(v, image, column, row, samples, buffer); break;
      case 4: AddLines<4>(v, image, column, row, samples, buffer); break;
      case 5: AddLines<5>(v, image, column, row, samples, buffer); break;
      case 6: AddLines<6>(v, image, column, row, samples, buffer); break;
      default: AddLines<7>(v, image, column, row, samples, buffer); break;
    }
  }
  for (int64_t y = 0; y < kGridTile; ++y) {
    ComplexF* to = grid + (row * kGridTile + y) * v.shape.grid_size + column * kGridTile;
    if (!any) {
      std::memset(static_cast<void*>(to), 0, kGridTile * sizeof(ComplexF));
      continue;
    }
    const float* from = buffer + 2 * ((y + kMargin) * kPitch + kMargin);
    for (int64_t x = 0; x < kGridTile; ++x) {
      const float sign = math::Chessboard(x + y);
      to[x] = {from[2 * x] * sign, from[2 * x + 1] * sign};
    }
  }
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::inline gpu::host {

HWY_EXPORT(GatherAny);

void GatherTile(const GriddingView& view, int64_t tile_column, int64_t tile_row,
                const ComplexF* samples, ComplexF* grid) {
  HWY_DYNAMIC_DISPATCH(GatherAny)(view, tile_column, tile_row, samples, grid);
}

}  // namespace octavo::inline gpu::host
#endif
