#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/finite.h"
#include "gpu/math/host_device.h"
#include "gpu/math/normal_equations.h"

// The open beam behind one projection, where the beam changes during a scan: the mean flat field
// plus a sum of its principal components, whose weights make the total variation of the normalised
// projection least. Shared by all backends. After V. Van Nieuwenhove, J. De Beenhouwer, F. De
// Carlo, L. Mancini, F. Marone, J. Sijbers, "Dynamic intensity normalization using eigen flat
// fields in X-ray imaging", Opt. Express 23 (2015) 27975-27989.
#if defined(__CUDACC__)
// The sums are those of the host on the host, and those of a block on the GPU.
#define OCTAVO_SUM_FUNCTION _Pragma("nv_exec_check_disable")
#else
#define OCTAVO_SUM_FUNCTION
#endif
namespace octavo::inline gpu::math {

/// The most components of flat fields.
inline constexpr int kMostFlatComponents = 8;

/// Pixels of the detector in which the weights are found: rows in groups of neighbours, packed
/// [row, column]. Columns lie side by side, and so do the rows of a group.
struct FlatSample {
  int64_t rows = 0, columns = 0, group_rows = 1;
  const float* open = nullptr;   // of the mean flat field, above the dark field; 0 = left out
  const float* dark = nullptr;   // subtracted from the counts
  const float* parts = nullptr;  // [component, row, column]: a change of `open` of weight 1
  double mean = 0;               // of `open`, over the pixels that are not left out
  double means[kMostFlatComponents] = {};  // likewise of the parts
  OCTAVO_HOST_DEVICE int64_t pixels() const { return rows * columns; }
};

/// What is added up over all pixels: the normal equations of the weights' change, Σ |∇n|, and the
/// number of gradients.
template <int K>
struct FlatSums {
  static constexpr int kValues = NormalEquations<K>::kSums + 2;
  double values[kValues] = {};
};

/// A normalised pixel and its derivatives by the weights.
template <int K>
struct FlatPixel {
  bool known = false;
  double value = 0, slopes[K];

  OCTAVO_HOST_DEVICE FlatPixel(const FlatSample& s, const float* counts, const double (&weights)[K],
                               int64_t i) {
    const float open = s.open[i], above = counts[i] - s.dark[i];
    if (!(open > 0.0f) || !IsFinite(above)) return;
    // A beam that loses more than this at a pixel is not what the flat fields showed.
    constexpr double kLeast = 0.05;
    double parts[K], light = static_cast<double>(open);
    for (int k = 0; k < K; ++k) {
      parts[k] = static_cast<double>(s.parts[k * s.pixels() + i]);
      light += weights[k] * parts[k];
    }
    light = fmax(light, kLeast * static_cast<double>(open));
    known = true;
    value = static_cast<double>(above) / light;
    for (int k = 0; k < K; ++k) slopes[k] = -value * parts[k] / light;
  }
};

/// Adds the gradient at pixel i to the sums. Σ |F ∇n| is what is made least, F the mean of the open
/// beam relative to that of the mean flat field, so that a brighter beam alone gains nothing (as in
/// the authors' program). Linearised in the weights and with |g|² / |g before| for |g|, its minimum
/// is one of weighted least squares. `smooth` keeps flat places from a weight without end.
template <int K>
OCTAVO_HOST_DEVICE inline void AddFlatGradient(const FlatSample& s, const float* counts,
                                               const double (&weights)[K], double smooth, int64_t i,
                                               double (&sums)[FlatSums<K>::kValues]) {
  const int64_t row = i / s.columns, column = i - row * s.columns;
  const FlatPixel<K> here(s, counts, weights, i);
  if (!here.known) return;
  double brighter = 1;
  for (int k = 0; k < K; ++k) brighter += weights[k] * s.means[k] / s.mean;
  double step[2], slopes[2][K], square = 0;
  bool any = false;
  for (int axis = 0; axis < 2; ++axis) {
    step[axis] = 0;
    for (int k = 0; k < K; ++k) slopes[axis][k] = 0;
    const bool inside =
        axis == 0 ? column + 1 < s.columns : row + 1 < s.rows && (row + 1) % s.group_rows != 0;
    if (!inside) continue;
    const FlatPixel<K> next(s, counts, weights, axis == 0 ? i + 1 : i + s.columns);
    if (!next.known) continue;
    any = true;
    const double difference = next.value - here.value;
    step[axis] = brighter * difference;
    square += step[axis] * step[axis];
    for (int k = 0; k < K; ++k)
      slopes[axis][k] =
          brighter * (next.slopes[k] - here.slopes[k]) + s.means[k] / s.mean * difference;
  }
  if (!any) return;
  const double size = sqrt(square + smooth * smooth);
  for (int axis = 0; axis < 2; ++axis) {
    int at = 0;
    for (int k = 0; k < K; ++k) {
      const double scaled = slopes[axis][k] / size;
      for (int l = k; l < K; ++l) sums[at++] += scaled * slopes[axis][l];
    }
    for (int k = 0; k < K; ++k) sums[at++] -= slopes[axis][k] / size * step[axis];
  }
  sums[FlatSums<K>::kValues - 2] += size;
  sums[FlatSums<K>::kValues - 1] += 1;
}

/// The weights of one projection, in standard deviations among the flat fields. `sum(f)` calls
/// f(pixel, sums) for all pixels and returns the FlatSums of all. A weight that the projection does
/// not tell, such as that of the brightness alone, is 0: each has an error of 10 standard
/// deviations before the projection is looked at.
OCTAVO_SUM_FUNCTION
template <int K, class Sum>
OCTAVO_HOST_DEVICE void FindFlatWeights(const FlatSample& s, const float* counts, const Sum& sum,
                                        double (&weights)[K]) {
  constexpr int kMostSteps = 40;
  constexpr double kSmooth = 1e-3;  // of the mean gradient
  constexpr double kPrior = 0.01;   // 1 / 10²
  constexpr double kClose = 1e-3;   // standard deviations
  double step[K], best[K], smooth = 0, spread = 0, least = 0;
  for (int k = 0; k < K; ++k) weights[k] = best[k] = step[k] = 0;
  const auto sums_of = [&] {
    return sum([&](int64_t i, double(&sums)[FlatSums<K>::kValues]) {
      AddFlatGradient<K>(s, counts, weights, smooth, i, sums);
    });
  };
  for (int tried = 0; tried <= kMostSteps; ++tried) {
    FlatSums<K> sums = sums_of();
    if (tried == 0) {
      const double count = sums.values[FlatSums<K>::kValues - 1];
      if (!(count > 0)) return;
      spread = sums.values[FlatSums<K>::kValues - 2] / count;
      if (!(spread > 0)) return;  // as smooth as it can be
      smooth = kSmooth * spread;
      sums = sums_of();
    }
    double cost = sums.values[FlatSums<K>::kValues - 2];
    for (int k = 0; k < K; ++k) cost += 0.5 * kPrior * spread * weights[k] * weights[k];
    if (tried > 0 && !(cost <= least)) {
      // Too far: half the way from where it was least.
      double far = 0;
      for (int k = 0; k < K; ++k) {
        step[k] *= 0.5;
        weights[k] = best[k] + step[k];
        far = fmax(far, fabs(step[k]));
      }
      if (far < kClose) break;
      continue;
    }
    least = cost;
    for (int k = 0; k < K; ++k) best[k] = weights[k];
    NormalEquations<K> equations;
    for (int i = 0; i < NormalEquations<K>::kSums; ++i) equations.sums[i] = sums.values[i];
    double unit[K];
    for (int k = 0; k < K; ++k) {
      for (int l = 0; l < K; ++l) unit[l] = k == l ? 1 : 0;
      equations.Include(unit, -weights[k], kPrior * spread);
    }
    if (!equations.Solve(step)) break;
    double far = 0;
    for (int k = 0; k < K; ++k) {
      weights[k] = best[k] + step[k];
      far = fmax(far, fabs(step[k]));
    }
    if (far < kClose) {
      for (int k = 0; k < K; ++k) best[k] = weights[k];
      break;
    }
  }
  for (int k = 0; k < K; ++k) weights[k] = best[k];
}

/// What a weighted sum of frames has at one pixel.
template <class Load>
OCTAVO_HOST_DEVICE float MixedValue(int64_t count, const double* mixture, int64_t stride,
                                    Load load) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += mixture[i * stride] * static_cast<double>(load(i));
  return static_cast<float>(sum);
}

}  // namespace octavo::inline gpu::math
