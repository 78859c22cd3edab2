// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/tomography/host/filter_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "hwy/highway.h"
#include "tbb/parallel_for.h"

#include "gpu/device/fft_length.h"
#include "gpu/device/host/fft-inl.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/vectors-inl.h"
#include "gpu/tomography/host/filter_kernels.h"
#include "gpu/tomography/host/reconstruct_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

// Both parts of a strip to the convolution with the filter, of which detector k is wanted for k <
// detectors. Returns where it lies.
Rows Convolve(const FilterPlan& plan, int64_t detectors, Rows a, Rows b) {
  const D d;
  const int64_t n = plan.fft.n;
  for (float* const part : {a.re, a.im}) {
    for (int64_t k = detectors; k < n; ++k) hn::Store(hn::Zero(d), d, part + k * kLanes);
  }
  Rows out = RunTransform(plan.fft, a, b, 0, n);
  for (int64_t k = 0; k < n; ++k) {
    const V factor = hn::Set(d, plan.response[static_cast<size_t>(std::min(k, n - k))]);
    for (float* const part : {out.re, out.im})
      hn::Store(hn::Mul(hn::Load(d, part + k * kLanes), factor), d, part + k * kLanes);
  }
  if (out.re != a.re) std::swap(a, b);
  // With real and imaginary parts exchanged, the transform is the one of the other sign.
  out = RunTransform(plan.fft, {a.im, a.re}, {b.im, b.re}, 0, detectors);
  return {out.im, out.re};
}

// The filtered value of a detector, with what the edges stand for.
struct Edges {
  V left, right;
  HWY_INLINE V Add(const RowFilter& filter, int64_t k, V value) const {
    const D d;
    if (filter.edge_left == nullptr) return value;
    value = hn::MulAdd(left, hn::Set(d, filter.edge_left[k]), value);
    return hn::MulAdd(right, hn::Set(d, filter.edge_right[k]), value);
  }
};

HWY_INLINE Edges EdgesOf(const float* part, int64_t detectors) {
  const D d;
  return {hn::Load(d, part), hn::Load(d, part + (detectors - 1) * kLanes)};
}

// Two rows with kHostLanes slices side by side.
void FilterPair(const RayView& v, const RowFilter& filter, const FilterPlan& plan, int64_t first,
                bool two, const float* in, float* out, Rows a, Rows b) {
  const D d;
  const int64_t n = v.detectors, row = v.SinogramRow(first) * kHostLanes,
                next = v.SinogramRow(first + 1) * kHostLanes;
  for (int64_t part = 0; part < kHostLanes; part += kLanes) {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = k * kHostLanes + part;
      hn::Store(hn::LoadU(d, in + row + at), d, a.re + k * kLanes);
      hn::Store(two ? hn::LoadU(d, in + next + at) : hn::Zero(d), d, a.im + k * kLanes);
    }
    const Edges edges = EdgesOf(a.re, n), next_edges = EdgesOf(a.im, n);
    const Rows made = Convolve(plan, n, a, b);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = k * kHostLanes + part;
      hn::StoreU(edges.Add(filter, k, hn::Load(d, made.re + k * kLanes)), d, out + row + at);
      if (two)
        hn::StoreU(next_edges.Add(filter, k, hn::Load(d, made.im + k * kLanes)), d,
                   out + next + at);
    }
  }
}

// Up to kLanes pairs of rows of single slices: a pair in each lane.
void FilterPairs(const RayView& v, const RowFilter& filter, const FilterPlan& plan, int64_t first,
                 int64_t end, const float* in, float* out, Rows a, Rows b) {
  const D d;
  const int64_t n = v.detectors;
  int64_t at[2][kLanes];  // of each lane's rows; < 0: none
  for (int64_t l = 0; l < kLanes; ++l) {
    for (int64_t i = 0; i < 2; ++i)
      at[i][l] = first + 2 * l + i < end ? v.SinogramRow(first + 2 * l + i) : -1;
  }
  float* const parts[2] = {a.re, a.im};
  for (int64_t k = 0; k < n; k += kLanes) {
    const int64_t count = std::min(kLanes, n - k);
    for (int64_t i = 0; i < 2; ++i) {
      V block[kLanes];
      for (int64_t l = 0; l < kLanes; ++l)
        block[l] = at[i][l] < 0 ? hn::Zero(d) : LoadSome(in + at[i][l] + k, count);
      TransposeFloats(block);
      for (int64_t j = 0; j < count; ++j) hn::Store(block[j], d, parts[i] + (k + j) * kLanes);
    }
  }
  const Edges edges[2] = {EdgesOf(a.re, n), EdgesOf(a.im, n)};
  const Rows made = Convolve(plan, n, a, b);
  const float* const results[2] = {made.re, made.im};
  for (int64_t k = 0; k < n; k += kLanes) {
    const int64_t count = std::min(kLanes, n - k);
    for (int64_t i = 0; i < 2; ++i) {
      V block[kLanes];
      for (int64_t j = 0; j < kLanes; ++j) {
        const int64_t bin = std::min(k + j, n - 1);
        block[j] = edges[i].Add(filter, bin, hn::Load(d, results[i] + bin * kLanes));
      }
      TransposeFloats(block);
      for (int64_t l = 0; l < kLanes; ++l) {
        if (at[i][l] >= 0) StoreSome(block[l], out + at[i][l] + k, count);
      }
    }
  }
}

void FilterAny(const RayView& v, const RowFilter& filter, const FilterPlan& plan, int64_t first,
               int64_t end, const float* in, float* out, float* scratch) {
  const int64_t values = plan.fft.n * kLanes;
  const Rows a{scratch, scratch + values}, b{scratch + 2 * values, scratch + 3 * values};
  if (v.lanes == 1) {
    FilterPairs(v, filter, plan, first, end, in, out, a, b);
  } else {
    FilterPair(v, filter, plan, first, first + 1 < end, in, out, a, b);
  }
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::inline gpu::host {

HWY_EXPORT(FilterAny);

FilterPlan MakeFilterPlan(const float* taps, int64_t detectors) {
  const int64_t n = NextFastLength(2 * detectors - 1);
  FilterPlan plan{.fft = MakeFftPlan(n), .response = std::vector<float>(n / 2 + 1)};
  std::vector<double> cosines(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k)
    cosines[static_cast<size_t>(k)] =
        std::cos(2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n));
  const float* const middle = taps + detectors - 1;
  tbb::parallel_for(int64_t{0}, n / 2 + 1, [&](int64_t k) {
    double sum = 0;
    for (int64_t tap = 1, turn = k; tap < detectors; ++tap) {
      sum += static_cast<double>(middle[tap]) * cosines[static_cast<size_t>(turn)];
      turn += turn + k < n ? k : k - n;
    }
    plan.response[static_cast<size_t>(k)] =
        static_cast<float>((static_cast<double>(middle[0]) + 2 * sum) / static_cast<double>(n));
  });
  return plan;
}

std::shared_ptr<const FilterPlan> LatestFilterPlan::Of(const float* taps, int64_t detectors) {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<size_t>(2 * detectors - 1);
  if (plan_ == nullptr || taps_.size() != count ||
      std::memcmp(taps_.data(), taps, count * sizeof(float)) != 0) {
    plan_ = std::make_shared<const FilterPlan>(MakeFilterPlan(taps, detectors));
    taps_.assign(taps, taps + count);
  }
  return plan_;
}

int64_t FilterStripRows(const RayView& view) { return view.lanes == 1 ? 2 * TileLanes() : 2; }
int64_t FilterScratch(const FilterPlan& plan) { return 4 * plan.fft.n * TileLanes(); }
void FilterStrip(const RayView& view, const RowFilter& filter, const FilterPlan& plan,
                 int64_t first, int64_t end, const float* in, float* out, float* scratch) {
  HWY_DYNAMIC_DISPATCH(FilterAny)(view, filter, plan, first, end, in, out, scratch);
}

}  // namespace octavo::inline gpu::host
#endif
