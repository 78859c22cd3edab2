#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/buffer.h"
#include "gpu/device/device_span.h"
#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/volume/volume_hold.h"

namespace octavo::buffer {
class ArrayInput;
}  // namespace octavo::buffer

namespace octavo::projection {

/// The input of a job: a held volume or a buffer, f32 with three axes. A volume in device memory is
/// pinned for as long as this exists: a job on its device projects from there, and one on another
/// device gets its bytes through host memory. All other inputs are read through host memory, and
/// those reads fail as those of buffer::ArrayInput do.
class InputSlices {
 public:
  /// Errors name projection.input.
  static absl::StatusOr<std::shared_ptr<const InputSlices>> Open(
      const std::string& name, const job::JobEnvironment& environment);

  const std::vector<int64_t>& shape() const { return shape_; }
  /// The description of the input, if it is a volume.
  const std::optional<model::VolumeStatus>& volume() const { return volume_; }
  /// The device on which a job that names none is to run, because it has the input; -1: any.
  /// devices/host is none of these.
  int device() const;
  /// The memory of all slices, if device `index` has it; else null.
  DeviceSpan<const float> MemoryOn(int index) const;
  /// Reads [first, first + count) to device memory. Waits for the stream. `stop` is looked at
  /// between pieces of some MiB.
  absl::Status Read(job::JobRun& run, const std::stop_token& stop, int64_t first, int64_t count,
                    DeviceSpan<float> out) const;

 private:
  absl::Status ReadPinned(job::JobRun& run, const std::stop_token& stop, int64_t first,
                          int64_t count, DeviceSpan<float> out) const;

  const memory::DeviceSet* devices_ = nullptr;
  std::vector<int64_t> shape_;
  std::optional<model::VolumeStatus> volume_;
  volume::VolumeHold pinned_;                           // empty: read through `contents_`
  std::shared_ptr<const buffer::ArrayInput> contents_;  // null: `pinned_`
};

}  // namespace octavo::projection
