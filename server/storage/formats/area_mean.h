#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"

#include "gpu/device/dtype.h"

namespace octavo::storage {

/// Makes a coarser array of a volume whose slabs come one after the other: each voxel is the mean
/// of the volume over its box. A voxel of the volume that lies partly in the box counts by that
/// part, so that any factor from 1 is allowed, and nothing is aliased that a box filter removes.
/// Integers are rounded to the nearest, ties to even; floats take the mean of those that are not
/// NaN, NaN if none is. Keeps a few planes of the coarser array, whatever the volume's size.
class AreaMean {
 public:
  /// `shape`: the volume's; `factor` >= 1: voxels of the volume in one of the coarser array. Not
  /// for kC64.
  AreaMean(DType dtype, const int64_t shape[3], const double factor[3]);

  /// Extents that whole boxes fill, at least 1. What is left at the end of an axis is left out.
  static int64_t Extent(int64_t extent, double factor);

  /// Takes the next `count` planes of the volume, and hands over each plane of the coarser array
  /// that they complete, in order. Runs in the caller's oneTBB arena.
  absl::Status Add(const void* planes, int64_t count,
                   const std::function<absl::Status(const char* plane)>& plane_done);

 private:
  /// For each index of the coarser array, the first index of the volume and the parts that count.
  struct Axis {
    struct Cell {
      int64_t first = 0;
      size_t weights = 0;  // where they begin
      int64_t count = 0;
    };
    std::vector<Cell> cells;
    std::vector<double> weights;
    Axis(int64_t extent, double factor);
  };

  void Reduce(const char* plane);
  void Accumulate(double weight);
  absl::Status Complete(const std::function<absl::Status(const char* plane)>& plane_done);

  const DType dtype_;
  const bool may_be_nan_;
  const int64_t rows_, columns_;  // of a plane of the volume
  const Axis along_[3];
  // Sums of weighted values, and of the weights (where NaN is left out, each voxel has its own): of
  // one plane of the volume within the coarser grid, and of the plane that is being made.
  std::vector<double> plane_sum_, plane_weight_, sum_, weight_;
  std::vector<char> done_;
  int64_t next_ = 0;  // plane of the volume
  size_t cell_ = 0;   // plane of the coarser array
};

}  // namespace octavo::storage
