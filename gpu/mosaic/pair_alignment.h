#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/element.h"
#include "gpu/math/element_value.h"
#include "gpu/math/host_device.h"
#include "gpu/math/normal_equations.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/team.h"

// How two tiles are aligned, one team to a pair. Sources: phase correlation: Kuglin, Hines 1975;
// several peaks tried by their correlation: Preibisch, Saalfeld, Tomancak 2009; least squares on
// the brightness: Lucas, Kanade 1981.
namespace octavo::inline gpu {

/// What both tiles have if the second lies at `shift` in the first: from `begin` to `end` of the
/// first one.
struct Overlap {
  int64_t begin[3], end[3];
  OCTAVO_HOST_DEVICE Overlap(const TilePair& pair, const int64_t shift[3]) {
    for (int d = 0; d < 3; ++d) {
      const int64_t last = shift[d] + pair.tile[1].extent[d];
      begin[d] = shift[d] > 0 ? shift[d] : 0;
      end[d] = last < pair.tile[0].extent[d] ? last : pair.tile[0].extent[d];
    }
  }
  OCTAVO_HOST_DEVICE int64_t length(int d) const { return end[d] - begin[d]; }
  OCTAVO_HOST_DEVICE int64_t voxels() const {
    int64_t n = 1;
    for (int d = 0; d < 3; ++d) n *= end[d] > begin[d] ? end[d] - begin[d] : 0;
    return n;
  }
  /// Where a voxel of the first tile lies along an axis of the overlap, from -1 to 1; 0 if there is
  /// only one.
  OCTAVO_HOST_DEVICE double Across(int d, int64_t at) const {
    const int64_t n = length(d);
    return n == 1 ? 0 : 2 * (static_cast<double>(at - begin[d]) + 0.5) / static_cast<double>(n) - 1;
  }
  /// The i-th voxel, in the first tile.
  OCTAVO_HOST_DEVICE void At(int64_t i, int64_t voxel[3]) const {
    for (int d = 2; d >= 0; --d) {
      voxel[d] = begin[d] + i % length(d);
      i /= length(d);
    }
  }
};

/// sin² over n samples, never 0.
OCTAVO_HOST_DEVICE inline double HannAt(int64_t i, int64_t n) {
  const double s =
      sin(3.14159265358979323846 * (static_cast<double>(i) + 0.5) / static_cast<double>(n));
  return n == 1 ? 1 : s * s;
}

OCTAVO_HOST_DEVICE inline bool IsFinite(double v) { return v - v == 0; }

/// From a to b. What has no weight must not matter, even if it is NaN.
OCTAVO_HOST_DEVICE inline double Between(double a, double b, double part) {
  return part == 0 ? a : part == 1 ? b : a + (b - a) * part;
}

/// A tile's voxels as f64.
template <typename T>
struct TileReader {
  const T* data;
  int64_t stride[3];
  const TilePlace* place;
  OCTAVO_HOST_DEVICE TileReader(const TileArray& array, const void* tiles, const TilePlace& tile)
      : data(static_cast<const T*>(tiles)), place(&tile) {
    for (int d = 0; d < 3; ++d) stride[d] = array.stride[d];
  }
  OCTAVO_HOST_DEVICE double operator()(const int64_t v[3]) const {
    return math::ValueOf<double>(
        data[place->offset + v[0] * stride[0] + v[1] * stride[1] + v[2] * stride[2]]);
  }
  /// Linear between the voxels; beyond the edges the last one counts.
  OCTAVO_HOST_DEVICE double Sample(const double at[3]) const {
    int64_t low[3], step[3];
    double part[3];
    for (int d = 0; d < 3; ++d) {
      const int64_t last = place->extent[d] - 1;
      double x = at[d] < 0 ? 0 : at[d];
      x = x > static_cast<double>(last) ? static_cast<double>(last) : x;
      low[d] = static_cast<int64_t>(x);
      if (low[d] == last && last > 0) --low[d];
      part[d] = x - static_cast<double>(low[d]);
      step[d] = last > 0 ? stride[d] : 0;
    }
    const int64_t first =
        place->offset + low[0] * stride[0] + low[1] * stride[1] + low[2] * stride[2];
    double planes[2];
    const int depth = step[0] == 0 || part[0] == 0 ? 1 : 2;
    for (int z = 0; z < depth; ++z) {
      const T* const p = data + first + z * step[0];
      const double a = math::ValueOf<double>(p[0]), b = math::ValueOf<double>(p[step[2]]),
                   c = math::ValueOf<double>(p[step[1]]),
                   d = math::ValueOf<double>(p[step[1] + step[2]]);
      planes[z] = Between(Between(a, b, part[2]), Between(c, d, part[2]), part[1]);
    }
    return depth == 1 ? planes[0] : Between(planes[0], planes[1], part[0]);
  }
};

/// The overlap of one tile of a pair, as the stage has it, windowed, without its best plane.
template <typename T, class Team>
OCTAVO_HOST_DEVICE void WindowOverlap(const Team& team, const PairBatch& batch, const void* tiles,
                                      const TilePair& pair, int side, math::Complex64* out) {
  const Overlap overlap(pair, pair.shift);
  const TileReader<T> read(batch.array, tiles, pair.tile[side]);
  const auto value = [&](const int64_t first[3]) {
    int64_t at[3];
    for (int d = 0; d < 3; ++d) at[d] = first[d] - (side == 1 ? pair.shift[d] : 0);
    return read(at);
  };
  math::NormalEquations<4> equations;
  for (int64_t i = team.rank(); i < overlap.voxels(); i += team.size()) {
    int64_t at[3];
    overlap.At(i, at);
    const double v = value(at);
    if (!IsFinite(v)) continue;
    equations.Include(
        {1, overlap.Across(0, at[0]), overlap.Across(1, at[1]), overlap.Across(2, at[2])}, v, 1);
  }
  team.Sum(equations.sums);
  double plane[4];
  if (!equations.Solve(plane)) {  // too few voxels for a plane: their mean
    const double count = equations.sums[0];
    plane[0] = count > 0 ? equations.sums[10] / count : 0;
    plane[1] = plane[2] = plane[3] = 0;
  }
  for (int64_t i = team.rank(); i < batch.elements(); i += team.size()) {
    int64_t in[3], rest = i;
    for (int d = 2; d >= 0; --d) in[d] = rest % batch.length[d], rest /= batch.length[d];
    double v = 0;
    if (in[0] < overlap.length(0) && in[1] < overlap.length(1) && in[2] < overlap.length(2)) {
      double weight = 1;
      int64_t at[3];
      for (int d = 0; d < 3; ++d) {
        weight *= HannAt(in[d], overlap.length(d));
        at[d] = overlap.begin[d] + in[d];
      }
      v = value(at);
      for (int d = 0; d < 3; ++d) v -= plane[d + 1] * overlap.Across(d, at[d]);
      v = IsFinite(v) ? (v - plane[0]) * weight : 0;
    }
    out[i] = {static_cast<float>(v), 0};
  }
}

/// The phase of a conj(b), in f32. Where there is next to nothing to have a phase, it counts less:
/// otherwise the rounding of the transforms would decide in smooth pictures.
template <class Team>
OCTAVO_HOST_DEVICE void CrossPhaseOf(const Team& team, int64_t n, const math::Complex64* a,
                                     const math::Complex64* b, math::Complex64* out) {
  double mean[1] = {0};
  for (int64_t i = team.rank(); i < n; i += team.size()) {
    const double ar = a[i].re, ai = a[i].im, br = b[i].re, bi = b[i].im;
    mean[0] += sqrt((ar * ar + ai * ai) * (br * br + bi * bi));
  }
  team.Sum(mean);
  const double floor = 1e-3 * mean[0] / static_cast<double>(n);
  for (int64_t i = team.rank(); i < n; i += team.size()) {
    const double ar = a[i].re, ai = a[i].im, br = b[i].re, bi = b[i].im;
    const double re = ar * br + ai * bi, im = ai * br - ar * bi,
                 size = sqrt(re * re + im * im) + floor;
    out[i] = size > 0
                 ? math::Complex64{static_cast<float>(re / size), static_cast<float>(im / size)}
                 : math::Complex64{0, 0};
  }
}

/// Correlation of what both tiles have if the second lies at `shift`, each without its best plane;
/// between its voxels the second is linear.
template <typename T, class Team>
OCTAVO_HOST_DEVICE math::DetrendedCorrelation Correlate(const Team& team, const TilePair& pair,
                                                        const TileReader<T>& first,
                                                        const TileReader<T>& second,
                                                        const double shift[3]) {
  math::DetrendedCorrelation found;
  Overlap overlap(pair, pair.shift);
  for (int d = 0; d < 3; ++d) {
    const double low = ceil(shift[d]),
                 high = floor(shift[d] + static_cast<double>(pair.tile[1].extent[d] - 1)) + 1;
    overlap.begin[d] = low > 0 ? static_cast<int64_t>(low) : 0;
    overlap.end[d] = static_cast<int64_t>(high) < pair.tile[0].extent[d]
                         ? static_cast<int64_t>(high)
                         : pair.tile[0].extent[d];
  }
  const int64_t voxels = overlap.voxels();
  if (voxels == 0) return found;
  const auto values = [&](int64_t i, double(&place)[3], double* a, double* b) {
    int64_t at[3];
    double from[3];
    overlap.At(i, at);
    for (int d = 0; d < 3; ++d) {
      from[d] = static_cast<double>(at[d]) - shift[d];
      place[d] = overlap.Across(d, at[d]);
    }
    *a = first(at);
    *b = second.Sample(from);
    return IsFinite(*a) && IsFinite(*b);
  };
  double pivot[2], place[3];
  if (!values(voxels / 2, place, &pivot[0], &pivot[1])) pivot[0] = pivot[1] = 0;
  int64_t turn = 0;
  for (int64_t i = team.rank(); i < voxels && !team.Stops(turn++); i += team.size()) {
    double a, b;
    if (values(i, place, &a, &b)) found.Include(place, a - pivot[0], b - pivot[1]);
  }
  team.Sum(found.sums);
  return found;
}

/// From `shift` to a neighbour with a larger correlation, as long as there is one within the
/// limits: the phases of a smooth picture find it only roughly. `best` is the correlation at
/// `shift`, before and after.
template <typename T, class Team>
OCTAVO_HOST_DEVICE void ClimbToPeak(const Team& team, const TilePair& pair,
                                    const TileReader<T>& first, const TileReader<T>& second,
                                    int64_t shift[3], double* best) {
  constexpr int kMoves = 16;
  for (int move = 0; move < kMoves; ++move) {
    int axis = -1;
    int64_t step = 0;
    for (int d = 0; d < 3; ++d) {
      for (int64_t to = -1; to <= 1 && pair.limit[d] > 0; to += 2) {
        int64_t whole[3] = {shift[0], shift[1], shift[2]};
        whole[d] += to;
        const int64_t apart = whole[d] - pair.shift[d];
        if (apart > pair.limit[d] || apart < -pair.limit[d]) continue;
        const double at[3] = {static_cast<double>(whole[0]), static_cast<double>(whole[1]),
                              static_cast<double>(whole[2])};
        const double r = Correlate(team, pair, first, second, at).Coefficient();
        if (r > *best) *best = r, axis = d, step = to;
      }
    }
    if (axis < 0) return;
    shift[axis] += step;
  }
}

/// Refines a shift in whole voxels: the first tile is gain x the second one at the shift + an
/// offset, where the gain changes linearly across the overlap. Returns whether it came to rest
/// nearby, which two pictures of different things seldom do.
template <typename T, class Team>
OCTAVO_HOST_DEVICE bool RefineShift(const Team& team, const TilePair& pair,
                                    const TileReader<T>& first, const TileReader<T>& second,
                                    const int64_t whole[3], double shift[3]) {
  constexpr int kTurns = 12;
  constexpr double kFar = 2.5;          // voxels from the peak: another peak's realm
  constexpr double kStride = 0.75;      // voxels of a turn
  constexpr int64_t kLeastRefined = 6;  // of an axis: slopes need a neighbour on either side
  Overlap inner(pair, whole);
  bool moves[3];
  for (int d = 0; d < 3; ++d) {
    shift[d] = static_cast<double>(whole[d]);
    moves[d] = pair.limit[d] > 0 && inner.length(d) >= kLeastRefined;
    if (moves[d]) inner.begin[d] += 2, inner.end[d] -= 2;
  }
  const int64_t voxels = inner.voxels();
  double most = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    math::NormalEquations<8> equations;
    int64_t looks = 0;
    for (int64_t i = team.rank(); i < voxels && !team.Stops(looks++); i += team.size()) {
      int64_t at[3];
      inner.At(i, at);
      double from[3], across[3];
      for (int d = 0; d < 3; ++d) {
        from[d] = static_cast<double>(at[d]) - shift[d];
        across[d] = inner.Across(d, at[d]);
      }
      const double a = first(at), b = second.Sample(from);
      double row[8] = {0, 0, 0, b, 0, 0, 0, 1};
      bool good = IsFinite(a) && IsFinite(b);
      for (int d = 0; d < 3; ++d) {
        if (!moves[d]) continue;
        const double here = from[d];
        from[d] = here + 1;
        const double after = second.Sample(from);
        from[d] = here - 1;
        const double before = second.Sample(from);
        from[d] = here;
        row[d] = (before - after) / 2;
        row[4 + d] = b * across[d];
        good = good && IsFinite(row[d]);
      }
      if (good) equations.Include(row, a, 1);
    }
    team.Sum(equations.sums);
    double found[8];
    if (!equations.Solve(found) || !(found[3] > 0)) return false;
    most = 0;
    for (int d = 0; d < 3; ++d) {
      double step = found[d] / found[3];
      step = step > kStride ? kStride : step < -kStride ? -kStride : step;
      shift[d] += step;
      most = fabs(step) > most ? fabs(step) : most;
      if (!(fabs(shift[d] - static_cast<double>(whole[d])) <= kFar)) return false;
    }
    if (most < 1e-3) break;
  }
  return most < 0.05;
}

/// The best of the highest peaks of a pair's phase correlation [length], refined.
template <typename T, class Team>
OCTAVO_HOST_DEVICE TileAlignment AlignPair(const Team& team, const PairBatch& batch,
                                           const void* tiles, const TilePair& pair,
                                           const math::Complex64* surface) {
  constexpr int kPeaks = 5;
  const TileReader<T> first(batch.array, tiles, pair.tile[0]),
      second(batch.array, tiles, pair.tile[1]);
  int64_t span[3], places = 1;
  for (int d = 0; d < 3; ++d) {
    span[d] = 2 * pair.limit[d] + 1;
    places *= span[d];
  }
  const auto offset = [&](int64_t i, int64_t at[3]) {
    for (int d = 2; d >= 0; --d) at[d] = i % span[d] - pair.limit[d], i /= span[d];
  };
  int64_t peaks[kPeaks][3];
  double best = -2;
  int64_t whole[3] = {pair.shift[0], pair.shift[1], pair.shift[2]};
  for (int k = 0; k < kPeaks; ++k) {
    Candidate mine;
    for (int64_t i = team.rank(); i < places; i += team.size()) {
      int64_t at[3], from = 0;
      offset(i, at);
      bool taken = false;
      for (int p = 0; p < k; ++p) {
        bool near = true;
        for (int d = 0; d < 3; ++d) {
          const int64_t apart = at[d] - peaks[p][d];
          near = near && apart >= -1 && apart <= 1;
        }
        taken = taken || near;
      }
      if (taken) continue;
      for (int d = 0; d < 3; ++d)
        from = from * batch.length[d] + (at[d] + batch.length[d]) % batch.length[d];
      const Candidate one{.value = surface[from].re, .index = i};
      if (IsBetter(one, mine)) mine = one;
    }
    const Candidate peak = team.Best(mine);
    if (peak.index < 0) break;
    offset(peak.index, peaks[k]);
    double shift[3];
    for (int d = 0; d < 3; ++d) shift[d] = static_cast<double>(pair.shift[d] + peaks[k][d]);
    const double r = Correlate(team, pair, first, second, shift).Coefficient();
    if (r > best) {
      best = r;
      for (int d = 0; d < 3; ++d) whole[d] = pair.shift[d] + peaks[k][d];
    }
  }
  if (best > -2) ClimbToPeak(team, pair, first, second, whole, &best);
  TileAlignment out;
  const bool refined = RefineShift(team, pair, first, second, whole, out.shift);
  for (int d = 0; d < 3 && !refined; ++d) out.shift[d] = static_cast<double>(whole[d]);
  const math::DetrendedCorrelation sums = Correlate(team, pair, first, second, out.shift);
  out.correlation = refined ? sums.Coefficient() : 0;
  out.voxels = sums.count();
  return out;
}

}  // namespace octavo::inline gpu
