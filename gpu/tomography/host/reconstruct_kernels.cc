// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/tomography/host/reconstruct_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include <algorithm>
#include <cstring>

#include "hwy/highway.h"

#include "gpu/tomography/host/reconstruct_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using math::RayInterpolation;
using math::RayTaps;
using D = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
constexpr int64_t kN = hn::MaxLanes(D());
constexpr int kWide = static_cast<int>(kBlock / kN);

/// Taps of kBlock positions on one line.
template <RayInterpolation kHow>
struct BlockTaps {
  alignas(64) int32_t first[kBlock];
  alignas(64) float weight[RayTaps<kHow>::kCount][kBlock];
};

template <RayInterpolation kHow>
HWY_INLINE void ForwardTaps(const float* offsets, float from_middle, float slope, float n,
                            BlockTaps<kHow>& taps) {
  for (int64_t q = 0; q < kBlock; ++q) {
    float w[RayTaps<kHow>::kCount];
    taps.first[q] = RayTaps<kHow>::Forward(
        math::Within(math::RayPosition(from_middle, slope, offsets[q]), n), w);
    for (int k = 0; k < RayTaps<kHow>::kCount; ++k) taps.weight[k][q] = w[k];
  }
}

template <RayInterpolation kHow>
HWY_INLINE void BackTaps(const math::BackAngle& t, float x, float y, float center, float detectors,
                         BlockTaps<kHow>& taps) {
  for (int32_t q = 0; q < kBlock; ++q) {
    float w[RayTaps<kHow>::kCount];
    taps.first[q] = RayTaps<kHow>::Back(
        math::Within(math::DetectorOf(x + static_cast<float>(q), y, t, center), detectors), t, w);
    for (int k = 0; k < RayTaps<kHow>::kCount; ++k) taps.weight[k][q] = w[k];
  }
}

// Sums of kBlock positions. One lane: vectors across positions, values gathered. Many lanes:
// vectors across slices.
template <int64_t kLanes>
struct Sums {
  static constexpr int64_t kParts = kLanes == 1 ? 1 : kLanes / kN;  // vectors of a position's lanes
  static constexpr int64_t kVectors = kLanes == 1 ? kWide : kBlock;  // vectors of one part
};

// `count`: values of the line between its margins.
template <RayInterpolation kHow, int64_t kLanes>
HWY_INLINE void AddLine(const float* HWY_RESTRICT line, [[maybe_unused]] int64_t count,
                        const BlockTaps<kHow>& taps, int64_t part, V* HWY_RESTRICT sum) {
  const D d;
  const DI di;
  if constexpr (kLanes == 1) {
#if HWY_TARGET <= HWY_AVX3
    // Neighbouring positions are at most √2 apart, so all taps of a block are within 32 values. Two
    // loads and permutations replace gathers.
    if (const auto last = static_cast<int32_t>(count + math::kRayMargin - 2 * kBlock);
        last >= -math::kRayMargin) {
      const int32_t base = std::min({taps.first[0], taps.first[kBlock - 1], last});
      const V low = hn::LoadU(d, line + base), high = hn::LoadU(d, line + base + kBlock);
      const auto first = hn::Sub(hn::Load(di, taps.first), hn::Set(di, base));
#pragma GCC unroll 4
      for (int k = 0; k < RayTaps<kHow>::kCount; ++k) {
        const auto at = hn::Add(first, hn::Set(di, k));
        const auto lane = hn::IndicesFromVec(d, hn::And(at, hn::Set(di, kBlock - 1)));
        const V value =
            hn::IfThenElse(hn::RebindMask(d, hn::Gt(at, hn::Set(di, kBlock - 1))),
                           hn::TableLookupLanes(high, lane), hn::TableLookupLanes(low, lane));
        sum[0] = hn::MulAdd(hn::Load(d, taps.weight[k]), value, sum[0]);
      }
      return;
    }
#endif
#pragma GCC unroll 16
    for (int i = 0; i < kWide; ++i) {
      const auto first = hn::Load(di, taps.first + i * kN);
#pragma GCC unroll 4
      for (int k = 0; k < RayTaps<kHow>::kCount; ++k) {
        sum[i] = hn::MulAdd(hn::Load(d, taps.weight[k] + i * kN),
                            hn::GatherIndex(d, line + k, first), sum[i]);
      }
    }
  } else {
#pragma GCC unroll 16
    for (int q = 0; q < kBlock; ++q) {
      const float* p = line + static_cast<int64_t>(taps.first[q]) * kLanes + part * kN;
#pragma GCC unroll 4
      for (int k = 0; k < RayTaps<kHow>::kCount; ++k) {
        sum[q] = hn::MulAdd(hn::Set(d, taps.weight[k][q]), hn::LoadU(d, p + k * kLanes), sum[q]);
      }
    }
  }
}

// The index of position q, lane l in the memory of the sums.
template <int64_t kLanes>
HWY_INLINE int64_t SumAt(int64_t q, int64_t l) {
  return kLanes == 1 ? q : ((l / kN) * kBlock + q) * kN + l % kN;
}

template <int64_t kLanes>
HWY_INLINE void LoadSums(const float* memory, int64_t part, V* sum) {
  const D d;
#pragma GCC unroll 16
  for (int64_t i = 0; i < Sums<kLanes>::kVectors; ++i)
    sum[i] = hn::Load(d, memory + (part * Sums<kLanes>::kVectors + i) * kN);
}
template <int64_t kLanes>
HWY_INLINE void StoreSums(const V* sum, int64_t part, float* memory) {
  const D d;
#pragma GCC unroll 16
  for (int64_t i = 0; i < Sums<kLanes>::kVectors; ++i)
    hn::Store(sum[i], d, memory + (part * Sums<kLanes>::kVectors + i) * kN);
}

template <RayInterpolation kHow, int64_t kLanes>
void Forward(const RayView& v, int64_t group, int64_t begin, int64_t end, int64_t first_ray,
             const float* lines, float* sinogram) {
  alignas(64) float sums[kBlockAngles][kBlock * kLanes];
  alignas(64) float offsets[kBlockAngles][kBlock];
  math::LineRange ranges[kBlockAngles];
  const auto n = static_cast<float>(v.size);
  const float middle = 0.5f * (n - 1.0f), center = v.centers[group];
  const int64_t pitch = v.image_pitch() * kLanes;
  int32_t first_line = static_cast<int32_t>(v.size), last_line = 0;
  for (int64_t a = begin; a < end; ++a) {
    math::LineRange& range = ranges[a - begin];
    range = {static_cast<int32_t>(v.size), 0};
    for (int64_t q = 0; q < kBlock; ++q) {
      const float distance = static_cast<float>(first_ray + q) - center;
      offsets[a - begin][q] = fmaf(distance, v.forward[a].inverse, middle);
      const math::LineRange one =
          math::LinesOf(v.forward[a], distance, n, v.radius, RayTaps<kHow>::kReach);
      if (one.begin == one.end) continue;
      range.begin = std::min(range.begin, one.begin);
      range.end = std::max(range.end, one.end);
    }
    first_line = std::min(first_line, range.begin);
    last_line = std::max(last_line, range.end);
  }
  std::memset(sums, 0, sizeof sums);
  BlockTaps<kHow> taps;
  constexpr int32_t kLines = 64;
  for (int32_t from = first_line; from < last_line; from += kLines) {
    for (int64_t a = begin; a < end; ++a) {
      const int32_t from_line = std::max(from, ranges[a - begin].begin),
                    to_line = std::min(from + kLines, ranges[a - begin].end);
      const float slope = v.forward[a].slope;
      for (int64_t part = 0; part < Sums<kLanes>::kParts; ++part) {
        V sum[Sums<kLanes>::kVectors];
        LoadSums<kLanes>(sums[a - begin], part, sum);
        for (int32_t j = from_line; j < to_line; ++j) {
          ForwardTaps<kHow>(offsets[a - begin], static_cast<float>(j) - middle, slope, n, taps);
          AddLine<kHow, kLanes>(lines + j * pitch + math::kRayMargin * kLanes, v.size, taps, part,
                                sum);
        }
        StoreSums<kLanes>(sum, part, sums[a - begin]);
      }
    }
  }
  const int64_t rays = std::min(kBlock, v.detectors - first_ray);
  for (int64_t a = begin; a < end; ++a) {
    float* out = sinogram + (v.SinogramRow(a) + first_ray) * kLanes;
    const float scale = v.pixel_size * fabsf(v.forward[a].inverse);
    for (int64_t q = 0; q < rays; ++q) {
      for (int64_t l = 0; l < kLanes; ++l)
        out[q * kLanes + l] = sums[a - begin][SumAt<kLanes>(q, l)] * scale;
    }
  }
}

template <RayInterpolation kHow, int64_t kLanes>
void Back(const RayView& v, int64_t group, int64_t begin, int64_t end, int64_t row, int64_t column,
          const float* sinogram, float* image) {
  alignas(64) float sums[kBlockRows][kBlock * kLanes];
  std::memset(sums, 0, sizeof sums);
  const float middle = 0.5f * (static_cast<float>(v.size) - 1.0f), center = v.centers[group],
              detectors = static_cast<float>(v.detectors);
  const int64_t rows = std::min(kBlockRows, v.size - row),
                columns = std::min(kBlock, v.size - column);
  const float x = static_cast<float>(column) - middle, y = static_cast<float>(row) - middle;
  const float nearest_x = std::max({0.0f, x, -(x + static_cast<float>(kBlock))}),
              nearest_y = std::max({0.0f, y, -(y + static_cast<float>(kBlockRows))});
  if (math::InCircle(nearest_x, nearest_y, v.radius)) {
    BlockTaps<kHow> taps;
    const int64_t pitch = v.sinogram_pitch() * kLanes;
    constexpr int64_t kAngles = 32;
    for (int64_t from = begin; from < end; from += kAngles) {
      const int64_t to = std::min(from + kAngles, end);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t part = 0; part < Sums<kLanes>::kParts; ++part) {
          V sum[Sums<kLanes>::kVectors];
          LoadSums<kLanes>(sums[r], part, sum);
          for (int64_t a = from; a < to; ++a) {
            BackTaps<kHow>(v.back[a], x, y + static_cast<float>(r), center, detectors, taps);
            AddLine<kHow, kLanes>(sinogram + a * pitch + math::kRayMargin * kLanes, v.detectors,
                                  taps, part, sum);
          }
          StoreSums<kLanes>(sum, part, sums[r]);
        }
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* out = image + (v.ImageRow(row + r) + column) * kLanes;
    for (int64_t q = 0; q < columns; ++q) {
      const bool inside =
          math::InCircle(x + static_cast<float>(q), y + static_cast<float>(r), v.radius);
      for (int64_t l = 0; l < kLanes; ++l)
        out[q * kLanes + l] = inside ? sums[r][SumAt<kLanes>(q, l)] : 0.0f;
    }
  }
}

// The taps of kBlock points of a row of a plane at one angle.
template <RayInterpolation kHow>
HWY_INLINE void PlaneTaps(const math::BackAngle& t, const math::PlaneRow& points, int32_t column,
                          float center, float detectors, BlockTaps<kHow>& taps) {
  for (int32_t q = 0; q < kBlock; ++q) {
    float w[RayTaps<kHow>::kCount];
    const float u = math::DetectorOf(points.X(column + q), points.Y(column + q), t, center);
    taps.first[q] = RayTaps<kHow>::Back(math::Within(u, detectors), t, w);
    for (int k = 0; k < RayTaps<kHow>::kCount; ++k) taps.weight[k][q] = w[k];
  }
}

template <RayInterpolation kHow>
void Plane(const RayView& v, const math::VolumePlane& plane, int64_t row, int64_t column,
           const float* sinogram, float* image) {
  constexpr int64_t kAngles = 16;
  const int64_t rows = std::min<int64_t>(kBlockRows, plane.rows() - row),
                columns = std::min<int64_t>(kBlock, plane.columns() - column);
  const auto first_row = static_cast<int32_t>(row), first_column = static_cast<int32_t>(column);
  const auto detectors = static_cast<float>(v.detectors);
  alignas(64) float sums[kBlockRows][kBlock];
  std::memset(sums, 0, sizeof sums);
  BlockTaps<kHow> taps[kAngles];
  for (int64_t from = 0; from < v.angles; from += kAngles) {
    const int64_t to = std::min(from + kAngles, v.angles);
    bool known = false;  // `taps`, of the row above
    float center = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const math::PlaneRow points = plane.Row(first_row + static_cast<int32_t>(r));
      // Rows of one slice lie at other points; those of different slices at the same.
      if (!known || plane.axis == math::PlaneAxis::kZ || center != v.centers[points.slice]) {
        center = v.centers[points.slice];
        known = true;
        for (int64_t a = from; a < to; ++a)
          PlaneTaps<kHow>(v.back[a], points, first_column, center, detectors, taps[a - from]);
      }
      V sum[Sums<1>::kVectors];
      LoadSums<1>(sums[r], 0, sum);
      for (int64_t a = from; a < to; ++a) {
        AddLine<kHow, 1>(sinogram + v.SinogramRow(points.slice * v.angles + a), v.detectors,
                         taps[a - from], 0, sum);
      }
      StoreSums<1>(sum, 0, sums[r]);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const math::PlaneRow points = plane.Row(first_row + static_cast<int32_t>(r));
    float* out = image + (row + r) * plane.columns() + column;
    for (int32_t q = 0; q < columns; ++q) {
      if (math::InCircle(points.X(first_column + q), points.Y(first_column + q), v.radius))
        out[q] += sums[r][q];
    }
  }
}

template <class F>
HWY_INLINE void ForKind(const RayView& v, F f) {
  switch (v.interpolation) {
    case RayInterpolation::kNearest: f.template operator()<RayInterpolation::kNearest>(); break;
    case RayInterpolation::kLinear: f.template operator()<RayInterpolation::kLinear>(); break;
    case RayInterpolation::kCubic: f.template operator()<RayInterpolation::kCubic>(); break;
  }
}

void ForwardAny(const RayView& v, int64_t group, int64_t begin, int64_t end, int64_t first_ray,
                const float* lines, float* sinogram) {
  ForKind(v, [&]<RayInterpolation kHow>() {
    v.lanes == 1 ? Forward<kHow, 1>(v, group, begin, end, first_ray, lines, sinogram)
                 : Forward<kHow, kHostLanes>(v, group, begin, end, first_ray, lines, sinogram);
  });
}
void BackAny(const RayView& v, int64_t group, int64_t begin, int64_t end, int64_t row,
             int64_t column, const float* sinogram, float* image) {
  ForKind(v, [&]<RayInterpolation kHow>() {
    v.lanes == 1 ? Back<kHow, 1>(v, group, begin, end, row, column, sinogram, image)
                 : Back<kHow, kHostLanes>(v, group, begin, end, row, column, sinogram, image);
  });
}
void PlaneAny(const RayView& v, const math::VolumePlane& plane, int64_t row, int64_t column,
              const float* sinogram, float* image) {
  ForKind(v, [&]<RayInterpolation kHow>() { Plane<kHow>(v, plane, row, column, sinogram, image); });
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::inline gpu::host {

HWY_EXPORT(ForwardAny);
HWY_EXPORT(BackAny);
HWY_EXPORT(PlaneAny);

void ForwardBlock(const RayView& view, int64_t group, int64_t begin, int64_t end, int64_t first_ray,
                  const float* lines, float* sinogram) {
  HWY_DYNAMIC_DISPATCH(ForwardAny)(view, group, begin, end, first_ray, lines, sinogram);
}
void BackBlock(const RayView& view, int64_t group, int64_t begin, int64_t end, int64_t row,
               int64_t column, const float* sinogram, float* image) {
  HWY_DYNAMIC_DISPATCH(BackAny)(view, group, begin, end, row, column, sinogram, image);
}
void PlaneBlock(const RayView& view, const math::VolumePlane& plane, int64_t row, int64_t column,
                const float* sinogram, float* image) {
  HWY_DYNAMIC_DISPATCH(PlaneAny)(view, plane, row, column, sinogram, image);
}

}  // namespace octavo::inline gpu::host
#endif
