#pragma once

// Private to this folder: the reconstructor of TomographyAlgorithm::kFourier.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/tomography/gridding.h"
#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {

/// The lines of all tiles of a grid, on the device.
struct GridTable {
  GridGeometry geometry;
  DeviceBuffer lines;
  BusyTiles busy;
};

/// `config` must be valid; `shared` may be null. What it computes: gpu/tomography/gridding.h.
absl::StatusOr<std::unique_ptr<Reconstructor>> MakeFourier(const TomographyConfig& config,
                                                           Device& device, SharedTables* shared);
/// The bytes of device memory that MakeFourier takes.
absl::StatusOr<int64_t> FourierBytes(const TomographyConfig& config, Device& device);

}  // namespace octavo::inline gpu
