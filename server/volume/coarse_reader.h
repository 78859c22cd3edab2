#pragma once

// A coarse picture of a volume (gpu/array/coarsen.h), read piece by piece. Two ways lead to the
// same values (means differ by the rounding of f64):
//
//   on its device in one piece   The device makes each piece, and only that travels. The memory for
//                                one piece is charged to the ledger.
//   anywhere else, or no room    The voxels of a piece come to the host, a few B-scans at a time,
//                                and are reduced there.

#include <memory>

#include "absl/status/statusor.h"

#include "gpu/array/coarsen.h"
#include "gpu/device/device.h"
#include "server/base/worker_pool.h"
#include "server/memory/frame_pool.h"
#include "server/memory/ledger.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_reader.h"

namespace octavo::volume {

/// `hold` is of kind kRead; the box lies in the volume. All that is pointed to must outlive the
/// reader.
absl::StatusOr<std::shared_ptr<VolumeReader>> MakeCoarseReader(
    VolumeHold hold, const Coarsening& coarsening, Device* device, StreamRef stream,
    std::shared_ptr<memory::FramePool> pool, memory::Ledger* ledger, base::WorkerPool* workers);

}  // namespace octavo::volume
