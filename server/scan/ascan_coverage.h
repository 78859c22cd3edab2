#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/math/placement.h"

namespace octavo::scan {

/// Tracks which A-scans of a volume have been placed. Records must arrive in order.
class AscanCoverage {
 public:
  explicit AscanCoverage(const math::RasterPlacement& raster)
      : raster_(raster),
        active_records_((raster.bscans_per_volume - 1) *
                            (raster.ascans_per_bscan + raster.flyback_records) +
                        raster.ascans_per_bscan) {}
  /// `placement` [record]: A-scan index or -1, each index `passes` times; must outlive this object.
  /// `active_records`: one past the last record that carries an A-scan. An A-scan counts as missing
  /// if none of its records arrived.
  AscanCoverage(const std::vector<int32_t>& placement, int64_t active_records, int64_t passes = 1)
      : placement_(&placement), active_records_(active_records), passes_(passes) {}

  /// Records [first, first + count) of the volume were placed. first must not go back.
  void Placed(int64_t first, int64_t count);
  /// No more records will arrive: every A-scan not placed yet is missing.
  void Finish();

  /// One past the last record that carries an A-scan: the volume is complete once all records
  /// before it are placed.
  int64_t active_records() const { return active_records_; }
  bool all_seen() const { return next_ >= active_records(); }
  int64_t next_record() const { return next_; }
  int64_t missing_ascans() const { return missing_ascans_; }
  /// Missing A-scans as sorted, disjoint ranges (first, count) of y * ascans_per_bscan + x.
  const std::vector<std::pair<int64_t, int64_t>>& missing() const { return missing_; }
  double fraction() const {
    return static_cast<double>(std::min(next_, active_records())) /
           static_cast<double>(active_records());
  }

 private:
  void Miss(int64_t first, int64_t last);
  void MissPlaced(int64_t first, int64_t last);
  void Add(int64_t first, int64_t count);

  math::RasterPlacement raster_{};
  const std::vector<int32_t>* placement_ = nullptr;
  int64_t active_records_ = 0, passes_ = 1;
  std::vector<int32_t> lost_;  // lost records of each A-scan; with more than one pass
  int64_t next_ = 0;
  int64_t missing_ascans_ = 0;
  std::vector<std::pair<int64_t, int64_t>> missing_;
};

}  // namespace octavo::scan
