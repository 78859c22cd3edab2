#pragma once

#include "absl/status/statusor.h"

#include "gpu/array/project_box.h"
#include "server/model/frame.h"
#include "server/model/render_spec.h"
#include "server/model/status_types.h"

namespace octavo::engine {

/// Most values of a picture of a held volume, before it is shrunk: they are in host memory
/// together.
inline constexpr int64_t kMostRenderedValues = int64_t{1} << 26;

/// A picture of a held volume.
struct Rendered {
  model::VolumeStatus volume;
  BoxProjection projection;
  model::Frame frame;        // an image
  bool has_display = false;  // the frame's display levels say something
};

/// What a request shows of a volume, with a frame that has no payload yet. InvalidArgument,
/// OutOfRange (BAD_RANGE): names the field.
absl::StatusOr<Rendered> PlanRendering(const model::VolumeStatus& volume,
                                       const model::RenderSpec& spec);

}  // namespace octavo::engine
