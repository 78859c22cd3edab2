#include "server/source/camera.h"

#include "server/source/sources.h"

namespace octavo::source {

model::CameraSource WithDefaults(const model::CameraSource& given) {
  model::CameraSource s = given;
  if (s.buffers == 0) s.buffers = 16;
  if (s.frame_timeout_s == 0) s.frame_timeout_s = s.trigger_source.empty() ? 5 : -1;
  return s;
}

}  // namespace octavo::source
