#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/zarr/reader.h"

namespace octavo::storage {

/// A Zarr array seen with 3 axes: one with fewer gets leading axes of extent 1; one with more is
/// allowed if those before the last three have extent 1. Thread-safe.
class ZarrThreeAxes {
 public:
  /// Unimplemented names the axis that is too long.
  static absl::StatusOr<ZarrThreeAxes> Of(std::shared_ptr<const ZarrArrayReader> array);

  const ZarrArrayReader& array() const { return *array_; }
  const int64_t* shape() const { return shape_; }
  const int64_t* file_shape() const { return file_; }  // elements per file, a chunk or a shard
  /// As ZarrArrayReader::Read, packed.
  absl::Status Read(const int64_t start[3], const int64_t count[3], void* out) const;

 private:
  explicit ZarrThreeAxes(std::shared_ptr<const ZarrArrayReader> array) : array_(std::move(array)) {}

  std::shared_ptr<const ZarrArrayReader> array_;
  int64_t shape_[3] = {1, 1, 1}, file_[3] = {1, 1, 1};
};

}  // namespace octavo::storage
