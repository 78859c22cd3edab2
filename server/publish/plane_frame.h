#pragma once

#include <optional>

#include "gpu/device/device.h"
#include "server/model/frame.h"
#include "server/model/status_types.h"
#include "server/publish/publisher.h"

namespace octavo::engine {

/// Where in the volume's shape an axis is.
int PositionOf(const VolumeStatus& volume, FrameAxis axis);
/// The frame of a picture of a complete volume, published under `name`, without what is in it: a plane across key.axis, or a projection along it.
/// Nothing for a plane outside of the volume.
std::optional<Frame> PlaneFrame(const std::string& name, const VolumeStatus& volume, const TopicKey& key);
/// The voxels of the plane that such a frame shows.
Box3 PlaneBox(const VolumeStatus& volume, const Frame& frame);
int64_t BytesOf(const Frame& frame);

}  // namespace octavo::engine
