#pragma once

// Private to this folder: the tables that the kernels of the fused launch read, and the launch of
// each length.

#include <cstdint>
#include <cuda_runtime.h>

#include "gpu/math/spectral.h"
#include "gpu/spectral/spectral.h"

namespace octavo::inline gpu::cuda {

/// The layouts of raw samples that the fused kernel supports.
enum class RawKind : uint8_t { kU8, kU16, kI16, kLowFirst12, kHighFirst12 };
enum class OutKind : uint8_t { kU8, kU16, kF32 };

/// Device tables and numbers of a chain of length F = R R S in groups of G = R S threads.
struct FusedTables {
  RawKind raw;
  OutKind out;
  bool real;   // without dispersion: two A-scans are one transform
  bool cubic;  // else linear, of which no interpolation is a case (r whole)
  bool pairs;  // samples can be loaded by two: their number is even, records start on words
  bool usual;  // cubic, dB in integers (math::kPowerFloor is stored as 0), whole lower half kept
               // and in the slab, F samples a record
  math::Value value;
  int samples;  // S, at most F
  int64_t record_bytes;
  const float4* position;  // [row][R/2][G]: of points n = lane + G m and n + F/2: r as
                           // math::PositionBits, less the background at r
  const void* h;  // [R/2][G]: of the same two points window × dispersion × 1/F, 0 past N; real: two
                  // numbers, half as large
  const float2* twiddle;  // [R/2 + S - 1][G]: of TransformFrom for bins f below G, then exp(2πi j f
                          // / G) for j = 1 ... S-1
  int first_bin, depth;
  float value_scale,
      value_offset;  // from the value's measure (log2 of power, power, magnitude) to what is stored
  int slab_begin, slab_end;
  int group_records, rows;  // of a rolling background: group g of the volume has row g % rows; else
                            // more than there are, and 1
};

/// A launch's records in units of two neighbours, which have one background: no unit lies in two
/// groups, so that pairs do not depend on where launches begin. A group of threads takes units one
/// after the other.
struct FusedUnits {
  int records;                  // of the launch
  int head;                     // those of the first group
  int head_units, group_units;  // of it, and of each other group
  int units;                    // in all
  int first_group;              // row of the first group's background
};

/// One length: how it is split, and its launch on all of `sms` multiprocessors; the caller reads
/// the last error.
struct FusedLength {
  int radix, spread;
  void (*launch)(cudaStream_t stream, int sms, const FusedTables& tables, const void* raw,
                 const FusedUnits& units, const RecordPlacement& placement,
                 const SpectralTarget& target);
  int64_t group() const { return int64_t{radix} * spread; }
  int64_t length() const { return radix * group(); }
};

// fused_LENGTH.cu, a file each, so that they compile side by side.
extern const FusedLength kFused512, kFused1024, kFused1536, kFused2048, kFused3072, kFused4096;

}  // namespace octavo::inline gpu::cuda
