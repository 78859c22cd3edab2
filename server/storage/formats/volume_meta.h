#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "gpu/device/dtype.h"

namespace octavo::storage {

constexpr std::ptrdiff_t kMostWarnings = 32;  // of VolumeMeta

/// The metadata that every format must carry, so that a file explains itself years later.
struct VolumeMeta {
  std::string volume_name;  // volumes/<id>
  std::string scan_name;    // scans/<id>
  std::string title;
  int64_t index = 0;  // within the scan
  int64_t shape[3] = {0, 0, 0};
  std::string axes[3] = {"y", "x",
                         "z"};  // the axes of shape: x, y and z in any order; tomograms: z, y, x
  DType dtype = DType::kU8;     // kU8, kI8, kU16, kF16, kF32, kC64
  double spacing_um[3] = {1, 1, 1};  // per axis of shape
  bool spacing_assumed[3] =
      {};                  // per axis of shape: the spacing was not given, spacing_um counts voxels
  std::string value_kind;  // "db", "magnitude", "power", "real", "complex"
  bool has_levels = false;  // integers: [lo, hi] in value units is stored as 0 ... max
  float level_lo = 0, level_hi = 0;
  double display_lo = 0,
         display_hi =
             255;  // stored units: what to show as black and white (omero window start, end)
  std::map<std::string, std::string> labels;
  std::string subject_id, subject_site, subject_note;
  int64_t acquired_begin_unix_ns = 0, acquired_end_unix_ns = 0;
  int64_t missing_ascans = 0;
  std::vector<std::pair<int64_t, int64_t>> missing_ranges;  // first, count; A-scan = y * X + x
  int64_t missing_frames = 0, expected_frames = 0;          // number of projections; 0: not counted
  std::vector<std::string>
      warnings;  // warnings of the scan or the job so far, the first kMostWarnings
  std::string device_model;
  std::string software;        // "octavo 0.1.0"
  nlohmann::json processing;   // parameters of the chain, as submitted and resolved
  nlohmann::json acquisition;  // source, rates, pattern
  std::string digest;          // "sum64:..." of the voxels when sealed; empty if unknown
};

/// Shows all values by default: an integer's range, 0 to 1 of other numbers.
inline void ShowWholeRange(VolumeMeta* meta) {
  meta->display_lo = meta->dtype == DType::kI8 ? -128 : meta->dtype == DType::kI16 ? -32768 : 0;
  meta->display_hi = meta->dtype == DType::kU8    ? 255
                     : meta->dtype == DType::kI8  ? 127
                     : meta->dtype == DType::kU16 ? 65535
                     : meta->dtype == DType::kI16 ? 32767
                                                  : 1;
}

/// Whether the axes are x, y and z, each once.
inline bool AxesAreFine(const VolumeMeta& meta) {
  std::string names = meta.axes[0] + meta.axes[1] + meta.axes[2];
  std::sort(names.begin(), names.end());
  return names == "xyz" && std::all_of(meta.axes, meta.axes + 3,
                                       [](const std::string& axis) { return axis.size() == 1; });
}

/// Whether the spacing of every axis was given.
inline bool SpacingIsKnown(const VolumeMeta& meta) {
  return std::none_of(meta.spacing_assumed, meta.spacing_assumed + 3,
                      [](bool assumed) { return assumed; });
}

/// Index in shape of the axis `name` ('x', 'y', 'z').
inline int AxisAt(const VolumeMeta& meta, char name) {
  for (int d = 0; d < 3; ++d) {
    if (meta.axes[d] == std::string_view(&name, 1)) return d;
  }
  return 0;  // unreachable if AxesAreFine
}

}  // namespace octavo::storage
