#include "gpu/array/motion_contrast.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

absl::Status Check(const RepeatView& v, bool complex, bool repeats) {
  if (complex ? v.dtype != DType::kC64
              : v.dtype != DType::kU8 && v.dtype != DType::kU16 && v.dtype != DType::kF32) {
    return InvalidField(
        "volume.dtype",
        absl::StrCat("is ", Info(v.dtype).name,
                     complex ? "; a phase needs complex samples: c64" : "; allowed u8, u16, f32"));
  }
  if (v.rows < 1 || v.columns < 1 || v.depth < 1) {
    return FieldNotAllowed("volume.shape", absl::StrCat(v.rows, " x ", v.columns, " x ", v.depth),
                           ">= 1");
  }
  if (!repeats) return absl::OkStatus();
  if (v.repeats < 2) return FieldNotAllowed("repeats", v.repeats, ">= 2");
  if (v.bscans < 1 || v.bscans * v.repeats > v.rows) {
    return InvalidField("bscans", absl::StrCat("is ", v.bscans, " with ", v.repeats,
                                               " repeats; the volume has ", v.rows, " rows"));
  }
  return absl::OkStatus();
}

absl::Status CheckWindow(const RepeatView& v, int64_t half_window) {
  if (half_window >= 0 && half_window < v.depth) return absl::OkStatus();
  return FieldOutOfRange("half_window", half_window, 0, v.depth - 1);
}

}  // namespace

absl::Status Angiogram(StreamRef stream, Device& device, MotionContrast kind,
                       const RepeatView& view, const math::StoredScale& scale,
                       DeviceSpan<float> out) {
  OCTAVO_RETURN_IF_ERROR(Check(view, false, true));
  OCTAVO_ASSIGN_OR_RETURN(RepeatOps* const ops, FindOperators<RepeatOps>(device));
  return kind == MotionContrast::kSpeckleVariance
             ? ops->SpeckleVariance(stream, view, scale, out)
             : ops->AmplitudeDecorrelation(stream, view, scale, out);
}

absl::Status AngiogramEnFace(StreamRef stream, Device& device, MotionContrast kind,
                             const RepeatView& view, const math::StoredScale& scale,
                             int64_t z_begin, int64_t z_end, DeviceSpan<float> out) {
  OCTAVO_RETURN_IF_ERROR(Check(view, false, true));
  if (z_begin < 0 || z_begin >= z_end || z_end > view.depth) {
    return InvalidField("slab", absl::StrCat("is depth samples ", z_begin, " to ", z_end,
                                             "; allowed 0 to ", view.depth));
  }
  OCTAVO_ASSIGN_OR_RETURN(RepeatOps* const ops, FindOperators<RepeatOps>(device));
  return ops->ContrastEnFace(stream, kind == MotionContrast::kAmplitudeDecorrelation, view, scale,
                             z_begin, z_end, out);
}

absl::Status DopplerOverRepeats(StreamRef stream, Device& device, const RepeatView& view,
                                int64_t half_window, DeviceSpan<float> out) {
  OCTAVO_RETURN_IF_ERROR(Check(view, true, true));
  OCTAVO_RETURN_IF_ERROR(CheckWindow(view, half_window));
  OCTAVO_ASSIGN_OR_RETURN(RepeatOps* const ops, FindOperators<RepeatOps>(device));
  return ops->PhaseOverRepeats(stream, view, half_window, out);
}

absl::Status DopplerOverAscans(StreamRef stream, Device& device, const RepeatView& view,
                               int64_t half_window, DeviceSpan<float> out) {
  OCTAVO_RETURN_IF_ERROR(Check(view, true, false));
  OCTAVO_RETURN_IF_ERROR(CheckWindow(view, half_window));
  if (view.columns < 2)
    return InvalidField("volume.shape",
                        "has one A-scan a B-scan; a phase between A-scans needs two");
  OCTAVO_ASSIGN_OR_RETURN(RepeatOps* const ops, FindOperators<RepeatOps>(device));
  return ops->PhaseOverAscans(stream, view, half_window, out);
}

}  // namespace octavo::inline gpu
