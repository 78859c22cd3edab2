#pragma once

// Private to this folder: Fourier reconstruction by gridding, its tables and its operators.
//
// What is computed. Filtered back projection is the sum over all projections θ
//   f(x, y) = Σ_θ w_θ/p q_θ(c + x cos θ − y sin θ),
// with q the filtered projection, c the axis, w the weight of the angle and p the pixel size. Each
// pixel reads each projection: N² · angles. With q written as the sum of its frequencies (central
// slice theorem),
//   f(x, y) = Σ_θ Σ_r S_θ(r) exp(2πi (k_x x + k_y y)),  k = r/L (cos θ, −sin θ),
// it is a Fourier sum over samples that lie on lines through the origin, |k| <= 1/2. S is the
// transform (of length L) of the measured projection, times the filter's transform, times w/(p L),
// times the phase of the axis. Nothing is transformed back between the filter and the sum, unless
// the result is cut to the detector (Cut, below). Gridding (a non-uniform transform of type 1)
// evaluates the sum in O(N² log N):
//   1. Each sample is spread with a small kernel φ to the points of a Cartesian grid of M × M.
//   2. The grid is transformed.
//   3. The result is divided by the transform of φ (deapodisation), which undoes the spreading.
// Two slices are one complex image: what they share is real, so only rounding mixes them: of a
// slice some 1e-7 of the brighter one of its pair is noise, and one with values near the end of
// float32 makes its partner not finite, too.
//
// Error. φ would have to vanish beyond its width and its transform beyond M − N/2; no function does
// both. The kernel of Kaiser and Bessel of width W on a grid of M = 2 N leaves about 10^(1 − W) of
// the image (Fessler and Sutton 2003; Barnett, Magland and af Klinteberg 2019, FINUFFT, whose
// exponential of a semicircle is this kernel but for constants). Width 5 is the default. The
// transform of the kernel is computed from the polynomial that is in use, so that the polynomial's
// own error does not count.
//
// Gather, not scatter. Nikitin 2023 (tomocupy) adds samples to the grid with atomics, whose order,
// and therefore the last bits of the result, changes from run to run. Here each tile of the grid
// collects the samples that reach it, in the order of the lines, so results repeat bit for bit.
// Lists of samples are not needed: the lines through a tile are a range of directions (one pair of
// numbers for each tile, made with the plan), and the part of a line within the tile follows from
// its slope. All slices share this geometry. CUDA keeps the samples of `lanes` pairs of slices side
// by side and computes each weight once for all of them; near the origin, where all lines meet,
// several warps share a tile.
//
// Wrap. Samples near |k| = 1/2 reach beyond the edge of the grid, which is periodic: a tile at an
// edge also collects what reaches its image one period away.
//
// Order of the passes, over `lanes` pairs at a time:
//   pack 2i and 2i + 1 → one complex row a projection, padded        [lane, line, L]
//   FFT; with a cut: filter, FFT back, cut, FFT
//   response, weight, phase → samples                                [line, L + 1, lane]
//   gather → grid, times (−1)^(x + y): the image in the middle       [lane, M, M]
//   FFT along x; the N columns of the image, transposed              [lane, N, M]
//   FFT along y; deapodisation, crop, circle → images                [slice, N, N]
// The second FFT is along contiguous memory, too, and only N of M columns need it.
//
// Padding of the rows. L is a fast length that has room for the linear convolution with the filter
// and keeps the periodic images of a filtered projection out of the picture. With extended edges
// the padding holds the end values, each up to its middle.
//
// Cut. FBP has no values beyond the ends of the detector. Here the filtered projections go on
// there, as they do in reality. Where every pixel of the result lies on the detector in all
// directions this makes no difference. Otherwise (an axis off the middle, a large image) the
// filtered projections are transformed back, cut to the detector and transformed again, to be the
// same as FBP's.
//
// Interpolation. Linear interpolation in FBP damps the frequency ρ by sinc²(ρ), and lets images of
// the spectrum pass beyond |k| = 1/2, which carry resolution and noise; sinc² alone would cost some
// resolution. Here the factor is that of Wiener for edges in noise, 1/(1 + (ρ/0.447)⁴): as much
// noise as with linear interpolation, and as much resolution. With fewer than 1.3 projections for
// each bin it is sinc(ρ)^1.68, because there streaks are the error, of the middle frequencies, and
// in between a mean of both. The error against random phantoms, with noise and without, is that of
// FBP or less, to 0.1 dB; of few projections (below 1.2 for each bin), some over 360°, to 0.3 dB
// (ExpectAsGoodAsFbp in tests/gpu/tomography/fourier_test.cc). Nearest: the square root of the
// factor; cubic: the transform of the cubic of Keys.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/stream.h"
#include "gpu/math/gridding.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "gpu/tomography/reconstruct_plan.h"

namespace octavo::inline gpu {

/// A tile of the grid, in points. Both divide kGridStep, of which the grid's size is a multiple.
struct GridTile {
  int64_t columns = 32, rows = 32;
};
inline constexpr int64_t kGridStep = 32;

/// The sizes of a Fourier reconstruction; without tables.
struct GriddingShape {
  int64_t image_size = 0;  // N
  int64_t grid_size = 0;   // M
  int64_t length = 0;      // L, even
  int64_t lines = 0, detectors = 0;
  int width = 0;     // of the kernel
  bool cut = false;  // filtered projections are cut to the detector
};
/// `config` must be valid.
GriddingShape ShapeGridding(const TomographyConfig& config, const TomographyPlan& plan);

/// Tiles that more lines than this may reach are busy: they lie near the origin, unless directions
/// crowd elsewhere.
inline constexpr int32_t kBusyLines = 64;
/// The tiles [begin, end) in both directions that hold all busy ones.
struct BusyTiles {
  int64_t column_begin = 0, column_end = 0, row_begin = 0, row_end = 0;
};

struct GriddingPlan {
  GriddingShape shape;
  math::GridKernel kernel;
  std::vector<math::GridLine> lines;  // by their direction, 0 … π
  // Factors of the samples of frequency 0 … L/2. With a cut, `filter` comes before it and
  // `response` after it; otherwise `response` is all of them and `filter` is empty.
  std::vector<float> response, filter;
  std::vector<float> deapodisation;  // [N], along one axis, with (−1)^n
  /// [rows of tiles, tiles], then those of the images of tiles at the edges (ImageOfTile).
  std::vector<math::TileLines> tiles;
  BusyTiles busy;
};
GriddingPlan PlanGridding(const TomographyConfig& config, const GriddingShape& shape,
                          const GridTile& tile);
/// The number of GriddingPlan::tiles.
int64_t CountTiles(const GriddingShape& shape, const GridTile& tile);

/// The work of one chunk of slices. Device memory, valid until the stream has passed.
struct GriddingView {
  GriddingShape shape;
  GridTile tile;
  int64_t lanes = 1;              // pairs of slices
  int64_t first = 0, slices = 0;  // slices of this chunk; those beyond `slices` are zero
  math::GridKernel kernel;
  const math::GridLine* lines = nullptr;
  const float* response = nullptr;
  const float* deapodisation = nullptr;
  const math::TileLines* tiles = nullptr;
  BusyTiles busy;
  const double* centers = nullptr;  // one, or one per slice
  bool shared_center = true, extend_edges = false;
  float radius = 0;

  OCTAVO_HOST_DEVICE int64_t tile_columns() const { return shape.grid_size / tile.columns; }
  OCTAVO_HOST_DEVICE int64_t tile_rows() const { return shape.grid_size / tile.rows; }
  /// Samples along a line, frequencies −L/2 … L/2.
  OCTAVO_HOST_DEVICE int64_t samples() const { return shape.length + 1; }
  /// Grid points between two samples of a line.
  OCTAVO_HOST_DEVICE float step() const {
    return static_cast<float>(shape.grid_size) / static_cast<float>(shape.length);
  }
  /// The pixel n of the image is the point image_begin() + n of the transformed grid.
  OCTAVO_HOST_DEVICE int64_t image_begin() const {
    return shape.grid_size / 2 - shape.image_size / 2;
  }
  /// In the padding of a row, which is cyclic, the last values end here and the first ones begin.
  OCTAVO_HOST_DEVICE int64_t padding_middle() const {
    return shape.detectors + (shape.length - shape.detectors + 1) / 2;
  }
  OCTAVO_HOST_DEVICE bool Counts(int64_t row, int64_t column) const {
    const float middle = 0.5f * static_cast<float>(shape.image_size - 1);
    return math::InCircle(static_cast<float>(column) - middle, static_cast<float>(row) - middle,
                          radius);
  }
};

// Samples of a pair of slices, z = a + i b in space, turned by the phase of the axis. `mirrored` is
// the transform at the opposite frequency, with which a and b come apart if their axes differ.
OCTAVO_HOST_DEVICE inline ComplexF Turned(ComplexF z, ComplexF phase) {
  return {z.re * phase.re - z.im * phase.im, z.re * phase.im + z.im * phase.re};
}
OCTAVO_HOST_DEVICE inline ComplexF TurnedApart(ComplexF z, ComplexF mirrored, ComplexF phase_a,
                                               ComplexF phase_b) {
  const ComplexF a = Turned({0.5f * (z.re + mirrored.re), 0.5f * (z.im - mirrored.im)}, phase_a);
  const ComplexF ib = Turned({0.5f * (z.re - mirrored.re), 0.5f * (z.im + mirrored.im)}, phase_b);
  return {a.re + ib.re, a.im + ib.im};
}

/// A place where a tile collects samples: the tile itself (image 0), or one period to the right,
/// left, below, above, of the tiles at the opposite edge.
struct TileImage {
  int64_t index = -1;                // in GriddingPlan::tiles; < 0 = there is none
  int64_t shift_x = 0, shift_y = 0;  // grid points
};
inline constexpr int kTileImages = 5;
OCTAVO_HOST_DEVICE inline TileImage ImageOfTile(int64_t columns, int64_t rows, int64_t size,
                                                int64_t column, int64_t row, int image) {
  const int64_t all = columns * rows;
  switch (image) {
    case 0: return {row * columns + column, 0, 0};
    case 1: return {column == 0 ? all + row : -1, size, 0};
    case 2: return {column == columns - 1 ? all + rows + row : -1, -size, 0};
    case 3: return {row == 0 ? all + 2 * rows + column : -1, 0, size};
    default: return {row == rows - 1 ? all + 2 * rows + columns + column : -1, 0, -size};
  }
}

/// The samples of a line that may reach a tile: indices [begin, end) of samples. `x`, `y`: the
/// tile's first point, from the origin.
struct SampleRange {
  int32_t begin = 0, end = 0;
};
OCTAVO_HOST_DEVICE inline SampleRange SamplesWithin(const GriddingView& v,
                                                    const math::GridLine& line, float x, float y,
                                                    float columns, float rows) {
  const float half = 0.5f * static_cast<float>(v.shape.width), step = v.step(),
              middle = static_cast<float>(v.shape.length / 2);
  math::LineSpan span{-middle * step, middle * step};
  math::ClipSpan(line.cosine, x - half, x + columns + half, &span);
  math::ClipSpan(line.minus_sine, y - half, y + rows + half, &span);
  if (span.lo > span.hi) return {0, 0};
  // One sample more on either side: rounding decides nothing, because the kernel is 0 out there.
  const float begin = floorf(span.lo / step) + middle, end = ceilf(span.hi / step) + middle + 1;
  return {static_cast<int32_t>(begin > 0 ? begin : 0),
          static_cast<int32_t>(end < 2 * middle + 1 ? end : 2 * middle + 1)};
}

/// Seconds on this backend's usual device, measured (tests/bench/bench_fourier.cc): for
/// ChooseAlgorithm, which compares sums of them.
struct DirectCosts {
  double back = 0;       // fbp: a pixel and an angle
  double filter = 0;     // fbp: a tap of the filter and a bin
  double sample = 0;     // fourier: a sample of a line, gathered
  double transform = 0;  // fourier: a value and a level of a transform (n log2 n)
  double start = 0;      // fourier: a slice of no size
};

/// Operator family of Fourier reconstruction. All calls only enqueue. Sums are computed in a fixed
/// order.
class GriddingOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"gridding"};

  /// The most pairs of slices that this backend processes together.
  virtual int64_t Lanes() const = 0;
  virtual GridTile Tile() const = 0;
  virtual DirectCosts Costs() const = 0;

  /// rows[lane, line, L] of two slices each.
  virtual absl::Status PackPairs(StreamRef stream, const GriddingView& view, const SinogramView& in,
                                 DeviceSpan<ComplexF> rows) = 0;
  /// Multiplies the transformed rows by `filter` [L/2 + 1].
  virtual absl::Status FilterPairs(StreamRef stream, const GriddingView& view,
                                   DeviceSpan<const float> filter, DeviceSpan<ComplexF> rows) = 0;
  /// Sets the rows to 0 beyond the detector.
  virtual absl::Status CutPairs(StreamRef stream, const GriddingView& view,
                                DeviceSpan<ComplexF> rows) = 0;
  /// samples[line, L + 1, lane] = the transformed rows with their response, weight and phase.
  virtual absl::Status MakeSamples(StreamRef stream, const GriddingView& view,
                                   DeviceSpan<const ComplexF> rows,
                                   DeviceSpan<ComplexF> samples) = 0;
  /// grid[lane, M, M] in the rows of tiles [begin, end).
  virtual absl::Status Gather(StreamRef stream, const GriddingView& view, int64_t begin,
                              int64_t end, DeviceSpan<const ComplexF> samples,
                              DeviceSpan<ComplexF> grid) = 0;
  /// columns[lane, N, M] = the image's columns of the grid.
  virtual absl::Status TakeColumns(StreamRef stream, const GriddingView& view,
                                   DeviceSpan<const ComplexF> grid,
                                   DeviceSpan<ComplexF> columns) = 0;
  /// images[slice, N, N] of the chunk's slices, from the transformed columns.
  virtual absl::Status FinishImages(StreamRef stream, const GriddingView& view,
                                    DeviceSpan<const ComplexF> columns,
                                    DeviceSpan<float> images) = 0;
};
// The factories of the twins, as those of TomographyOps.
namespace host {
absl::StatusOr<std::unique_ptr<GriddingOps>> MakeGriddingOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<GriddingOps>> MakeGriddingOps(Device& device);
}

}  // namespace octavo::inline gpu
