#pragma once

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/memory/frame_pool.h"
#include "server/model/frame.h"
#include "server/volume/volume_hold.h"

namespace octavo::volume {

/// Copies a whole volume into page-locked memory of `pool`and waits for the copy. `hold` is of kind
/// kRead.
absl::StatusOr<model::Bytes> CopyVolumeToHost(Device& device, StreamRef stream,
                                              memory::FramePool& pool, const VolumeHold& hold);

}  // namespace octavo::volume
