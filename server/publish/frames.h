#pragma once

#include "server/model/frame.h"

namespace octavo::publish {

/// Whether the payload has to be fetched from a held volume before the frame is delivered.
bool NeedsLoad(const model::Frame& frame);
/// The same frame without its payload, as remembered for volume frames.
model::FramePtr WithoutPayload(const model::Frame& frame);

}  // namespace octavo::publish
