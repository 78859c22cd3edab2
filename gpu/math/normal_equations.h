#pragma once

#include <cmath>

#include "gpu/math/host_device.h"

// Weighted linear least squares of a few unknowns, from sums over the observations.
namespace octavo::inline gpu::math {

/// The sums, in one array, so that those of several threads are added as one: the upper triangle of
/// the matrix, row by row, then the right-hand side.
template <int kUnknowns>
struct NormalEquations {
  static constexpr int kSums = kUnknowns * (kUnknowns + 1) / 2 + kUnknowns;
  double sums[kSums] = {};

  /// An observation: `value` = Σ row[i] unknown[i].
  OCTAVO_HOST_DEVICE void Include(const double (&row)[kUnknowns], double value, double weight) {
    int at = 0;
    for (int i = 0; i < kUnknowns; ++i) {
      const double scaled = weight * row[i];
      for (int j = i; j < kUnknowns; ++j) sums[at++] += scaled * row[j];
    }
    for (int i = 0; i < kUnknowns; ++i) sums[at++] += weight * row[i] * value;
  }

  /// The unknowns, by Cholesky's decomposition. An unknown that no observation speaks of is 0.
  /// False if the observations do not determine the others.
  OCTAVO_HOST_DEVICE bool Solve(double (&unknown)[kUnknowns]) const {
    double lower[kUnknowns][kUnknowns];
    int at = 0;
    for (int i = 0; i < kUnknowns; ++i) {
      for (int j = i; j < kUnknowns; ++j) lower[j][i] = sums[at++];
    }
    for (int i = 0; i < kUnknowns; ++i) {
      if (lower[i][i] == 0) lower[i][i] = 1;
      lower[i][i] *= 1 + 1e-12;
    }
    for (int i = 0; i < kUnknowns; ++i) {
      const double own = lower[i][i];
      for (int k = 0; k < i; ++k) lower[i][i] -= lower[i][k] * lower[i][k];
      if (!(lower[i][i] > 1e-13 * own)) return false;
      lower[i][i] = sqrt(lower[i][i]);
      for (int j = i + 1; j < kUnknowns; ++j) {
        for (int k = 0; k < i; ++k) lower[j][i] -= lower[j][k] * lower[i][k];
        lower[j][i] /= lower[i][i];
      }
    }
    for (int i = 0; i < kUnknowns; ++i) {
      unknown[i] = sums[at + i];
      for (int k = 0; k < i; ++k) unknown[i] -= lower[i][k] * unknown[k];
      unknown[i] /= lower[i][i];
    }
    for (int i = kUnknowns - 1; i >= 0; --i) {
      for (int k = i + 1; k < kUnknowns; ++k) unknown[i] -= lower[k][i] * unknown[k];
      unknown[i] /= lower[i][i];
    }
    return true;
  }
};

/// Pearson's coefficient of pairs of numbers, from sums of their differences to a pair of pivots
/// near their means, so that the squares lose nothing.
struct CorrelationSums {
  static constexpr int kSums = 6;
  double sums[kSums] = {};  // count, a, b, aa, bb, ab
  OCTAVO_HOST_DEVICE void Include(double a, double b) {
    sums[0] += 1;
    sums[1] += a;
    sums[2] += b;
    sums[3] += a * a;
    sums[4] += b * b;
    sums[5] += a * b;
  }
  OCTAVO_HOST_DEVICE double count() const { return sums[0]; }
  /// 0 where one of them is constant or there are fewer than two pairs.
  OCTAVO_HOST_DEVICE double Coefficient() const {
    const double n = sums[0];
    if (n < 2) return 0;
    const double a = sums[3] - sums[1] * sums[1] / n, b = sums[4] - sums[2] * sums[2] / n,
                 ab = sums[5] - sums[1] * sums[2] / n;
    if (!(a > 1e-14 * sums[3]) || !(b > 1e-14 * sums[4])) return 0;
    const double r = ab / sqrt(a * b);
    return r > 1 ? 1 : r < -1 ? -1 : r;
  }
};

}  // namespace octavo::inline gpu::math
