#pragma once

// Private to this folder: the reconstructor of TomographyAlgorithm::kFourier.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {

/// `config` must be valid. What it computes: gpu/tomography/gridding.h.
absl::StatusOr<std::unique_ptr<Reconstructor>> MakeFourier(const TomographyConfig& config,
                                                           Device& device);
/// The bytes of device memory that MakeFourier takes.
absl::StatusOr<int64_t> FourierBytes(const TomographyConfig& config, Device& device);

}  // namespace octavo::inline gpu
