#pragma once

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/memory/frame_pool.h"
#include "server/model/frame.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {

/// Copies a whole volume into page-locked memory of `pool`; waits for it.
absl::StatusOr<model::Bytes> CopyVolumeToHost(Device& device, StreamRef stream,
                                              memory::FramePool& pool, const PinnedVolume& pinned);

}  // namespace octavo::volume
