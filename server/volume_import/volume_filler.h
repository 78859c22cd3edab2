#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/storage/formats/stored_volume.h"

namespace octavo::volume_import {

/// Fills device memory with a volume of a file, front to back in pieces of whole planes: one piece
/// is read while the copy of the one before goes to the device. Used by one thread.
class VolumeFiller {
 public:
  /// Page-locked host memory that a filler of such a volume takes.
  static int64_t HostBytes(const storage::VolumeMeta& meta);
  static absl::StatusOr<std::unique_ptr<VolumeFiller>> Create(Device& device,
                                                              const storage::VolumeMeta& meta);

  /// Reads `volume` into `out`, [shape] in device memory; returns when the copies on `stream` are
  /// done. `on_planes(done)` is called before each piece, with the planes before it, and at the
  /// end; its error ends the filling. The stream passes all copies in any case.
  absl::Status Fill(storage::StoredVolume& volume, StreamRef stream, void* out,
                    const std::function<absl::Status(int64_t done)>& on_planes);
  /// The values to show as black and white, by the plane in the middle (display_range.h). After
  /// Fill.
  const std::optional<std::pair<double, double>>& display() const { return display_; }

 private:
  VolumeFiller(Device& device, const storage::VolumeMeta& meta);
  absl::Status Pieces(storage::StoredVolume& volume, StreamRef stream, char* out,
                      const std::function<absl::Status(int64_t done)>& on_planes);

  Device& device_;
  const DType dtype_;
  const int64_t planes_, plane_bytes_, piece_;  // planes of a piece
  struct Slab {
    PinnedBuffer memory;
    Event copied;  // to the device
  } slabs_[2];
  std::optional<std::pair<double, double>> display_;
};

}  // namespace octavo::volume_import
