#pragma once

// Private to this folder: Fourier reconstruction by gridding, its tables and its operators.
//
// What is computed. Filtered back projection is the sum over all projections θ
//   f(x, y) = Σ_θ w_θ/p q_θ(c + x cos θ − y sin θ),
// with q the filtered projection, c the axis, w the weight of the angle and p the pixel size. Each
// pixel reads each projection: N² · angles. With q written as the sum of its frequencies (central
// slice theorem),
//   f(x, y) = Σ_θ Σ_r S_θ(r) exp(2πi (k_x x + k_y y)),  k = r/L (cos θ, −sin θ),
// it is a Fourier sum over samples that lie on lines through the origin. S is the transform (of
// length L) of the measured projection, times the filter's transform, times the interpolation's,
// times w/(p L), times the phase of the axis. Nothing is transformed back between the filter and
// the sum, unless the result is cut to the detector (Cut, below). Gridding (a non-uniform transform
// of type 1) evaluates the sum in O(N² log N):
//   1. Each sample is spread with a small kernel φ to the points of a Cartesian grid of M × M,
//      which covers |k_x|, |k_y| <= 1/2 with points 1/M apart.
//   2. The grid is transformed.
//   3. The result is divided by the transform of φ (deapodisation), which undoes the spreading.
// Two slices are one complex image: what they share is real, so only rounding mixes them: of a
// slice some 1e-7 of the brighter one of its pair is noise, and one with values near the end of
// float32 makes its partner not finite, too.
//
// Error. φ would have to vanish beyond its width and its transform beyond M − N/2; no function does
// both. The kernel of Kaiser and Bessel of width W on a grid of M = σ N leaves about
// exp(−π W √(1 − 1/σ)) of the image (Fessler and Sutton 2003; Barnett, Magland and af Klinteberg
// 2019, FINUFFT, whose exponential of a semicircle is this kernel but for constants). Width 5 at
// σ = 5/3 … 2 is enough for the default accuracy. A backend takes σ (GridChoice): less of it makes
// the transforms smaller and, for some accuracies, the kernel wider. The transform of the kernel is
// computed from the polynomial that is in use, so that the polynomial's own error does not count.
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
// Wrap. Pixels lie at whole positions, so the grid is periodic: a sample beyond |k_x| = 1/2 counts
// one period farther back. A tile near an edge also collects what reaches its image one period
// away. No sample lies beyond both edges, |k_x| and |k_y| > 1/2.
//
// Order of the passes, over `lanes` pairs at a time:
//   pack 2i and 2i + 1 → one complex row a projection, padded        L values
//   FFT; with a cut: filter, FFT back, cut, FFT
//   response, weight, phase → samples                                those of −reach … reach
//   gather → grid, times (−1)^(x + y): the image in the middle       M × M
//   FFT along one axis; of the result only the image's part          N × M
//   FFT along the other; deapodisation, crop, circle → images        N × N
// CUDA transforms rows, whose columns it then transposes; both FFTs are along contiguous memory.
// The host transforms a vector of columns at a time (host/gridding_kernels.h).
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
// the spectrum pass beyond ρ = 1/2, which carry resolution and noise and soften streaks. Here the
// samples go on, too: the spectrum, which is periodic, up to ρ = 0.58. A sum up to 0.65 would do
// without more; the factor sinc²(ρ) (1 + 0.17 ρ²) makes up for what is left out. Against random
// phantoms, of many projections and of few, with noise and without, the error is that of FBP or
// less, to 0.1 dB (ExpectAsGoodAsFbp in tests/gpu/tomography/fourier_test.cc). Nearest: the square
// root of the factor; cubic: the transform of the cubic of Keys.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/stream.h"
#include "gpu/math/gridding.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "gpu/tomography/reconstruct_plan.h"

namespace octavo::inline gpu {

/// What a backend chooses of the grid: tiles in points, which divide kGridStep, and the
/// oversampling σ = M / N, 1.5 … 2, where the accuracy allows it.
struct GridChoice {
  int64_t tile_columns = 32, tile_rows = 32;
  double oversampling = 2;
};
/// The grid's size is a multiple of this.
inline constexpr int64_t kGridStep = 32;

/// The sizes of a Fourier reconstruction; without tables.
struct GriddingShape {
  int64_t image_size = 0;  // N
  int64_t grid_size = 0;   // M
  int64_t length = 0;      // L, even
  int64_t reach = 0;       // samples of a line on either side of the origin
  int64_t lines = 0, detectors = 0;
  int width = 0;     // of the kernel
  bool cut = false;  // filtered projections are cut to the detector

  /// Samples along a line, of the frequencies −reach … reach.
  OCTAVO_HOST_DEVICE int64_t samples() const { return 2 * reach + 1; }
  /// Grid points between two samples of a line.
  OCTAVO_HOST_DEVICE float step() const {
    return static_cast<float>(grid_size) / static_cast<float>(length);
  }
  /// Where the frequency r, −reach … reach, lies among the L values of a transformed row.
  OCTAVO_HOST_DEVICE int64_t Wrapped(int64_t r) const {
    return r < 0 ? r + length : r < length ? r : r - length;
  }
};
/// `config` must be valid.
GriddingShape ShapeGridding(const TomographyConfig& config, const TomographyGrid& grid,
                            const GridChoice& choice);

/// A place where a tile collects samples: the tile itself (image 0), or one period to the right,
/// left, below, above, of the tiles near the opposite edge.
struct TileImage {
  int64_t index = -1;                // in GriddingPlan::tiles; < 0 = there is none
  int64_t shift_x = 0, shift_y = 0;  // grid points
};
inline constexpr int kTileImages = 5;

/// The tiles of a grid. Those of the outer edge_columns and edge_rows have images.
struct GridTiles {
  int64_t width = 0, height = 0;  // of a tile, in points
  int64_t columns = 0, rows = 0;
  int64_t edge_columns = 0, edge_rows = 0;
  bool operator==(const GridTiles&) const = default;

  OCTAVO_HOST_DEVICE int64_t count() const {
    return columns * rows + 2 * (edge_columns * rows + edge_rows * columns);
  }
  OCTAVO_HOST_DEVICE TileImage ImageOf(int64_t column, int64_t row, int image) const {
    const int64_t size = columns * width, beside = edge_columns * rows, below = edge_rows * columns;
    int64_t all = columns * rows, from_edge = image == 1 ? column : columns - 1 - column;
    if (image == 0) return {row * columns + column, 0, 0};
    if (image < 3) {
      if (from_edge >= edge_columns) return {};
      return {all + (image - 1) * beside + from_edge * rows + row, image == 1 ? size : -size, 0};
    }
    all += 2 * beside;
    from_edge = image == 3 ? row : rows - 1 - row;
    if (from_edge >= edge_rows) return {};
    return {all + (image - 3) * below + from_edge * columns + column, 0, image == 3 ? size : -size};
  }
};
GridTiles TilesOf(const GriddingShape& shape, const GridChoice& choice);

/// Tiles that more lines than this may reach are busy: they lie near the origin, unless directions
/// crowd elsewhere.
inline constexpr int32_t kBusyLines = 64;
/// The tiles [begin, end) in both directions that hold all busy ones.
struct BusyTiles {
  int64_t column_begin = 0, column_end = 0, row_begin = 0, row_end = 0;
};

/// What the lines of the tiles depend on: not on the axes.
struct GridGeometry {
  std::vector<double> directions;  // of the lines, 0 … π, sorted
  int64_t grid_size = 0;
  int width = 0;     // of the kernel
  double reach = 0;  // of the samples, in grid points
  GridTiles tiles;
  bool operator==(const GridGeometry&) const = default;
};

/// The lines of each tile [rows of tiles, tiles], then those of the tiles' images
/// (GridTiles::ImageOf).
struct GridLines {
  std::vector<math::TileLines> lines;
  BusyTiles busy;
};
/// On all cores.
GridLines FindLines(const GridGeometry& geometry);

struct GriddingPlan {
  GriddingShape shape;
  math::GridKernel kernel;
  std::vector<math::GridLine> lines;  // by their direction, 0 … π
  // Factors of the samples of frequency 0 … reach. With a cut, `filter` [L/2 + 1] comes before it
  // and `response` after it; otherwise `response` is all of them and `filter` is empty.
  std::vector<float> response, filter;
  std::vector<float> deapodisation;  // [N], along one axis, with (−1)^n
  GridGeometry geometry;
};
GriddingPlan PlanGridding(const TomographyConfig& config, const GriddingShape& shape,
                          const GridChoice& choice);

/// The work of one chunk of slices. Device memory, valid until the stream has passed.
struct GriddingView {
  GriddingShape shape;
  GridTiles tiles;
  int64_t lanes = 1;              // pairs of slices
  int64_t first = 0, slices = 0;  // slices of this chunk; those beyond `slices` are zero
  math::GridKernel kernel;
  const math::GridLine* lines = nullptr;
  const float *response = nullptr, *filter = nullptr;
  const float* deapodisation = nullptr;
  const math::TileLines* lines_of = nullptr;  // each tile
  BusyTiles busy;
  const double* centers = nullptr;  // one, or one per slice
  bool shared_center = true, extend_edges = false;
  float radius = 0;

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

/// Seconds on this backend's usual device, measured (tests/bench/bench_fourier.cc): for
/// ChooseAlgorithm, which compares sums of them.
struct DirectCosts {
  double back = 0;          // fbp: a pixel and an angle
  double filter = 0;        // fbp: a tap of the filter and a bin, where it is convolved
  double filter_level = 0;  // fbp: a bin and a level of its transform, where it is transformed
  double sample = 0;        // fourier: a sample of a line, gathered
  double transform = 0;     // fourier: a value and a level of a transform (n log2 n)
  double start = 0;         // fourier: a slice of no size
};

/// Transforms of complex rows, which the caller has prepared, and their workspace.
struct GridTransforms {
  ArrayOps& arrays;
  void* workspace = nullptr;
};

/// Complex values for each lane, but for the grid.
struct GriddingMemory {
  int64_t samples = 0;
  int64_t work = 0;  // of the rows' transforms, later of the grid's
};

/// Operator family of Fourier reconstruction. All calls only enqueue. Sums are computed in a fixed
/// order.
class GriddingOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"gridding"};

  /// The most pairs of slices that this backend processes together.
  virtual int64_t Lanes() const = 0;
  virtual GridChoice Choice() const = 0;
  virtual DirectCosts Costs() const = 0;
  virtual GriddingMemory Memory(const GriddingShape& shape) const = 0;
  /// Prepares the transforms of up to `lanes` lanes and returns the bytes of their workspace.
  virtual absl::StatusOr<int64_t> PrepareTransforms(const GriddingShape& shape, int64_t lanes,
                                                    ArrayOps& arrays) = 0;

  /// The samples of all lines, in an order of the backend's own: the transformed rows with their
  /// response, weight and phase.
  virtual absl::Status MakeSamples(StreamRef stream, const GriddingView& view,
                                   const SinogramView& in, const GridTransforms& transforms,
                                   DeviceSpan<ComplexF> work, DeviceSpan<ComplexF> samples) = 0;
  /// grid[lane, M, M], in an order of the backend's own, in the rows of tiles [begin, end).
  virtual absl::Status Gather(StreamRef stream, const GriddingView& view, int64_t begin,
                              int64_t end, DeviceSpan<const ComplexF> samples,
                              DeviceSpan<ComplexF> grid) = 0;
  /// Transforms the grid along one axis and takes the image's part of it to `work`, in an order of
  /// the backend's own.
  virtual absl::Status TransformGrid(StreamRef stream, const GriddingView& view,
                                     const GridTransforms& transforms, DeviceSpan<ComplexF> grid,
                                     DeviceSpan<ComplexF> work) = 0;
  /// images[slice, N, N] of the chunk's slices: the transform of `work` along the other axis,
  /// deapodisation, circle.
  virtual absl::Status MakeImages(StreamRef stream, const GriddingView& view,
                                  const GridTransforms& transforms, DeviceSpan<ComplexF> work,
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
