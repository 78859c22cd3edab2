#pragma once

#include <cstdint>
#include <vector>

#include "gpu/dtype.h"
#include "gpu/math/spectral.h"

// The SIMD part of the host chain: a tile of as many records as a vector has lanes goes through all steps at once, one
// A-scan per lane, so that every step is contiguous vector work and nothing leaves the cache in between.
namespace octavo::host {

/// Mixed-radix Stockham transform of length n = 2^a 3^b 5^c: radices of the passes and their twiddles.
struct FftPlan {
  struct Pass {
    int radix;
    int64_t length;         // n of this pass
    int64_t stride;         // interleaved sub-transforms
    int64_t first_twiddle;  // into twiddles: (radix - 1) complex numbers for each p
  };
  int64_t n = 0;
  std::vector<Pass> passes;
  std::vector<float> twiddles;  // re, im pairs of exp(+2πi p k / length), computed in double precision
};
FftPlan MakeFftPlan(int64_t n);

/// Everything a tile needs, resolved to numbers.
struct TileTables {
  int64_t samples = 0;             // S
  DType raw_type = DType::kU16;
  const float* background = nullptr;  // [S]; null = none
  math::Interpolation interpolation = math::Interpolation::kNone;
  int64_t n = 0;                   // N, after k-linearisation
  std::vector<int32_t> tap;        // [N]: sample left of the position
  std::vector<float> weights;      // [N][taps]
  std::vector<float> h_re, h_im;   // [N]: window × dispersion × 1/F; h_im empty = real
  FftPlan fft;
  int64_t first_bin = 0, depth = 0;
  math::Value value = math::Value::kDb;
  DType output = DType::kU8;
  bool scaled = false;             // apply scale and offset (levels)
  float scale = 1, offset = 0, top = 0;  // top: 255, 65535; 0 = float output
  int64_t slab_begin = 0, slab_end = 0;
};

/// Where a lane's A-scan goes. Null volume = dropped.
struct LaneTarget {
  void* volume = nullptr;  // [D]
  void* mip = nullptr;     // one element
  float* aip = nullptr;
};

/// Lanes of a tile (records processed together) with the SIMD target of this machine, and its name.
int64_t TileLanes();
const char* SimdTargetName();

/// Floats of scratch memory a tile needs, 64-byte aligned.
int64_t TileScratchFloats(const TileTables& tables);

/// Runs `records` (1 ... TileLanes()) records at `raw` [records, S] through the chain.
void ProcessTile(const TileTables& tables, const void* raw, int64_t records, const LaneTarget* targets, float* scratch);

/// The transform alone, for tests: re, im [n][TileLanes()], in place; scratch of 2 n TileLanes() floats.
void InverseFft(const FftPlan& plan, float* re, float* im, float* scratch);

}  // namespace octavo::host
