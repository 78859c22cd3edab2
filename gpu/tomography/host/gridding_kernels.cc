// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/tomography/host/gridding_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "gpu/device/host/fft-inl.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/vectors-inl.h"
#include "gpu/tomography/host/gridding_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

// ---- Samples ----

// A projection of each lane of a strip to rows of lanes. `rows`: null = zero.
HWY_INLINE void LoadProjections(const float* const* rows, int64_t detectors,
                                float* HWY_RESTRICT to) {
  const D d;
  for (int64_t k = 0; k < detectors; k += kLanes) {
    const int64_t count = std::min(kLanes, detectors - k);
    V v[kLanes];
    for (int64_t i = 0; i < kLanes; ++i)
      v[i] = rows == nullptr ? hn::Zero(d) : LoadSome(rows[i] + k, count);
    TransposeFloats(v);
    for (int64_t i = 0; i < count; ++i) hn::Store(v[i], d, to + (k + i) * kLanes);
  }
}

void FillRows(V value, int64_t begin, int64_t end, float* HWY_RESTRICT to) {
  for (int64_t k = begin; k < end; ++k) hn::Store(value, D(), to + k * kLanes);
}

// With real and imaginary parts exchanged, the inverse transform is the forward one.
Rows Forward(const FftPlan& plan, Rows a, Rows b) {
  const Rows out = RunTransform(plan, {a.im, a.re}, {b.im, b.re}, 0, plan.n);
  return {out.im, out.re};
}

// Where a sample lies: blocks of neighbours on a line, those of neighbouring lines side by side.
HWY_INLINE int64_t SampleAt(const GriddingShape& shape, int64_t line, int64_t index) {
  return (index / kSampleBlock * shape.lines + line) * kSampleBlock + index % kSampleBlock;
}
static_assert(kSampleBlock % kLanes == 0);

// exp(2πi turns r) for blocks of kLanes neighbours r, each lane with its own turns: the block's
// first one in double precision, a multiplication each.
class PhaseBlocks {
 public:
  // The first block begins at `first`.
  PhaseBlocks(const double* turns, int64_t first) {
    for (int64_t l = 0; l < kLanes; ++l) {
      Set(turns[l] * static_cast<double>(first), re_[l], im_[l]);
      Set(turns[l] * static_cast<double>(kLanes), step_re_[l], step_im_[l]);
      for (int64_t j = 0; j < kLanes; ++j) {
        double re, im;
        Set(turns[l] * static_cast<double>(j), re, im);
        within_re_[j * kLanes + l] = static_cast<float>(re);
        within_im_[j * kLanes + l] = static_cast<float>(im);
      }
    }
  }
  // The phase of the block's j-th r, from the block's first.
  HWY_INLINE C At(C first, int64_t j) const {
    const D d;
    return Twiddle(first, hn::Load(d, within_re_ + j * kLanes),
                   hn::Load(d, within_im_ + j * kLanes));
  }
  HWY_INLINE C First() const {
    const D d;
    alignas(64) float re[kLanes], im[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      re[l] = static_cast<float>(re_[l]);
      im[l] = static_cast<float>(im_[l]);
    }
    return {hn::Load(d, re), hn::Load(d, im)};
  }
  HWY_INLINE void Next() {
    for (int64_t l = 0; l < kLanes; ++l) {
      const double re = re_[l] * step_re_[l] - im_[l] * step_im_[l];
      im_[l] = re_[l] * step_im_[l] + im_[l] * step_re_[l];
      re_[l] = re;
    }
  }

 private:
  static void Set(double turns, double& re, double& im) {
    const double angle = 2 * std::numbers::pi * (turns - std::floor(turns));
    re = std::cos(angle);
    im = std::sin(angle);
  }
  alignas(64) double re_[kLanes], im_[kLanes], step_re_[kLanes], step_im_[kLanes];
  alignas(64) float within_re_[kLanes * kLanes], within_im_[kLanes * kLanes];
};

// Writes the samples of the lines `first` … from their transforms, with response, weight and phase.
template <bool kShared>
void WriteSamples(const GriddingView& v, const math::GridLine* const* lines, int64_t first_line,
                  int64_t count, Rows rows, ComplexF* samples) {
  const D d;
  const int64_t reach = v.shape.reach;
  alignas(64) float weights[kLanes];
  double turns[kLanes], second_turns[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) {
    weights[l] = lines[l]->weight;
    const auto of = [&](int64_t slice) {
      return (v.centers[kShared ? 0 : slice] + lines[l]->shift) /
             static_cast<double>(v.shape.length);
    };
    turns[l] = of(v.first);
    second_turns[l] = of(v.first + v.slices - 1);
  }
  const V weight = hn::Load(d, weights);
  PhaseBlocks phase(turns, -reach), second(kShared ? turns : second_turns, -reach);
  for (int64_t r = -reach; r <= reach; r += kLanes) {
    const C first = phase.First();
    C other_first = first;
    if constexpr (!kShared) other_first = second.First();
    V re[kLanes], im[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) {
      const int64_t at = std::min(r + j, reach), k = v.shape.Wrapped(at) * kLanes;
      const V factor = hn::Mul(weight, hn::Set(d, v.response[at < 0 ? -at : at]));
      const C z = {hn::Load(d, rows.re + k), hn::Load(d, rows.im + k)}, turn = phase.At(first, j);
      C s;
      if constexpr (kShared) {
        s = Twiddle(z, turn.re, turn.im);
      } else {  // as TurnedApart
        const int64_t m = v.shape.Wrapped(-at) * kLanes;
        const C o = {hn::Load(d, rows.re + m), hn::Load(d, rows.im + m)};
        const V half = hn::Set(d, 0.5f);
        const C a =
            Twiddle({hn::Mul(half, hn::Add(z.re, o.re)), hn::Mul(half, hn::Sub(z.im, o.im))},
                    turn.re, turn.im);
        const C turn_b = second.At(other_first, j);
        const C ib =
            Twiddle({hn::Mul(half, hn::Sub(z.re, o.re)), hn::Mul(half, hn::Add(z.im, o.im))},
                    turn_b.re, turn_b.im);
        s = Add(a, ib);
      }
      re[j] = hn::Mul(s.re, factor);
      im[j] = hn::Mul(s.im, factor);
    }
    TransposeFloats(re);
    TransposeFloats(im);
    ComplexF* to = samples + SampleAt(v.shape, first_line, r + reach);
    for (int64_t l = 0; l < count; ++l, to += kSampleBlock)
      hn::StoreInterleaved2(re[l], im[l], d, reinterpret_cast<float*>(to));
    phase.Next();
    if constexpr (!kShared) second.Next();
  }
}

void StripSamples(const GriddingView& v, const SinogramView& in, const FftPlan& plan, int64_t strip,
                  ComplexF* samples, float* scratch) {
  const D d;
  const int64_t n = v.shape.length, width = v.shape.detectors, first = strip * kLanes,
                count = std::min(kLanes, v.shape.lines - first);
  Rows a{scratch, scratch + n * kLanes}, b{a.im + n * kLanes, a.im + 2 * n * kLanes};
  const math::GridLine* lines[kLanes];
  const float *re[kLanes], *im[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) {
    lines[l] = v.lines + first + std::min(l, count - 1);
    re[l] = in.Row(v.first, lines[l]->projection);
    im[l] = in.Row(v.first + v.slices - 1, lines[l]->projection);
  }
  LoadProjections(re, width, a.re);
  LoadProjections(v.slices > 1 ? im : nullptr, width, a.im);
  for (float* const part : {a.re, a.im}) {
    const V left = v.extend_edges ? hn::Load(d, part) : hn::Zero(d),
            right = v.extend_edges ? hn::Load(d, part + (width - 1) * kLanes) : hn::Zero(d);
    FillRows(right, width, v.padding_middle(), part);
    FillRows(left, v.padding_middle(), n, part);
  }
  Rows out = Forward(plan, a, b);
  if (v.shape.cut) {
    for (int64_t k = 0; k < n; ++k) {
      const V factor = hn::Set(d, v.filter[std::min(k, n - k)]);
      for (float* const part : {out.re, out.im})
        hn::Store(hn::Mul(hn::Load(d, part + k * kLanes), factor), d, part + k * kLanes);
    }
    if (out.re != a.re) std::swap(a, b);
    out = RunTransform(plan, a, b, 0, n);
    for (float* const part : {out.re, out.im}) FillRows(hn::Zero(d), width, n, part);
    if (out.re != a.re) std::swap(a, b);
    out = Forward(plan, a, b);
  }
  v.shared_center ? WriteSamples<true>(v, lines, first, count, out, samples)
                  : WriteSamples<false>(v, lines, first, count, out, samples);
}

// ---- Gathering ----

// A sample has up to 8 taps along each axis. The weights of both axes are computed together, those
// of x first.
constexpr int64_t kTaps = 8, kFloats = 2 * kTaps;
constexpr int kVectors = static_cast<int>(kFloats / kLanes);
static_assert(math::GridKernel::kMostWidth <= kTaps && kFloats % kLanes == 0);
// A tile in the middle of a buffer that has room for all taps of samples that reach the tile.
constexpr int64_t kMargin = math::GridKernel::kMostWidth + 2;
constexpr int64_t kPitch = kGridTile + 2 * kMargin, kBufferFloats = 2 * kPitch * (kPitch + 1);

// The samples of a line that may reach a tile: indices [begin, end).
struct SampleRange {
  int64_t begin = 0, end = 0;
};
// x, y: the tile's first point, from the origin.
template <int kWidth>
HWY_INLINE SampleRange SamplesWithin(const GriddingShape& shape, const math::GridLine& line,
                                     float x, float y) {
  constexpr float kHalf = 0.5f * kWidth, kLast = kGridTile - 1 + kHalf;
  const float step = shape.step(), reach = static_cast<float>(shape.reach);
  math::LineSpan span{-reach * step, reach * step};
  math::ClipSpan(line.cosine, x - kHalf, x + kLast, &span);
  math::ClipSpan(line.minus_sine, y - kHalf, y + kLast, &span);
  if (span.lo > span.hi) return {};
  // One sample more on either side: rounding decides nothing, because the kernel is 0 out there.
  const auto begin = static_cast<int64_t>(std::floor(span.lo / step)),
             end = static_cast<int64_t>(std::ceil(span.hi / step)) + 1;
  return {std::max<int64_t>(0, begin + shape.reach), std::min(shape.samples(), end + shape.reach)};
}

// Samples of a block: the place of each one's first taps in the buffer, and the weights of all.
struct BlockTaps {
  alignas(64) int32_t at[kSampleBlock];
  alignas(64) float off_x[kSampleBlock], off_y[kSampleBlock];
  alignas(64) float weights[kSampleBlock][kFloats];

  // The sample k lies at (x + k dx, y + k dy), from the tile's first point. Offsets are in halves
  // of the kernel's width.
  template <int kWidth>
  HWY_INLINE void Place(float x, float y, float dx, float dy, int64_t count) {
    const D d;
    const DI di;
    const V half = hn::Set(d, 0.5f * kWidth), scale = hn::Set(d, 2.0f / kWidth),
            most = hn::Set(d, static_cast<float>(kPitch - kTaps)),
            margin = hn::Set(d, static_cast<float>(kMargin));
    for (int64_t k = 0; k < count; k += kLanes) {
      const V index = hn::Iota(d, static_cast<float>(k)),
              at_x = hn::MulAdd(index, hn::Set(d, dx), hn::Set(d, x)),
              at_y = hn::MulAdd(index, hn::Set(d, dy), hn::Set(d, y)),
              first_x = hn::Ceil(hn::Sub(at_x, half)), first_y = hn::Ceil(hn::Sub(at_y, half));
      const V column = hn::Add(first_x, margin), row = hn::Add(first_y, margin);
      // A sample beyond the range of the tile's lines reaches no point of it: no weight.
      const auto inside = hn::And(hn::And(hn::Ge(column, hn::Zero(d)), hn::Le(column, most)),
                                  hn::And(hn::Ge(row, hn::Zero(d)), hn::Le(row, most)));
      const V place = hn::IfThenElseZero(
          inside, hn::MulAdd(row, hn::Set(d, static_cast<float>(kPitch)), column));
      hn::Store(hn::ConvertTo(di, place), di, at + k);
      const V far = hn::Set(d, 2.0f);
      hn::Store(hn::IfThenElse(inside, hn::Mul(hn::Sub(first_x, at_x), scale), far), d, off_x + k);
      hn::Store(hn::IfThenElse(inside, hn::Mul(hn::Sub(first_y, at_y), scale), far), d, off_y + k);
    }
  }

  template <int kWidth>
  HWY_INLINE void Weigh(const math::GridKernel& kernel, int64_t count) {
    const D d;
    constexpr int kTerms = math::GridKernel::TermsOf(kWidth);
    V terms[kTerms], tap[kVectors];
    for (int i = 0; i < kTerms; ++i) terms[i] = hn::Set(d, kernel.terms[i]);
    alignas(64) float offs[kFloats];
    for (int64_t i = 0; i < kFloats; ++i) offs[i] = static_cast<float>(i % kTaps) * 2.0f / kWidth;
    for (int i = 0; i < kVectors; ++i) tap[i] = hn::Load(d, offs + i * kLanes);
    const auto of_x = hn::Lt(hn::Iota(d, 0.0f), hn::Set(d, static_cast<float>(kTaps)));
    for (int64_t k = 0; k < count; ++k) {
      const V x = hn::Set(d, off_x[k]), y = hn::Set(d, off_y[k]);
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        // One vector may hold the taps of both axes.
        const V first = kVectors == 1 ? hn::IfThenElse(of_x, x, y) : i < kVectors / 2 ? x : y;
        const V off = hn::Add(tap[i], first), s = hn::NegMulAdd(off, off, hn::Set(d, 1.0f));
        V value = terms[kTerms - 1];
#pragma GCC unroll 16
        for (int t = kTerms - 2; t >= 0; --t) value = hn::MulAdd(value, s, terms[t]);
        hn::Store(hn::IfThenElseZero(hn::Gt(s, hn::Zero(d)), value), d, weights[k] + i * kLanes);
      }
    }
  }

  // Adds the samples to the buffer. Those whose taps do not overlap follow each other, `stride`
  // samples apart: a load that overlaps with an earlier store waits until that has reached the
  // cache.
  template <int kWidth>
  HWY_INLINE void Add(const ComplexF* HWY_RESTRICT samples, int64_t count, int64_t stride,
                      float* HWY_RESTRICT buffer) const {
    const D d;
    const hn::Repartition<double, D> dd;
    // Each tap of x twice, for the real and the imaginary parts.
    alignas(64) int32_t lanes[2][kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[0][l] = static_cast<int32_t>(l / 2);
      lanes[1][l] = static_cast<int32_t>((kLanes + l) / 2 % kLanes);
    }
    const auto low = hn::SetTableIndices(d, lanes[0]), high = hn::SetTableIndices(d, lanes[1]);
    for (int64_t begin = 0; begin < std::min(stride, count); ++begin) {
      for (int64_t k = begin; k < count; k += stride) {
        double both;
        std::memcpy(&both, samples + k, sizeof both);
        const V value = hn::BitCast(d, hn::Set(dd, both));
        V wx[kVectors];
#pragma GCC unroll 16
        for (int p = 0; p < kVectors; ++p)
          wx[p] = hn::Mul(value, hn::TableLookupLanes(hn::Load(d, weights[k] + p / 2 * kLanes),
                                                      p % 2 == 0 ? low : high));
        float* HWY_RESTRICT to = buffer + 2 * at[k];
#pragma GCC unroll 8
        for (int t = 0; t < kWidth; ++t) {
          const V weight = hn::Set(d, weights[k][kTaps + t]);
#pragma GCC unroll 16
          for (int p = 0; p < kVectors; ++p) {
            float* HWY_RESTRICT part = to + 2 * t * kPitch + p * kLanes;
            hn::StoreU(hn::MulAdd(wx[p], weight, hn::LoadU(d, part)), d, part);
          }
        }
      }
    }
  }
};

// Adds the samples of the lines through one place of the tile to the buffer, in a fixed order.
template <int kWidth>
void AddLines(const GriddingView& v, const TileImage& image, int64_t column, int64_t row,
              const ComplexF* HWY_RESTRICT samples, float* HWY_RESTRICT buffer) {
  const math::TileLines range = v.lines_of[image.index];
  const int64_t x0 = column * kGridTile - v.shape.grid_size / 2 + image.shift_x,
                y0 = row * kGridTile - v.shape.grid_size / 2 + image.shift_y;
  const double step = static_cast<double>(v.shape.grid_size) / static_cast<double>(v.shape.length);
  const auto stride = static_cast<int64_t>(std::ceil(8 / step));
  constexpr int64_t kAhead = 4;  // lines whose samples are fetched to the cache early
  BlockTaps taps;
  for (int32_t i = 0; i < range.count; ++i) {
    int64_t at = range.begin + i;
    if (at >= v.shape.lines) at -= v.shape.lines;
    const math::GridLine& line = v.lines[at];
    const SampleRange span =
        SamplesWithin<kWidth>(v.shape, line, static_cast<float>(x0), static_cast<float>(y0));
    const double dx = step * static_cast<double>(line.cosine),
                 dy = step * static_cast<double>(line.minus_sine);
    for (int64_t begin = span.begin; begin < span.end;) {
      const int64_t end = std::min(span.end, (begin / kSampleBlock + 1) * kSampleBlock),
                    count = end - begin;
      const ComplexF* of_block = samples + SampleAt(v.shape, at, begin);
      for (int64_t k = 0; k < count; k += 8) hwy::Prefetch(of_block + kAhead * kSampleBlock + k);
      const auto first = static_cast<double>(begin - v.shape.reach);
      taps.Place<kWidth>(static_cast<float>(first * dx - static_cast<double>(x0)),
                         static_cast<float>(first * dy - static_cast<double>(y0)),
                         static_cast<float>(dx), static_cast<float>(dy), count);
      taps.Weigh<kWidth>(v.kernel, count);
      taps.Add<kWidth>(of_block, count, stride, buffer);
      begin = end;
    }
  }
}

void GatherAny(const GriddingView& v, int64_t column, int64_t row, const ComplexF* samples,
               float* grid) {
  const D d;
  alignas(64) float buffer[kBufferFloats];
  bool any = false;
  for (int i = 0; i < kTileImages; ++i) {
    const TileImage image = v.tiles.ImageOf(column, row, i);
    if (image.index < 0 || v.lines_of[image.index].count == 0) continue;
    if (!any) std::memset(buffer, 0, sizeof buffer);
    any = true;
    switch (v.shape.width) {
      case 3: AddLines<3>(v, image, column, row, samples, buffer); break;
      case 4: AddLines<4>(v, image, column, row, samples, buffer); break;
      case 5: AddLines<5>(v, image, column, row, samples, buffer); break;
      case 6: AddLines<6>(v, image, column, row, samples, buffer); break;
      case 7: AddLines<7>(v, image, column, row, samples, buffer); break;
      default: AddLines<8>(v, image, column, row, samples, buffer); break;
    }
  }
  alignas(64) float signs[kLanes + 1];
  for (int64_t x = 0; x <= kLanes; ++x) signs[x] = math::Chessboard(x);
  const int64_t size = v.shape.grid_size;
  for (int64_t x = 0; x < kGridTile; x += kLanes) {
    float* re = grid + ((column * kGridTile + x) * 2 * size + row * kGridTile * kLanes);
    float* im = re + size * kLanes;
    if (!any) {
      std::memset(re, 0, static_cast<size_t>(kGridTile * kLanes) * sizeof(float));
      std::memset(im, 0, static_cast<size_t>(kGridTile * kLanes) * sizeof(float));
      continue;
    }
    for (int64_t y = 0; y < kGridTile; ++y) {
      const V sign = hn::LoadU(d, signs + (x + y) % 2);
      V a, b;
      hn::LoadInterleaved2(d, buffer + 2 * ((y + kMargin) * kPitch + x + kMargin), a, b);
      hn::Store(hn::Mul(a, sign), d, re + y * kLanes);
      hn::Store(hn::Mul(b, sign), d, im + y * kLanes);
    }
  }
}

// ---- Transforms ----

void ColumnStrip(const GriddingView& v, const FftPlan& plan, int64_t strip, float* grid,
                 float* rows, float* scratch) {
  const D d;
  const int64_t m = v.shape.grid_size, values = m * kLanes, begin = v.image_begin(),
                strips = (v.shape.image_size + kLanes - 1) / kLanes;
  float* from = grid + strip * 2 * values;
  const Rows out = RunTransform(plan, {from, from + values}, {scratch, scratch + values}, begin,
                                std::min(begin + strips * kLanes, m));
  for (int64_t s = 0; s < strips; ++s) {
    float* to = rows + s * 2 * values + strip * kLanes * kLanes;
    for (const float* part : {out.re, out.im}) {
      V block[kLanes];
      for (int64_t i = 0; i < kLanes; ++i)
        block[i] = hn::Load(d, part + std::min(begin + s * kLanes + i, m - 1) * kLanes);
      TransposeFloats(block);
      for (int64_t i = 0; i < kLanes; ++i) hn::Store(block[i], d, to + i * kLanes);
      to += values;
    }
  }
}

void ImageRows(const GriddingView& v, const FftPlan& plan, int64_t strip, float* rows,
               float* images, float* scratch) {
  const D d;
  const int64_t m = v.shape.grid_size, n = v.shape.image_size, values = m * kLanes,
                begin = v.image_begin(), first = strip * kLanes,
                count = std::min(kLanes, n - first);
  float* from = rows + strip * 2 * values;
  const Rows out =
      RunTransform(plan, {from, from + values}, {scratch, scratch + values}, begin, begin + n);
  const float middle = 0.5f * static_cast<float>(n - 1);
  for (int64_t x = 0; x < n; x += kLanes) {
    const int64_t columns = std::min(kLanes, n - x);
    const V along = LoadSome(v.deapodisation + x, columns);
    const V dx = hn::Iota(d, static_cast<float>(x) - middle);
    const float* part = out.re;
    for (int64_t slice = 0; slice < v.slices; ++slice, part = out.im) {
      V block[kLanes];
      for (int64_t i = 0; i < kLanes; ++i)
        block[i] = hn::Load(d, part + (begin + std::min(x + i, n - 1)) * kLanes);
      TransposeFloats(block);
      for (int64_t i = 0; i < count; ++i) {
        const float dy = static_cast<float>(first + i) - middle;
        const V squares = hn::MulAdd(dx, dx, hn::Set(d, dy * dy));
        const V factor = hn::IfThenElseZero(hn::Le(squares, hn::Set(d, v.radius * v.radius)),
                                            hn::Mul(along, hn::Set(d, v.deapodisation[first + i])));
        StoreSome(hn::Mul(block[i], factor), images + (slice * n + first + i) * n + x, columns);
      }
    }
  }
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::inline gpu::host {

HWY_EXPORT(StripSamples);
HWY_EXPORT(GatherAny);
HWY_EXPORT(ColumnStrip);
HWY_EXPORT(ImageRows);

int64_t StripsOf(int64_t count) { return (count + TileLanes() - 1) / TileLanes(); }
int64_t SampleValues(const GriddingShape& shape) {
  return (shape.samples() + kSampleBlock - 1) / kSampleBlock * kSampleBlock * shape.lines;
}
int64_t SampleScratch(const GriddingShape& shape) { return 2 * shape.length * TileLanes(); }
int64_t GridScratch(const GriddingShape& shape) { return shape.grid_size * TileLanes(); }

void MakeStripSamples(const GriddingView& view, const SinogramView& in, const FftPlan& plan,
                      int64_t strip, ComplexF* samples, float* scratch) {
  HWY_DYNAMIC_DISPATCH(StripSamples)(view, in, plan, strip, samples, scratch);
}
void GatherTile(const GriddingView& view, int64_t tile_column, int64_t tile_row,
                const ComplexF* samples, float* grid) {
  HWY_DYNAMIC_DISPATCH(GatherAny)(view, tile_column, tile_row, samples, grid);
}
void TransformColumns(const GriddingView& view, const FftPlan& plan, int64_t strip, float* grid,
                      float* rows, float* scratch) {
  HWY_DYNAMIC_DISPATCH(ColumnStrip)(view, plan, strip, grid, rows, scratch);
}
void MakeImageRows(const GriddingView& view, const FftPlan& plan, int64_t strip, float* rows,
                   float* images, float* scratch) {
  HWY_DYNAMIC_DISPATCH(ImageRows)(view, plan, strip, rows, images, scratch);
}

}  // namespace octavo::inline gpu::host
#endif
