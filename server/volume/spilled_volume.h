#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/model/status_types.h"
#include "server/storage/spill/spill_folder.h"

namespace octavo::volume {

/// The voxels of a held volume, C order, in another tier than device memory. Immutable.
/// Thread-safe.
class SpilledVolume {
 public:
  virtual ~SpilledVolume() = default;
  virtual model::Tier tier() const = 0;
  virtual int64_t bytes() const = 0;
  /// A reader of its own, good until it is destroyed, whatever becomes of the volume.
  virtual absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const = 0;
  /// The volume is committed, discarded or back on its device: its bytes are not wanted any more. A
  /// file goes now, memory with its last reader.
  virtual void Remove() const = 0;
};

/// Copies `box` of the C-order array of `shape` elements of `element_bytes` into packed memory, in
/// pieces as large as lie together.
absl::Status ReadBox(storage::SpillCursor& cursor, const int64_t shape[3], int64_t element_bytes,
                     const Box3& box, void* out);

}  // namespace octavo::volume
