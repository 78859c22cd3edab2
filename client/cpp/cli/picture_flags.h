#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/stream.pb.h"

namespace octavo::cli {

/// The flags that say how the server makes pictures, of all commands that write some.
struct PictureFlags {
  std::string colour_map;
  std::vector<float> percentiles, levels;
  bool display = false, square_pixels = false, scale_bar = false, colour_bar = false;
  uint32_t max_width = 0, max_height = 0, quality = 0;

  /// --percentiles, --levels, --display.
  void AddContrastTo(CLI::App* command);
  /// All others.
  void AddLookTo(CLI::App* command);
  /// Throws CLI::ValidationError for percentiles that the server would refuse.
  void Check() const;
  /// In the usual orientation: depth downwards.
  void Fill(v1::ImageOptions* image) const;
};

}  // namespace octavo::cli
