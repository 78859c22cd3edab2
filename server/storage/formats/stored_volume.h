#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"

#include "server/storage/formats/volume_meta.h"

namespace octavo::storage {

/// A volume in files, to be read from its first B-scan to its last (input_volume.h).
class StoredVolume {
 public:
  virtual ~StoredVolume() = default;
  /// The metadata, those of the commit if one wrote the files.
  const VolumeMeta& meta() const { return meta_; }
  /// Reads B-scans [y_begin, y_begin + bscans) as [y, x, z] to `out`. Any range; cheapest in order.
  /// DataLoss for damage.
  virtual absl::Status Read(int64_t y_begin, int64_t bscans, void* out) = 0;
  /// Checks the files against the sizes and CRCs that the commit recorded; for volumes without a
  /// digest of the voxels. DataLoss.
  virtual absl::Status Verify() const = 0;

 protected:
  explicit StoredVolume(VolumeMeta meta) : meta_(std::move(meta)) {}
  const VolumeMeta meta_;
};

}  // namespace octavo::storage
