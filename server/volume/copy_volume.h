#pragma once

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/memory/frame_pool.h"
#include "server/model/frame.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Copies a whole volume into page-locked memory of `pool`; waits for it.
absl::StatusOr<Bytes> CopyVolumeToHost(Device& device, StreamRef stream, FramePool& pool, const PinnedVolume& pinned);

}  // namespace octavo::engine
