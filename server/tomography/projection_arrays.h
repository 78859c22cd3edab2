#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/buffer/buffer_store.h"
#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::tomography {

/// Held volumes and buffers as projections of a scan: read back from the device that has them, box
/// by box. `angles_rad`: one per projection; `pixel_um`: the size of a column, 0 = not known.
/// Errors name fields below "tomography.arrays.". Reads fail as those of buffer::ArrayInput do.
absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> OpenProjectionArrays(
    buffer::BufferStore& buffers, const model::ProjectionArraysSpec& spec,
    const std::vector<double>& angles_rad, double pixel_um);

}  // namespace octavo::tomography
