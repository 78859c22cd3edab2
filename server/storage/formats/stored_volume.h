#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/formats/volume_meta.h"

namespace octavo::storage {

/// A committed volume, to be read back from its first B-scan to its last.
class StoredVolume {
 public:
  virtual ~StoredVolume() = default;
  /// The metadata that the commit wrote.
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

/// Opens a committed volume: an OME-Zarr (its full resolution), a .npy or a .bin with its .json.
/// NotFound; InvalidArgument ("source") for anything else, and for files without our metadata;
/// DataLoss for damaged metadata.
absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStored(const std::string& path);

// Private: one for each kind.
absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStoredZarr(const std::string& path);
absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStoredFlat(const std::string& path);

}  // namespace octavo::storage
