#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/model/status_types.h"
#include "server/storage/spill/spill_folder.h"

namespace octavo::volume {

/// The voxels of a held volume, C order, in a tier other than device memory. Immutable.
/// Thread-safe.
class SpilledVolume {
 public:
  virtual ~SpilledVolume() = default;
  virtual model::Tier tier() const = 0;
  virtual int64_t bytes() const = 0;
  /// What it takes of its tier: a file has a footer, too.
  virtual int64_t taken_bytes() const { return bytes(); }
  /// Opens an independent reader. It stays valid until it is destroyed, even if the volume is
  /// removed.
  virtual absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const = 0;
  /// The volume was committed, discarded or moved back to its device, so its bytes are no longer
  /// needed. A file is removed now; memory is freed with its last reader.
  virtual void Remove() const = 0;
  /// Notes in the file whether the volume is marked, which may change after the file was written.
  /// Memory, which ends with the process, has nothing to note.
  virtual absl::Status NoteMark(bool marked) const {
    (void)marked;
    return absl::OkStatus();
  }
};

/// Copies `box` of the C-order array of `shape` elements of `element_bytes` into packed memory, in
/// the largest contiguous pieces.
absl::Status ReadBox(storage::SpillCursor& cursor, const int64_t shape[3], int64_t element_bytes,
                     const Box3& box, void* out);

}  // namespace octavo::volume
