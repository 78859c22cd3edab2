#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "server/engine/buffer_store.h"
#include "server/engine/tomography_spec.h"
#include "server/storage/projection_input.h"

namespace octavo::engine {

/// Held volumes and buffers as projections of a scan: read back from the device that has them, box by box. `angles_rad`: one per
/// projection. Errors name fields below "tomography.arrays.". Something that goes while it is read makes reads fail (NotFound).
absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> OpenProjectionArrays(BufferStore& buffers, const ProjectionArraysSpec& spec,
                                                                               const std::vector<double>& angles_rad);

}  // namespace octavo::engine
