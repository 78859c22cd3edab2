#include "server/publish/plane_frame.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "gpu/array/project.h"
#include "server/model/resolved_scan.h"

namespace octavo::publish {

int PositionOf(const model::VolumeStatus& volume, model::FrameAxis axis) {
  return static_cast<int>(std::find(volume.axes, volume.axes + 2, Name(axis)) - volume.axes);
}

namespace {

// The A-scan in one column of the middle B-scan.
bool PlaceAscan(const model::VolumeStatus& volume, int64_t column, model::Frame* frame) {
  if (column < 0) column = volume.shape[1] / 2;
  if (volume.axes[2] != Name(model::FrameAxis::kZ) || column >= volume.shape[1]) return false;
  frame->shape = {volume.shape[2]};
  frame->axes = {volume.axes[2]};
  frame->spacing_um = {volume.spacing_um[2]};
  frame->dtype = volume.dtype;
  auto record = std::make_shared<model::RecordInfo>();
  record->row = volume.shape[0] / 2;
  record->column = column;
  frame->record = std::move(record);
  return true;
}

}  // namespace

bool IsCut(model::Product product) {
  return product == model::Product::kBscan || product == model::Product::kAscan;
}

std::optional<model::Frame> PlaneFrame(const std::string& name, const model::VolumeStatus& volume,
                                       const TopicKey& key) {
  const int gone = PositionOf(volume, key.axis);
  const bool plane = key.product == model::Product::kBscan;
  const bool ascan = key.product == model::Product::kAscan;
  model::Frame frame;
  if (ascan && !PlaceAscan(volume, key.plane_index, &frame)) return std::nullopt;
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
  if (!ascan) frame.dtype = plane ? volume.dtype : ProjectionOf(volume.dtype);
  const bool own = volume.display_lo < volume.display_hi || volume.origin == nullptr;
  frame.display_lo = own ? volume.display_lo : volume.origin->display_lo;
  frame.display_hi = own ? volume.display_hi : volume.origin->display_hi;
  frame.scale = model::ValueScaleOf(volume);
  for (int d = 0; d < 3 && !ascan; ++d) {
    if (d == gone) continue;
    frame.shape.push_back(volume.shape[d]);
    frame.axes.push_back(volume.axes[d]);
    frame.spacing_um.push_back(volume.spacing_um[d]);
    frame.row_spacing_assumed = std::exchange(frame.column_spacing_assumed, !volume.IsLength(d));
  }
  return frame;
}

Box3 PlaneBox(const model::VolumeStatus& volume, const model::Frame& frame) {
  Box3 box{.start = {0, 0, 0}, .count = {volume.shape[0], volume.shape[1], volume.shape[2]}};
  if (frame.product == model::Product::kAscan) {
    box.start[0] = frame.record->row;
    box.start[1] = frame.record->column;
    box.count[0] = box.count[1] = 1;
    return box;
  }
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
