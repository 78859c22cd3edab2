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

/// Pearson's coefficient of pairs of numbers at places, after the best plane over the places has
/// been taken out of both: from sums of products. Places reach from -1 to 1 along each axis, and
/// the numbers are differences to a pair of pivots near their means, so that the squares lose
/// nothing.
struct DetrendedCorrelation {
  static constexpr int kPlane = 4, kTerms = kPlane + 2;  // 1, z, y, x; a, b
  static constexpr int kSums = kTerms * (kTerms + 1) / 2;
  double sums[kSums] = {};  // of products of two terms: the upper triangle, row by row

  OCTAVO_HOST_DEVICE void Include(const double (&place)[3], double a, double b) {
    const double terms[kTerms] = {1, place[0], place[1], place[2], a, b};
    int at = 0;
    for (int i = 0; i < kTerms; ++i) {
      for (int j = i; j < kTerms; ++j) sums[at++] += terms[i] * terms[j];
    }
  }
  OCTAVO_HOST_DEVICE double count() const { return sums[0]; }
  /// 0 where one of them is a plane but for rounding, or where there are too few pairs.
  OCTAVO_HOST_DEVICE double Coefficient() const {
    constexpr double kContents = 1e-10;  // of the variance: less is rounding
    if (!(count() > kTerms)) return 0;
    double m[kTerms][kTerms];
    int at = 0;
    for (int i = 0; i < kTerms; ++i) {
      for (int j = i; j < kTerms; ++j) m[i][j] = sums[at++];
    }
    double whole[2] = {0, 0};
    for (int p = 0; p < kPlane; ++p) {
      // An axis along which there is one place only, or that depends on the others, says nothing.
      if (m[p][p] > 1e-9 * count()) {
        for (int i = p + 1; i < kTerms; ++i) {
          const double factor = m[p][i] / m[p][p];
          for (int j = i; j < kTerms; ++j) m[i][j] -= factor * m[p][j];
        }
      }
      if (p == 0) whole[0] = m[kPlane][kPlane], whole[1] = m[kPlane + 1][kPlane + 1];
    }
    const double a = m[kPlane][kPlane], b = m[kPlane + 1][kPlane + 1], ab = m[kPlane][kPlane + 1];
    // What the sums themselves lose, too: their pivots may be far from the means.
    if (!(a > kContents * whole[0]) || !(b > kContents * whole[1])) return 0;
    if (!(a > 1e-14 * sums[kSums - 3]) || !(b > 1e-14 * sums[kSums - 1])) return 0;
    const double r = ab / sqrt(a * b);
    return r > 1 ? 1 : r < -1 ? -1 : r;
  }
};

}  // namespace octavo::inline gpu::math
