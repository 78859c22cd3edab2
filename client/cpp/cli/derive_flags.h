#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/volume.pb.h"

namespace octavo::cli {

/// Operations on a held volume; they run in the order of the flags here.
struct DeriveFlags {
  std::string angiography, doppler;
  uint32_t half_window = 0;
  std::vector<uint32_t> cartesian;

  void AddTo(CLI::App* app);
  std::vector<v1::VolumeOperation> Operations() const;
};

}  // namespace octavo::cli
