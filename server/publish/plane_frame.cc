#include "server/publish/plane_frame.h"

#include <algorithm>

#include "gpu/array/project.h"
#include "server/model/resolved_scan.h"

namespace octavo::publish {

int PositionOf(const model::VolumeStatus& volume, model::FrameAxis axis) {
  return static_cast<int>(std::find(volume.axes, volume.axes + 2, Name(axis)) - volume.axes);
}

std::optional<model::Frame> PlaneFrame(const std::string& name, const model::VolumeStatus& volume,
                                       const TopicKey& key) {
  const int gone = PositionOf(volume, key.axis);
  const bool plane = key.product == model::Product::kBscan;
  model::Frame frame;
  if (plane) {
    frame.plane_index = key.plane_index < 0 ? volume.shape[gone] / 2 : key.plane_index;
    if (frame.plane_index >= volume.shape[gone]) return std::nullopt;
  }
  frame.parent = name;
  frame.volume = volume.name;
  frame.volume_index = volume.index;
  frame.product = key.product;
  frame.axis = key.axis;
  frame.acquired = volume.acquired_end;
  frame.dtype = plane ? volume.dtype : ProjectionOf(volume.dtype);
  const bool own = volume.display_lo < volume.display_hi || volume.origin == nullptr;
  frame.display_lo = own ? volume.display_lo : volume.origin->display_lo;
  frame.display_hi = own ? volume.display_hi : volume.origin->display_hi;
  frame.scale = model::ValueScaleOf(volume);
  for (int d = 0; d < 3; ++d) {
    if (d == gone) continue;
    frame.shape.push_back(volume.shape[d]);
    frame.axes.push_back(volume.axes[d]);
    frame.spacing_um.push_back(volume.spacing_um[d]);
  }
  return frame;
}

Box3 PlaneBox(const model::VolumeStatus& volume, const model::Frame& frame) {
  Box3 box{.start = {0, 0, 0}, .count = {volume.shape[0], volume.shape[1], volume.shape[2]}};
  const int gone = PositionOf(volume, frame.axis);
  box.start[gone] = frame.plane_index;
  box.count[gone] = 1;
  return box;
}

int64_t BytesOf(const model::Frame& frame) {
  int64_t bytes = SizeOf(frame.dtype);
  for (const int64_t extent : frame.shape) bytes *= extent;
  return bytes;
}

}  // namespace octavo::publish
