#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/array_ops.h"
#include "gpu/math/elements.h"
#include "gpu/math/filter.h"
#include "gpu/math/host_device.h"

// The surface of a sample in columns along the depth axis, shared by all backends. All arrays here
// have the depth axis first: [depth, columns].
namespace octavo::inline gpu::math {

// -- samples, some of which were not recorded

/// A sum of recorded samples and the sum of their weights. A weight below 0 marks a sample that was
/// recorded itself; its amount counts.
struct WeightedSample {
  float sum = 0, weight = 0;
};

OCTAVO_HOST_DEVICE inline WeightedSample SampleOf(float v, bool zero_is_data, bool masked) {
  const bool recorded = masked && v - v == 0 && (v != 0 || zero_is_data);
  return recorded ? WeightedSample{v, -1} : WeightedSample{0, 0};
}
/// The mean that a sum stands for; NaN if the sample itself was not recorded.
OCTAVO_HOST_DEVICE inline float MeanOf(const WeightedSample& s) {
  return s.weight < 0 ? s.sum / -s.weight : NAN;
}
/// A weighted sum of the samples around i, at(0) ... at(n - 1); beyond the ends as kReflect.
template <typename At>
OCTAVO_HOST_DEVICE inline WeightedSample SmoothSample(const At& at, int64_t i, int64_t n,
                                                      const float* weight, int radius) {
  WeightedSample sum;
  for (int k = -radius; k <= radius; ++k) {
    const WeightedSample s = at(EdgeIndex(Edge::kReflect, i + k, n));
    sum.sum = WithTap(sum.sum, weight[k + radius], s.sum);
    sum.weight = WithTap(sum.weight, weight[k + radius], s.weight < 0 ? -s.weight : s.weight);
  }
  if (at(i).weight < 0) sum.weight = -sum.weight;
  return sum;
}

// -- by a threshold

constexpr int kSurfaceBins = 256;

/// Otsu's threshold, and the middle between it and the mean of the samples below it.
struct SurfaceLevels {
  double threshold = 0, level = 0;
};
OCTAVO_HOST_DEVICE inline SurfaceLevels SurfaceLevelsOf(const uint64_t* counts, double lo,
                                                        double hi) {
  const double threshold = OtsuThreshold(counts, lo, hi, kSurfaceBins);
  double below = 0, sum = 0;
  for (int64_t b = 0; b < kSurfaceBins; ++b) {
    const double middle = BinMiddle(b, lo, hi, kSurfaceBins);
    if (middle > threshold) break;
    below += static_cast<double>(counts[b]);
    sum += static_cast<double>(counts[b]) * middle;
  }
  return {threshold, below > 0 ? (threshold + sum / below) / 2 : threshold};
}

/// Where the first `thickness` samples of a run, which begins at `first`, rise to half of their
/// brightness above what is below the threshold: the middle of an edge, however blurred it is.
template <typename At>
OCTAVO_HOST_DEVICE inline float RiseOf(const At& at, int64_t first, const SurfaceLevels& levels,
                                       int64_t thickness) {
  const double below = 2 * levels.level - levels.threshold;
  double bright = below;
  // The mean, and then that of the samples above it, without the edge itself, which is darker.
  for (int turn = 0; turn < 2; ++turn) {
    double sum = 0, count = 0;
    for (int64_t i = first; i < first + thickness; ++i) {
      const double v = static_cast<double>(at(i));
      if (!(v > bright)) continue;
      sum += v;
      count += 1;
    }
    bright = count > 0 ? sum / count : bright;
  }
  const double half = (bright + below) / 2;
  int64_t i = first;
  while (i > 0 && static_cast<double>(at(i - 1)) > half) --i;
  while (i + 1 < first + thickness && !(static_cast<double>(at(i)) > half)) ++i;
  const double v = static_cast<double>(at(i)), last = i > 0 ? static_cast<double>(at(i - 1)) : NAN;
  if (!(last < v) || !(v > half)) return static_cast<float>(i);
  return static_cast<float>(static_cast<double>(i - 1) + (half - last) / (v - last));
}

/// Where a column rises before its first run above the level that is `thickness` long and has half
/// of that above the threshold; NaN if there is none. A run with less than `thickness` recorded
/// samples before it counts only if there is no other. at(i) is NaN if not recorded.
template <typename At>
OCTAVO_HOST_DEVICE inline float FindSurface(const At& at, int64_t n, const SurfaceLevels& levels,
                                            int64_t thickness) {
  float near_top = NAN;
  int64_t recorded = 0, before = 0, length = 0, strong = 0;
  for (int64_t i = 0; i <= n; ++i) {
    const float v = i < n ? at(i) : NAN;
    if (v > levels.level) {
      if (length == 0) before = recorded;
      ++length;
      if (v > levels.threshold) ++strong;
    } else {
      if (length >= thickness && 2 * strong >= thickness) {
        const float place = RiseOf(at, i - length, levels, thickness);
        if (before >= thickness) return place;
        if (!(near_top == near_top)) near_top = place;
      }
      length = strong = 0;
    }
    if (v == v) ++recorded;
  }
  return near_top;
}

// -- maps of surfaces: [rows, columns]

constexpr int64_t kSurfaceNeighbours = 32;  // columns on either side that judge one
constexpr double kSurfaceSmoothing = 2;     // columns, a standard deviation
constexpr int kSurfaceRadius = 8;           // columns, 4 standard deviations

/// The surface at (y, x); NaN if most known neighbours along the two axes lie more than `apart`
/// from it.
OCTAVO_HOST_DEVICE inline float AgreedSurface(const float* map, int64_t rows, int64_t columns,
                                              int64_t y, int64_t x, float apart) {
  const float here = map[y * columns + x];
  if (!(here == here)) return here;
  int64_t known = 0, near = 0;
  const auto ask = [&](int64_t r, int64_t c) {
    const float other = map[r * columns + c];
    if (!(other == other)) return;
    ++known;
    if (fabsf(other - here) <= apart) ++near;
  };
  for (int64_t d = -kSurfaceNeighbours; d <= kSurfaceNeighbours; ++d) {
    if (x + d >= 0 && x + d < columns) ask(y, x + d);
    if (d != 0 && y + d >= 0 && y + d < rows) ask(y + d, x);
  }
  return 2 * near < known ? NAN : here;
}

/// The Gaussian mean of the known surfaces around (y, x); NaN if it is not known itself.
OCTAVO_HOST_DEVICE inline float SmoothSurface(const float* map, int64_t rows, int64_t columns,
                                              int64_t y, int64_t x) {
  if (!(map[y * columns + x] == map[y * columns + x])) return NAN;
  double sum = 0, weights = 0;
  const int64_t reach_y = rows > 1 ? kSurfaceRadius : 0, reach_x = columns > 1 ? kSurfaceRadius : 0;
  for (int64_t dy = -reach_y; dy <= reach_y; ++dy) {
    for (int64_t dx = -reach_x; dx <= reach_x; ++dx) {
      const float v = map[EdgeIndex(Edge::kReflect, y + dy, rows) * columns +
                          EdgeIndex(Edge::kReflect, x + dx, columns)];
      if (!(v == v)) continue;
      const double weight = exp(-0.5 * static_cast<double>(dy * dy + dx * dx) /
                                (kSurfaceSmoothing * kSurfaceSmoothing));
      sum += weight * static_cast<double>(v);
      weights += weight;
    }
  }
  return static_cast<float>(sum / weights);
}

// -- by the steepest rise

/// The place of the steepest rise of a column: `rise` is the kernel of a Gaussian's derivative,
/// `smooth` that of the Gaussian (null: cutting errors are not looked for), both with `radius`
/// samples on either side. at(k) are the `count` samples that the mask leaves, one after the other;
/// masked(i) says whether sample i of the column's n is one of them. Rounded to f32 before they are
/// compared, as SciPy does.
template <typename At, typename Masked>
OCTAVO_HOST_DEVICE inline float FindSteepest(const At& at, const Masked& masked, int64_t n,
                                             int64_t count, const double* rise,
                                             const double* smooth, int64_t radius, double sigma) {
  if (count == 0) return NAN;
  float most = 0, brightest = 0;
  int64_t z = -1, top = -1, k = 0;
  for (int64_t i = 0; i < n; ++i) {
    float slope = 0, magnitude = 0;
    if (masked(i)) {
      if (!(at(k) == at(k))) return NAN;
      double sum = 0, mean = 0;
      for (int64_t t = -radius; t <= radius; ++t) {
        const double v = static_cast<double>(at(EdgeIndex(Edge::kReflect, k + t, count)));
        sum += rise[t + radius] * v;
        if (smooth != nullptr) mean += smooth[t + radius] * v;
      }
      slope = static_cast<float>(sum);
      magnitude = fabsf(static_cast<float>(mean));
      ++k;
    }
    if (z < 0 || slope > most) {
      most = slope;
      z = i;
    }
    if (top < 0 || magnitude > brightest) {
      brightest = magnitude;
      top = i;
    }
  }
  double place = ceil(static_cast<double>(z) + 0.5 * sigma);
  if (smooth != nullptr) place = fmin(place, static_cast<double>(top));
  return static_cast<float>(fmin(place, static_cast<double>(n - 1)));
}

}  // namespace octavo::inline gpu::math
