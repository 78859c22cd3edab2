#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "server/base/worker_pool.h"
#include "server/engine/engine.h"
#include "server/memory/frame_pool.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Reader of a box of a volume, pinned and opened by VolumeStore::OpenAnyTier. Copies one piece ahead of what was asked for. `device`,
/// `stream` and `workers` must outlive it. OutOfRange ("start", "count") if the box leaves the volume; empty start and count mean all of it.
absl::StatusOr<std::shared_ptr<VolumeReader>> MakeVolumeReader(PinnedVolume pinned, std::unique_ptr<storage::SpillCursor> cursor,
                                                               const std::vector<int64_t>& start, const std::vector<int64_t>& count, Device* device,
                                                               StreamRef stream, std::shared_ptr<FramePool> pool, WorkerPool* workers);

}  // namespace octavo::engine
