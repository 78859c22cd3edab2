#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octavo::model {

/// A read of a volume: a box of it, all its voxels or a coarser picture.
struct VolumeRead {
  std::string volume;
  std::vector<int64_t> start, count;  // along the volume's axes; empty: all of it
  int64_t downsample = 1;             // voxels of a cube along each axis: a power of two, 1 to 64
  bool mean = false;                  // of the voxels of a cube; else the largest
  std::optional<std::pair<double, double>> window;  // stored values that become 0 and 255 of u8

  bool coarse() const { return downsample > 1 || window.has_value(); }
};

}  // namespace octavo::model
