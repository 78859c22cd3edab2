#pragma once

#include <cstdint>
#include <vector>

#include "gpu/device/dtype.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/fft_plan.h"
#include "gpu/math/raw.h"
#include "gpu/math/spectral.h"

// The SIMD part of the host chain: it processes a tile of as many records as a vector has lanes in
// all steps together, one A-scan per lane. So every step works on contiguous vectors, and all
// intermediate results stay in the cache.
namespace octavo::inline gpu::host {

/// All parameters of a tile, resolved to numbers.
struct TileTables {
  int64_t samples = 0;  // S
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  int64_t channels = 1, channel = 0;
  int64_t average = 1;  // raw records of a record
  math::Interpolation interpolation = math::Interpolation::kNone;
  int64_t n = 0;               // N, after k-linearisation
  std::vector<int32_t> tap;    // [N]: sample left of the position
  std::vector<float> weights;  // [N][taps]
  // The real transform of even length F is a complex one of F/2: even samples are the real, odd
  // samples the imaginary parts.
  bool half = false;
  std::vector<float> h_re,
      h_im;     // [N]: window × dispersion × 1/F (× chirp, unless half); h_im empty = real
  FftPlan fft;  // of F, or F/2 if half
  int64_t first_row =
      0;  // row of the transform's output that holds depth sample 0; rows wrap if half
  std::vector<float> turn_re, turn_im;  // [D] half: exp(2πi bin/F)
  bool chirp_out = false;               // convolution: its outputs need their chirp
  int64_t depth = 0;
  math::Value value = math::Value::kDb;
  DType output = DType::kU8;
  bool repeats = false;                              // sum powers of repeats
  bool scaled = false;                               // apply scale and offset (levels)
  float scale = 1, offset = 0, bottom = 0, top = 0;  // the type's range; both 0 = not an integer
  int64_t slab_begin = 0, slab_end = 0;
};

/// Destination of a lane's A-scan. Null volume = dropped.
struct LaneTarget {
  void* volume = nullptr;  // [D]
  void* mip = nullptr;     // one element
  float* aip = nullptr;
  float* sum = nullptr;         // [D] powers of the repeats before; null = no repeats
  int32_t before = 0;           // the number of these repeats
  uint64_t* clipped = nullptr;  // [2], shared by all lanes of all tiles
  uint32_t* clipped_before =
      nullptr;  // [2], with sum: what the mean of the repeats before added to it
};

/// The background of a tile's records: none, [S] for all records, or [S][TileLanes()] with one per
/// record.
struct TileBackground {
  const float* all = nullptr;
  const float* lanes = nullptr;
};

/// Floats of scratch memory a tile needs, 64-byte aligned.
int64_t TileScratchFloats(const TileTables& tables);

/// Runs `records` (1 ... TileLanes()) records at `raw` [records, average, S, channels] through the
/// chain.
void ProcessTile(const TileTables& tables, const void* raw, int64_t records,
                 const TileBackground& background, const LaneTarget* targets, float* scratch);

/// Does the same in two parts. TransformTile computes the complex depth samples, re and im
/// [D][lanes] at `spectra`. FinishTile subtracts the complex fixed pattern [D] and does the rest.
void TransformTile(const TileTables& tables, const void* raw, int64_t records,
                   const TileBackground& background, float* spectra, float* scratch);
void FinishTile(const TileTables& tables, const float* spectra, const float* pattern_re,
                const float* pattern_im, int64_t records, const LaneTarget* targets);

/// Sums the A-scans [begin, end) of a B-scan for the depths [first, last). If mean_re and mean_im
/// [D] are given, `re` gets the sum of |z - mean|² instead. `spectra`: one block of TransformTile
/// after the other, TileLanes() A-scans each.
void SumAscans(const TileTables& tables, const float* spectra, int64_t begin, int64_t end,
               int64_t first, int64_t last, const float* mean_re, const float* mean_im, float* re,
               float* im);

}  // namespace octavo::inline gpu::host
