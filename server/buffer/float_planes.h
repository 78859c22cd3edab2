#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/buffer_reader.h"
#include "server/buffer/buffer_store.h"

// Held volumes and buffers as arrays that jobs read.
namespace octavo::buffer {

/// A read of the box [start, start + count) of a held volume or a buffer that is not private;
/// empty: of all. Reads fail (NotFound) if it is removed meanwhile.
absl::StatusOr<std::shared_ptr<BufferReader>> OpenBox(BufferStore& buffers, const std::string& name,
                                                      std::vector<int64_t> start,
                                                      std::vector<int64_t> count);
/// The type of a held volume or buffer. Errors name `field`.
absl::StatusOr<ArrayType> TypeOf(BufferStore& buffers, const std::string& field,
                                 const std::string& name);
/// The shape of a held volume or buffer, which must be f32 with three axes. Errors name `field`.
absl::StatusOr<std::vector<int64_t>> ShapeOfFloats(BufferStore& buffers, const std::string& field,
                                                   const std::string& name);
/// Reads [first, first + count) of the first axis of an array of that `shape` to `out`. Blocks.
absl::Status ReadPlanes(BufferStore& buffers, const std::string& name, int64_t first, int64_t count,
                        const std::vector<int64_t>& shape, void* out);

}  // namespace octavo::buffer
