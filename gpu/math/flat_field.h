#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"

// What the tiles of a mosaic have in common, shared by all backends. A team is what works on a
// problem together: team.ForEach(n, f) calls f(i) for i < n; team.Rows(rows, n, f, sums) sets
// sums[r] to the sum of f(r, i) over i < n. Both return when all is done.
#if defined(__CUDACC__)
// A team of the host is used on the host, one of a GPU on the GPU.
#define OCTAVO_TEAM_FUNCTION _Pragma("nv_exec_check_disable")
#else
#define OCTAVO_TEAM_FUNCTION
#endif
namespace octavo::inline gpu::math {

// -- the quadratic surface

/// Its terms at pixel i, whose coordinates reach from -1 to 1.
constexpr int kQuadraticTerms = 6;
OCTAVO_HOST_DEVICE inline double QuadraticTerm(int term, int64_t i, int64_t rows, int64_t columns) {
  const auto at = [](int64_t k, int64_t n) {
    return n > 1 ? 2 * static_cast<double>(k) / static_cast<double>(n - 1) - 1 : 0.0;
  };
  const double y = at(i / columns, rows), x = at(i % columns, columns);
  switch (term) {
    case 0: return 1;
    case 1: return y;
    case 2: return x;
    case 3: return y * y;
    case 4: return y * x;
    default: return x * x;
  }
}
/// The number of sums that a fit needs: of products of two terms, row by row of the triangle, and
/// of terms times values.
constexpr int kQuadraticSums = kQuadraticTerms * (kQuadraticTerms + 1) / 2 + kQuadraticTerms;

/// The coefficients of the least squares with the first `terms` terms; a term that the pixels
/// cannot tell from those before it gets 0, and so do the others.
OCTAVO_HOST_DEVICE inline void SolveQuadratic(const double* sums, int terms, double* coefficients) {
  double m[kQuadraticTerms][kQuadraticTerms + 1];
  int at = 0;
  for (int r = 0; r < kQuadraticTerms; ++r) {
    for (int c = r; c < kQuadraticTerms; ++c) m[r][c] = m[c][r] = sums[at++];
  }
  for (int r = 0; r < kQuadraticTerms; ++r) m[r][kQuadraticTerms] = sums[at++];
  bool used[kQuadraticTerms];
  for (int p = 0; p < kQuadraticTerms; ++p) {
    used[p] = p < terms && (m[p][p] > 1e-9 * m[0][0] || (p == 0 && m[0][0] > 0));
    if (!used[p]) continue;
    for (int r = p + 1; r < kQuadraticTerms; ++r) {
      const double factor = m[r][p] / m[p][p];
      for (int c = p; c <= kQuadraticTerms; ++c) m[r][c] -= factor * m[p][c];
    }
  }
  for (int p = kQuadraticTerms - 1; p >= 0; --p) {
    coefficients[p] = 0;
    if (!used[p]) continue;
    double sum = m[p][kQuadraticTerms];
    for (int c = p + 1; c < kQuadraticTerms; ++c) sum -= m[p][c] * coefficients[c];
    coefficients[p] = sum / m[p][p];
  }
}

/// What a flat field is at least, where it would make the most of next to nothing.
constexpr double kLeastFlat = 0.01;
/// The fit's values lie within this many standard deviations of the mean of the pixels that it goes
/// through: a paraboloid over a whole tile reaches 3.2. Beyond the known pixels it goes no further.
constexpr double kFarthestFit = 4;

/// Of mean_one, a flat field: `in`, or the quadratic surface through its finite pixels, divided by
/// its mean, at least kLeastFlat; 1 everywhere if the mean is not above 0, as of no light, or if no
/// pixel is finite. Otherwise depths: the same, less its mean and without its tilt, that of the
/// best plane; 0 everywhere if no pixel is finite. `work`: kQuadraticSums numbers.
OCTAVO_TEAM_FUNCTION
template <typename Team>
OCTAVO_HOST_DEVICE void LevelFlat(const Team& team, int64_t rows, int64_t columns, bool fit,
                                  bool mean_one, const float* in, double* work, float* out) {
  const int64_t pixels = rows * columns;
  constexpr int kPlaneTerms = 3;
  double coefficients[kQuadraticTerms] = {}, plane[kQuadraticTerms] = {};
  double low = 0, high = 0;
  if (fit || !mean_one) {
    team.Rows(
        kQuadraticSums, pixels,
        [&](int64_t r, int64_t i) {
          const double v = static_cast<double>(in[i]);
          if (!(v - v == 0)) return 0.0;
          int first = 0, at = static_cast<int>(r);
          while (first < kQuadraticTerms && at >= kQuadraticTerms - first) {
            at -= kQuadraticTerms - first;
            ++first;
          }
          if (first == kQuadraticTerms) return QuadraticTerm(at, i, rows, columns) * v;
          return QuadraticTerm(first, i, rows, columns) *
                 QuadraticTerm(first + at, i, rows, columns);
        },
        work);
    SolveQuadratic(work, kQuadraticTerms, coefficients);
    SolveQuadratic(work, kPlaneTerms, plane);
  }
  // A pixel without the tilt, if it is a depth.
  const double tilt[2] = {mean_one ? 0 : plane[1], mean_one ? 0 : plane[2]};
  const auto upright = [&](int64_t i) {
    return static_cast<double>(in[i]) - tilt[0] * QuadraticTerm(1, i, rows, columns) -
           tilt[1] * QuadraticTerm(2, i, rows, columns);
  };
  team.Rows(
      2, pixels,
      [&](int64_t r, int64_t i) {
        const double v = upright(i);
        return v - v == 0 ? (r == 0 ? 1 : v) : 0;
      },
      work);
  const double known = work[0], middle = known > 0 ? work[1] / known : 0;
  if (fit) {
    team.Rows(
        1, pixels,
        [&](int64_t, int64_t i) {
          const double v = upright(i) - middle;
          return v - v == 0 ? v * v : 0;
        },
        work);
    const double reach = known > 0 ? kFarthestFit * sqrt(work[0] / known) : 0;
    low = middle - reach;
    high = middle + reach;
  }
  team.ForEach(pixels, [&](int64_t i) {
    double v = 0;
    if (fit) {
      for (int k = 0; k < kQuadraticTerms; ++k)
        v += coefficients[k] * QuadraticTerm(k, i, rows, columns);
      v -= tilt[0] * QuadraticTerm(1, i, rows, columns) +
           tilt[1] * QuadraticTerm(2, i, rows, columns);
      v = v < low ? low : v > high ? high : v;
    } else {
      v = upright(i);
      if (!(v - v == 0)) v = middle;
    }
    out[i] = static_cast<float>(v);
  });
  team.Rows(
      1, pixels, [&](int64_t, int64_t i) { return static_cast<double>(out[i]); }, work);
  const double mean = work[0] / static_cast<double>(pixels);
  team.ForEach(pixels, [&](int64_t i) {
    const double v = static_cast<double>(out[i]);
    if (!mean_one) {
      out[i] = static_cast<float>(known > 0 ? v - mean : 0);
      return;
    }
    const double flat = known > 0 && mean > 0 ? v / mean : 1;
    out[i] = static_cast<float>(flat > kLeastFlat ? flat : kLeastFlat);
  });
}

// -- BaSiC's model: tile t is flat x brightness[t] + residual[t], the flat of few cosines, the
// residuals few. Source: T. Peng et al., Nature Communications 8, 14836 (2017); the scheme of
// BaSiCPy's approximate mode: augmented Lagrangian, with residuals weighted anew in each round.

constexpr int64_t kBasicSize = 128;  // pixels along each side of a tile
constexpr int64_t kBasicPixels = kBasicSize * kBasicSize;
constexpr int kBasicRounds = 10, kBasicIterations = 500;
constexpr double kBasicFit = 1e-3;     // what a round leaves unexplained, of the tiles' norm
constexpr double kBasicChange = 1e-2;  // the change of the flat that ends the rounds
constexpr double kBasicStep = 12.5, kBasicGrowth = 1.5, kBasicMostGrowth = 1e7;

OCTAVO_HOST_DEVICE inline double Shrunk(double v, double by) {
  return v > by ? v - by : v < -by ? v + by : 0;
}

/// The flat, times the mean brightness of the tiles; NaN if their mean is not above 0. The tiles
/// are brought to mean 1 first, so that the squares of large and small numbers are numbers. `work`:
/// two f64 of each tile, then f32: three images of each tile and five more.
OCTAVO_TEAM_FUNCTION
template <typename Team>
OCTAVO_HOST_DEVICE void SolveBasic(const Team& team, int64_t tiles, double smoothness,
                                   const float* tile_data, float* work, float* out) {
  const int64_t n = kBasicSize, pixels = kBasicPixels, all = tiles * pixels;
  // f64 first, for their alignment.
  double* const sums = reinterpret_cast<double*>(work);
  double* const bright = sums + tiles;
  float* const residual = reinterpret_cast<float*>(bright + tiles);
  float* const multiplier = residual + all;
  float* const weight = multiplier + all;
  float* const flat = weight + all;
  float* const image = flat + pixels;
  float* const half = image + pixels;
  float* const last = half + pixels;
  float* const cosine = last + pixels;  // [frequency, sample], orthonormal
  const auto total = [&] {
    double sum = 0;
    for (int64_t t = 0; t < tiles; ++t) sum += sums[t];
    return sum;
  };
  struct Scaled {
    const float* values;
    double scale;
  };
  struct Reader {
    OCTAVO_HOST_DEVICE double operator()(const float* values, int64_t i) const {
      return static_cast<double>(values[i]);
    }
    OCTAVO_HOST_DEVICE double operator()(const Scaled& scaled, int64_t i) const {
      return static_cast<double>(scaled.values[i]) * scaled.scale;
    }
  };
  const Reader of;

  team.ForEach(pixels, [&](int64_t i) {
    const int64_t k = i / n, x = i % n;
    const double angle =
        3.14159265358979323846 * static_cast<double>(k * (2 * x + 1)) / static_cast<double>(2 * n);
    cosine[i] =
        static_cast<float>(cos(angle) * sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n)));
    last[i] = 0;
    image[i] = 1 / static_cast<float>(n);  // of norm 1, for the largest singular value
  });
  team.ForEach(all, [&](int64_t i) { weight[i] = 1; });
  team.Rows(
      tiles, pixels, [&](int64_t t, int64_t i) { return of(tile_data, t * pixels + i); }, sums);
  const double brightness = total() / static_cast<double>(all);
  if (!(brightness > 0) || !(brightness - brightness == 0)) {
    team.ForEach(pixels, [&](int64_t i) { out[i] = NAN; });
    return;
  }
  const Scaled in{tile_data, 1 / brightness};
  const double mean = 1;
  // The norms of the matrix of tiles: the largest singular value, and Frobenius'.
  double norm = 0;
  for (int turn = 0; turn < 10; ++turn) {
    team.Rows(
        tiles, pixels, [&](int64_t t, int64_t i) { return of(in, t * pixels + i) * of(image, i); },
        bright);
    team.ForEach(pixels, [&](int64_t i) {
      double sum = 0;
      for (int64_t t = 0; t < tiles; ++t) sum += bright[t] * of(in, t * pixels + i);
      half[i] = static_cast<float>(sum);
    });
    team.Rows(
        1, pixels, [&](int64_t, int64_t i) { return of(half, i) * of(half, i); }, sums);
    const double length = sqrt(sums[0]);
    norm = sqrt(length);
    team.ForEach(pixels, [&](int64_t i) { image[i] = static_cast<float>(of(half, i) / length); });
  }
  team.Rows(
      tiles, pixels,
      [&](int64_t t, int64_t i) { return of(in, t * pixels + i) * of(in, t * pixels + i); }, sums);
  const double whole = sqrt(total());
  if (!(whole - whole == 0)) {  // the mean alone was a number
    team.ForEach(pixels, [&](int64_t i) { out[i] = NAN; });
    return;
  }

  for (int round = 0; round < kBasicRounds; ++round) {
    double step = kBasicStep / norm;
    const double most = step * kBasicMostGrowth;
    team.Rows(
        tiles, pixels, [&](int64_t t, int64_t i) { return of(in, t * pixels + i); }, bright);
    team.ForEach(all, [&](int64_t i) { residual[i] = multiplier[i] = 0; });
    team.ForEach(pixels, [&](int64_t i) {
      double sum = 0;
      for (int64_t t = 0; t < tiles; ++t) sum += of(in, t * pixels + i);
      flat[i] = static_cast<float>(sum / static_cast<double>(tiles));
    });
    team.ForEach(tiles, [&](int64_t t) { bright[t] /= static_cast<double>(pixels) * mean; });
    for (int turn = 0; turn < kBasicIterations; ++turn) {
      // What the flat should be, and that of few cosines.
      team.ForEach(pixels, [&](int64_t i) {
        double sum = 0;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t at = t * pixels + i;
          sum +=
              of(in, at) - of(residual, at) - of(flat, i) * bright[t] + of(multiplier, at) / step;
        }
        image[i] = static_cast<float>(of(flat, i) + sum / static_cast<double>(tiles));
      });
      team.ForEach(pixels, [&](int64_t i) {
        const int64_t y = i / n, k = i % n;
        double sum = 0;
        for (int64_t x = 0; x < n; ++x) sum += of(image, y * n + x) * of(cosine, k * n + x);
        half[i] = static_cast<float>(sum);
      });
      team.ForEach(pixels, [&](int64_t i) {
        const int64_t k = i / n, x = i % n;
        double sum = 0;
        for (int64_t y = 0; y < n; ++y) sum += of(half, y * n + x) * of(cosine, k * n + y);
        image[i] = static_cast<float>(Shrunk(sum, smoothness / step));
      });
      team.ForEach(pixels, [&](int64_t i) {
        const int64_t y = i / n, x = i % n;
        double sum = 0;
        for (int64_t k = 0; k < n; ++k) sum += of(image, k * n + x) * of(cosine, k * n + y);
        half[i] = static_cast<float>(sum);
      });
      team.ForEach(pixels, [&](int64_t i) {
        const int64_t y = i / n, x = i % n;
        double sum = 0;
        for (int64_t k = 0; k < n; ++k) sum += of(half, y * n + k) * of(cosine, k * n + x);
        flat[i] = static_cast<float>(sum);
      });
      // The residuals, and the brightnesses that they leave.
      team.Rows(
          tiles, pixels,
          [&](int64_t t, int64_t i) {
            const int64_t at = t * pixels + i;
            const double rest = of(in, at) - of(flat, i) * bright[t] + of(multiplier, at) / step;
            residual[at] = static_cast<float>(Shrunk(rest, of(weight, at) / step));
            return of(in, at) - of(residual, at);
          },
          sums);
      const double explained = total() / static_cast<double>(tiles);
      team.ForEach(tiles, [&](int64_t t) { bright[t] = fmax(0.0, sums[t] / explained); });
      team.Rows(
          tiles, pixels,
          [&](int64_t t, int64_t i) {
            const int64_t at = t * pixels + i;
            const double left = of(in, at) - of(flat, i) * bright[t] - of(residual, at);
            multiplier[at] = static_cast<float>(of(multiplier, at) + step * left);
            return left * left;
          },
          sums);
      step = fmin(step * kBasicGrowth, most);
      if (!(sqrt(total()) > kBasicFit * whole)) break;
    }
    // New weights: a large residual is an object, which may stay one.
    team.Rows(
        tiles, pixels, [&](int64_t t, int64_t i) { return of(flat, i) * bright[t]; }, sums);
    const double modelled = total() / static_cast<double>(all);
    team.Rows(
        tiles, pixels,
        [&](int64_t t, int64_t i) {
          const int64_t at = t * pixels + i;
          weight[at] = static_cast<float>(1 / (fabs(of(residual, at)) / (modelled + 1e-6) + 0.1));
          return of(weight, at);
        },
        sums);
    const double heavy = total() / static_cast<double>(all);
    team.ForEach(all, [&](int64_t i) { weight[i] = static_cast<float>(of(weight, i) / heavy); });
    // The change of the flat of mean 1.
    team.Rows(
        1, pixels, [&](int64_t, int64_t i) { return of(flat, i); }, sums);
    const double level = sums[0] / static_cast<double>(pixels);
    team.Rows(
        1, pixels, [&](int64_t, int64_t i) { return fabs(of(flat, i) / level - of(last, i)); },
        sums);
    const double change = sums[0] / static_cast<double>(pixels);
    team.ForEach(pixels, [&](int64_t i) { last[i] = static_cast<float>(of(flat, i) / level); });
    if (!(change > kBasicChange)) break;
  }
  team.ForEach(pixels, [&](int64_t i) { out[i] = static_cast<float>(of(flat, i) * brightness); });
}

}  // namespace octavo::inline gpu::math
