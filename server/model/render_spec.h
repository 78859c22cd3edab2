#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/model/frame.h"

namespace octavo::model {

/// As octavo.v1.Rendering.
enum class Rendering : uint8_t { kPlane = 1, kMax = 2, kMean = 3, kMin = 4, kStd = 5 };

/// Which part of a held volume to show. As octavo.v1.RenderVolumeRequest, before it is known which
/// axes and extents the volume has.
struct RenderSpec {
  std::string volume;
  Rendering rendering = Rendering::kPlane;
  std::optional<FrameAxis> axis;
  std::optional<int64_t> plane_index;  // kPlane; -1 = middle
  int64_t begin = 0, end = 0;          // projections; end 0 = to the end of the axis
  std::vector<int64_t> start, count;   // empty = all of it
};

}  // namespace octavo::model
