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
/// by box. `angles_rad`: one per projection. Errors name fields below "tomography.arrays.". Reads
/// fail (NotFound) if the volume or buffer is removed meanwhile.
absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> OpenProjectionArrays(
    buffer::BufferStore& buffers, const model::ProjectionArraysSpec& spec,
    const std::vector<double>& angles_rad);

/// The shape of a held volume or buffer, which must be f32 with three axes. Errors name `field`.
absl::StatusOr<std::vector<int64_t>> ShapeOfFloats(buffer::BufferStore& buffers,
                                                   const std::string& field,
                                                   const std::string& name);
/// Reads [first, first + count) of its first axis to `out`. Blocks.
absl::Status ReadPlanes(buffer::BufferStore& buffers, const std::string& name, int64_t first,
                        int64_t count, const std::vector<int64_t>& shape, void* out);

}  // namespace octavo::tomography
