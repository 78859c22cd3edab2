#include "server/projection/projected_volume.h"

#include <utility>

#include "absl/strings/match.h"

#include "gpu/array/project.h"
#include "gpu/base/status.h"
#include "server/job/display_range.h"

namespace octavo::projection {

model::VolumeStatus DescribeResult(const model::ProjectionSpec& spec,
                                   const ProjectionGeometry& geometry,
                                   const std::optional<model::VolumeStatus>& input) {
  model::VolumeStatus volume;
  volume.shape[0] = geometry.slices();
  volume.shape[1] = geometry.result_extents()[0];
  volume.shape[2] = geometry.result_extents()[1];
  volume.dtype = DType::kF32;
  volume.axes[0] = "z";
  volume.axes[1] = "y";
  volume.axes[2] = "x";
  // Image and detector have the pixels of the input's last axis. Angles are no places.
  const auto like = [&](int axis, int of_input) {
    if (!input.has_value() || input->spacing_inverse[of_input]) {
      volume.spacing_um[axis] = 1;
      volume.spacing_assumed[axis] = true;
      return;
    }
    volume.spacing_um[axis] = input->spacing_um[of_input];
    volume.spacing_assumed[axis] = input->spacing_assumed[of_input];
  };
  like(0, 0);
  like(1, 2);
  like(2, 2);
  if (!spec.adjoint) {
    volume.spacing_um[1] = 1;
    volume.spacing_assumed[1] = true;
  }
  volume.quantity = spec.adjoint ? model::Quantity::kSum : model::Quantity::kLineIntegral;
  volume.complete = true;
  if (absl::StartsWith(spec.input, "volumes/")) volume.derived_from = spec.input;
  return volume;
}

absl::Status ProjectedVolume::Begin(const model::VolumeStatus& volume, int64_t batch,
                                    bool on_disk) {
  on_disk_ = on_disk;
  void* memory = nullptr;
  if (on_disk) {
    OCTAVO_RETURN_IF_ERROR(run_.BeginStored(0, volume));
    OCTAVO_ASSIGN_OR_RETURN(memory, run_.Allocate(batch * geometry_.result_elements() * 4));
  } else {
    OCTAVO_ASSIGN_OR_RETURN(memory, run_.Result(0, volume));
  }
  memory_ = static_cast<float*>(memory);
  mip_ = run_.ResultMip(0, /*made=*/true);
  return absl::OkStatus();
}

DeviceSpan<float> ProjectedVolume::MemoryOf(int64_t first, int64_t count) const {
  const int64_t slice = geometry_.result_elements();
  return {memory_ + (on_disk_ ? 0 : first * slice), count * slice};
}

absl::Status ProjectedVolume::Add(int64_t first, int64_t count) {
  const auto [rows, columns] = geometry_.result_extents();
  const DeviceSpan<float> made = MemoryOf(first, count);
  const VolumeView view{.data = made.data(), .dtype = DType::kF32, .shape = {count, rows, columns}};
  OCTAVO_RETURN_IF_ERROR(Mip(run_.stream(), run_.device(), view, Axis::kY, 0, count,
                             /*accumulate=*/std::exchange(mip_begun_, true), mip_));
  const int64_t middle = geometry_.slices() / 2;
  if (middle >= first && middle < first + count) {
    OCTAVO_ASSIGN_OR_RETURN(
        const auto range,
        job::FindDisplayRange(run_, made.data() + (middle - first) * rows * columns, rows,
                              columns));
    run_.SetDisplay(0, range.lo, range.hi > range.lo ? range.hi : range.lo + 1);
  }
  if (!on_disk_) return absl::OkStatus();
  return run_.Store(0, made.data(), made.count() * 4);
}

}  // namespace octavo::projection
