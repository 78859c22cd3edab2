#include "gpu/array/project.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

absl::Status Check(const VolumeView& volume) {
  const bool known = volume.dtype == DType::kU8 || volume.dtype == DType::kI8 ||
                     volume.dtype == DType::kU16 || volume.dtype == DType::kF16 ||
                     volume.dtype == DType::kF32 || volume.dtype == DType::kC64;
  if (!known)
    return InvalidField("volume.dtype", absl::StrCat("is ", Info(volume.dtype).name,
                                                     "; allowed u8, i8, u16, f16, f32, c64"));
  for (const int64_t extent : volume.shape) {
    if (extent < 1)
      return InvalidField("volume.shape",
                          absl::StrCat("has an extent of ", extent, "; allowed >= 1"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t PlaneElements(const int64_t shape[3], Axis axis) {
  return shape[0] * shape[1] * shape[2] / shape[static_cast<int>(axis)];
}

absl::Status Mip(StreamRef stream, Device& device, const VolumeView& volume, Axis axis,
                 int64_t y_begin, int64_t y_end, bool accumulate, void* out) {
  OCTAVO_RETURN_IF_ERROR(Check(volume));
  if (y_begin < 0 || y_begin >= y_end || y_end > volume.shape[0]) {
    return absl::OutOfRangeError(
        absl::StrCat("B-scans ", y_begin, " to ", y_end, "; the volume has ", volume.shape[0]));
  }
  OCTAVO_ASSIGN_OR_RETURN(ProjectOps* const ops, FindOperators<ProjectOps>(device));
  switch (axis) {
    case Axis::kX: return ops->MaxOverX(stream, volume, y_begin, y_end, out);
    case Axis::kY: return ops->MaxOverY(stream, volume, y_begin, y_end, accumulate, out);
    case Axis::kZ: return ops->MaxOverZ(stream, volume, y_begin, y_end, 0, volume.shape[2], out);
  }
  return absl::InternalError("no such axis");
}

absl::Status ExtractPlane(StreamRef stream, Device& device, const VolumeView& volume, Axis axis,
                          int64_t index, void* out) {
  OCTAVO_RETURN_IF_ERROR(Check(volume));
  const int64_t extent = volume.shape[static_cast<int>(axis)];
  if (index < 0 || index >= extent)
    return absl::OutOfRangeError(absl::StrCat("plane ", index, "; the axis has 0 to ", extent - 1));
  OCTAVO_ASSIGN_OR_RETURN(ProjectOps* const ops, FindOperators<ProjectOps>(device));
  return ops->ExtractPlane(stream, volume, axis, index, out);
}

absl::Status EnFaceSlab(StreamRef stream, Device& device, const VolumeView& volume, int64_t z_begin,
                        int64_t z_end, void* out) {
  OCTAVO_RETURN_IF_ERROR(Check(volume));
  if (z_begin < 0 || z_begin >= z_end || z_end > volume.shape[2]) {
    return absl::OutOfRangeError(
        absl::StrCat("depths ", z_begin, " to ", z_end, "; the volume has ", volume.shape[2]));
  }
  OCTAVO_ASSIGN_OR_RETURN(ProjectOps* const ops, FindOperators<ProjectOps>(device));
  return ops->MaxOverZ(stream, volume, 0, volume.shape[0], z_begin, z_end, out);
}

absl::Status PowerSums(StreamRef stream, Device& device, DeviceSpan<const float> power,
                       int64_t ascans, int64_t depth, int64_t z_begin, int64_t z_end,
                       DeviceSpan<float> out) {
  if (ascans < 1 || depth < 1)
    return FieldNotAllowed("power", absl::StrCat(ascans, " A-scans of ", depth), ">= 1");
  if (z_begin < 0 || z_begin >= z_end || z_end > depth) {
    return absl::OutOfRangeError(
        absl::StrCat("depth samples ", z_begin, " to ", z_end, "; the A-scans have ", depth));
  }
  OCTAVO_ASSIGN_OR_RETURN(ProjectOps* const ops, FindOperators<ProjectOps>(device));
  return ops->PowerSums(stream, power, ascans, depth, z_begin, z_end, out);
}

}  // namespace octavo::inline gpu
