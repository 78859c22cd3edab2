#include "server/processing/display_scale.h"

namespace octavo::processing {

math::StoredScale ScaleOf(const model::VolumeStatus& v) {
  math::StoredScale scale;
  scale.kind = v.value == model::ValueKind::kDb      ? math::Value::kDb
               : v.value == model::ValueKind::kPower ? math::Value::kPower
                                                     : math::Value::kMagnitude;
  if (v.has_levels) {
    const float top = v.dtype == DType::kU8 ? 255.0f : v.dtype == DType::kU16 ? 65535.0f : 1.0f;
    scale.lo = v.level_lo;
    scale.step = (v.level_hi - v.level_lo) / top;
  }
  return scale;
}

double ContrastDisplayHi(MotionContrast kind, const model::VolumeStatus& v) {
  if (kind == MotionContrast::kAmplitudeDecorrelation || !v.has_levels) return 1;
  const float top = v.dtype == DType::kU8 ? 255.0f : v.dtype == DType::kU16 ? 65535.0f : 1.0f;
  const auto bright = static_cast<double>(math::AmplitudeOf(ScaleOf(v), top));
  return 0.01 * bright * bright;
}

}  // namespace octavo::processing
