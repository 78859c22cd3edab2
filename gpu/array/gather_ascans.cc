#include "gpu/array/gather_ascans.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {

absl::Status GatherAscans(StreamRef stream, Device& device, const AscanView& in,
                          const GatherTable& table, void* out) {
  if (in.dtype != DType::kU8 && in.dtype != DType::kU16 && in.dtype != DType::kF32) {
    return FieldNotAllowed("volume.dtype", Info(in.dtype).name, "u8, u16, f32");
  }
  if (in.ascans < 1 || in.depth < 1)
    return FieldNotAllowed("volume.shape", absl::StrCat(in.ascans, " A-scans of ", in.depth),
                           ">= 1");
  if (table.taps < 1 || table.ascans < 1)
    return InvalidField("table", absl::StrCat("has ", table.ascans, " A-scans of ", table.taps,
                                              " taps; allowed >= 1"));
  OCTAVO_ASSIGN_OR_RETURN(ResampleOps* const ops, FindOperators<ResampleOps>(device));
  return ops->Gather(stream, in, table, out);
}

}  // namespace octavo::inline gpu
