#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/storage/direct/storage_reads.h"
#include "server/storage/formats/input_volume.h"

namespace octavo::volume_import {

/// Fills device memory with a volume of a file, its parts in any order and straight to their places
/// (server/storage/direct). Used by one thread.
class DirectFiller {
 public:
  /// Nothing where the planes have to be put together in host memory (VolumeFiller). `volume` and
  /// `reads` must outlive the filler. Errors as InputVolume::OpenDirect.
  static absl::StatusOr<std::unique_ptr<DirectFiller>> Create(const storage::InputVolume& volume,
                                                              storage::StorageReads* reads);

  /// Device memory that it takes beside the volume's.
  absl::StatusOr<int64_t> DeviceBytes(Device& device) const;

  /// Where the volume goes.
  struct Target {
    Device* device = nullptr;
    storage::LendSlab lend;
    int64_t most_lent = 0;  // that `lend` gives together; 0 = not known
    StreamRef stream;
    void* out = nullptr;  // [shape] in device memory
    std::string path;     // of the file, as the kernel gave it; empty = below no root
  };
  /// Fills it, once; returns when all work on the device has passed. `on_planes(done)` is called
  /// every few hundredths of a second with the planes that make up what is done; its error ends the
  /// filling. False: no page-locked memory was left, and nothing was done. `words` then says so,
  /// else by which way the bytes came.
  absl::StatusOr<bool> Fill(const Target& target,
                            const std::function<absl::Status(int64_t done)>& on_planes,
                            std::string* words);
  /// The values to show as black and white, by the plane in the middle (display_range.h). After
  /// Fill.
  const std::optional<std::pair<double, double>>& display() const { return display_; }

 private:
  DirectFiller(const storage::InputVolume& volume, storage::StorageReads* reads,
               storage::InputVolume::Direct direct);
  absl::Status FindDisplay(const Target& target);

  const storage::VolumeMeta& meta_;
  storage::StorageReads& reads_;
  const storage::InputVolume::Direct direct_;
  const int64_t plane_;  // elements
  std::optional<std::pair<double, double>> display_;
};

}  // namespace octavo::volume_import
