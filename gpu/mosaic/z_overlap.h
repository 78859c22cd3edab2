#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/sliced_program.h"
#include "gpu/mosaic/mosaic_ops.h"

namespace octavo::inline gpu {

/// As octavo.v1.FindZOverlapRequest.
struct ZOverlapSpec {
  double slicing_interval_um = 0, search_range_um = 0, spacing_z_um = 0;
  int64_t moving_first_plane = 0, offset_y = 0, offset_x = 0;
  int64_t fixed_first_plane = 0;  // the first planes of the fixed slab that have no part in it
  double min_correlation = 0.5;
};
/// As octavo.v1.FindZOverlapResponse.
struct ZOverlapResult {
  int64_t overlap = 0, expected = 0, best = 0, first = 0;
  double correlation = 0;
  bool fallback = false;
  std::vector<double> correlations;
};

/// The overlap expected from the slicing interval, of slabs with `planes` planes.
int64_t ExpectedOverlap(int64_t planes, double slicing_interval_um, double spacing_z_um);

/// The overlaps that are tried, and the program that sums up what their correlations are made of.
class ZOverlap {
 public:
  /// InvalidArgument names the fields of FindZOverlapRequest.
  static absl::StatusOr<ZOverlap> Plan(const ZOverlapSpec& spec, const ArrayType& fixed,
                                       const ArrayType& moving);
  /// Its inputs are the fixed and the moving slab, its result an array f64. Null if there is
  /// nothing to try.
  std::unique_ptr<const SlicedProgram> Program() const;
  ZOverlapResult Finish(const std::vector<double>& sums) const;

 private:
  SlabPair slabs_;
  int64_t expected_ = 0;
  double min_correlation_ = 0;
};

}  // namespace octavo::inline gpu
