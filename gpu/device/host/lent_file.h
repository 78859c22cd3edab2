#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "gpu/device/buffer.h"

namespace octavo::inline gpu::host {

/// Maps a memory file of another process to read, as ImportableMemory::Import says. The buffer
/// unmaps it; the descriptor is not needed any more. InvalidArgument (IMPORT_KIND, IMPORT_SIZE),
/// FailedPrecondition (IMPORT_NOT_SEALED), ResourceExhausted (OUT_OF_MEMORY).
absl::StatusOr<DeviceBuffer> MapLentFile(const UniqueFd& descriptor, int64_t bytes);

}  // namespace octavo::inline gpu::host
