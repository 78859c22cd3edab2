#pragma once

#include <optional>

#include "gpu/device/device.h"
#include "server/model/frame.h"
#include "server/model/status_types.h"
#include "server/publish/topic.h"

namespace octavo::publish {

/// Whether the server can cut frames of the product from a held volume.
bool IsCut(model::Product product);
/// The index of an axis in the volume's shape.
int PositionOf(const model::VolumeStatus& volume, model::FrameAxis axis);
/// The frame of an image of a complete volume, published under `name`, without its payload: a plane
/// across key.axis, a projection along it, or an A-scan (of volumes [y, x, z]: of the middle
/// B-scan, in column key.plane_index or the middle one). Nothing for what lies outside of the
/// volume.
std::optional<model::Frame> PlaneFrame(const std::string& name, const model::VolumeStatus& volume,
                                       const TopicKey& key);
/// The voxels of the plane or A-scan that such a frame shows.
Box3 PlaneBox(const model::VolumeStatus& volume, const model::Frame& frame);
int64_t BytesOf(const model::Frame& frame);

}  // namespace octavo::publish
