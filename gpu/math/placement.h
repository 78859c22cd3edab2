#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

namespace octavo::inline gpu::math {

/// The placement of the records of a raster volume. It has lines of `ascans_per_bscan` records,
/// each followed by `flyback_records` that are dropped. Odd lines are mirrored if `bidirectional`.
struct RasterPlacement {
  int64_t ascans_per_bscan;
  int64_t bscans_per_volume;
  int64_t flyback_records;
  bool bidirectional;
};

/// A-scan index y * ascans_per_bscan + x of record `record` (0 = first of the volume), or -1 if it
/// is dropped.
OCTAVO_HOST_DEVICE inline int64_t RasterAscan(const RasterPlacement& raster, int64_t record) {
  const int64_t line_records = raster.ascans_per_bscan + raster.flyback_records;
  const int64_t y = record / line_records;
  const int64_t x = record - y * line_records;
  if (record < 0 || y >= raster.bscans_per_volume || x >= raster.ascans_per_bscan) return -1;
  return y * raster.ascans_per_bscan +
         ((raster.bidirectional && (y & 1)) ? raster.ascans_per_bscan - 1 - x : x);
}

}  // namespace octavo::inline gpu::math
