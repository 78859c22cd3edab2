#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/scan.pb.h"

namespace octavo::cli {

/// The flags of submit and plan for the scan pattern.
struct PatternFlags {
  std::string kind = "raster", points, sampling, warp, flyback_policy;
  uint32_t ascans = 512, bscans = 256, volumes = 1, flyback = 0, volume_flyback = 0, repeats = 0,
           repeat_period = 0;
  bool bidirectional = false, bidirectional_volumes = false, repeat_order = false,
       repeat_average = false;
  double extent_x = 0, extent_y = 0, rotation = 0, warp_factor = 0, lens_spacing = 0,
         max_velocity = 0, max_acceleration = 0;
  std::vector<double> radius, angle, phase, offset, positions;
  std::vector<uint32_t> cycles;
};

void AddPatternFlags(CLI::App* app, PatternFlags& flags);
/// Applies the flags to `pattern`; if it is already set, only given flags change it. Throws
/// CLI::ValidationError for flags that the pattern does not have.
void BuildPattern(const PatternFlags& flags, const CLI::App* app, v1::Pattern* pattern);
/// Volumes of a counted scan; 0 = continuous.
uint32_t VolumesOf(const v1::Pattern& pattern);

}  // namespace octavo::cli
