#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "gpu/dtype.h"

namespace octavo::storage {

/// What every format must carry, so that a file explains itself years later.
struct VolumeMeta {
  std::string volume_name;  // volumes/<id>
  std::string scan_name;    // scans/<id>
  std::string title;
  int64_t index = 0;                 // within the scan
  int64_t shape[3] = {0, 0, 0};      // [y, x, z]
  DType dtype = DType::kU8;          // kU8, kI8, kU16, kF16, kF32, kC64
  double spacing_um[3] = {1, 1, 1};  // per axis of shape
  std::string value_kind;            // "db", "magnitude", "power", "real", "complex"
  bool has_levels = false;           // integers: [lo, hi] in value units is stored as 0 ... max
  float level_lo = 0, level_hi = 0;
  double display_lo = 0, display_hi = 255;  // stored units: what to show as black and white (omero window start, end)
  std::map<std::string, std::string> labels;
  std::string subject_id, subject_site, subject_note;
  int64_t acquired_begin_unix_ns = 0, acquired_end_unix_ns = 0;
  int64_t missing_ascans = 0;
  std::vector<std::pair<int64_t, int64_t>> missing_ranges;  // first, count; A-scan = y * X + x
  std::string device_model;
  std::string software;        // "octavo 0.1.0"
  nlohmann::json processing;   // parameters of the chain, as submitted and resolved
  nlohmann::json acquisition;  // source, rates, pattern
  std::string digest;          // "sum64:..." of the voxels when sealed; empty if unknown
};

}  // namespace octavo::storage
