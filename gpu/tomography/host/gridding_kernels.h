#pragma once

#include <cstdint>

#include "gpu/device/host/fft_plan.h"
#include "gpu/tomography/gridding.h"

// The loops of Fourier reconstruction on the host, compiled once per SIMD target.
//
// The values of a pair of slices between two steps are kept as the transforms want them: strips of
// TileLanes() neighbours, as float re[n][lanes], im[n][lanes]. The grid has strips of columns, each
// of M rows; once that is transformed, the rows of the image are strips of M columns each. So the
// transforms need no further copies, and each strip with its scratch stays in the L2 cache.
namespace octavo::inline gpu::host {

/// Tiles of the host's grid. With what reaches over its edges a tile stays in the L1 cache.
inline constexpr int64_t kGridTile = 32;
static_assert(kGridStep % kGridTile == 0);

/// The samples are in blocks of as many neighbours of a line; the blocks of neighbouring lines lie
/// side by side, because they reach the same tiles.
inline constexpr int64_t kSampleBlock = 32;
/// Complex values of all blocks.
int64_t SampleValues(const GriddingShape& shape);

/// Strips of TileLanes() lines, columns or rows.
int64_t StripsOf(int64_t count);

/// Complex values of scratch for the functions below.
int64_t SampleScratch(const GriddingShape& shape);
int64_t GridScratch(const GriddingShape& shape);

/// The samples of the strip's lines, of the one pair of slices of `view`. `plan` is of length L.
void MakeStripSamples(const GriddingView& view, const SinogramView& in, const FftPlan& plan,
                      int64_t strip, ComplexF* samples, float* scratch);
/// The points of one tile from the samples.
void GatherTile(const GriddingView& view, int64_t tile_column, int64_t tile_row,
                const ComplexF* samples, float* grid);
/// Transforms a strip of the grid's columns to its part of all strips of the image's rows. `plan`
/// is of length M.
void TransformColumns(const GriddingView& view, const FftPlan& plan, int64_t strip, float* grid,
                      float* rows, float* scratch);
/// Transforms a strip of the image's rows to the images.
void MakeImageRows(const GriddingView& view, const FftPlan& plan, int64_t strip, float* rows,
                   float* images, float* scratch);

}  // namespace octavo::inline gpu::host
