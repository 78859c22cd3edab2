#pragma once

#include "server/model/frame.h"

namespace octavo::publish {

/// Whether the server must fetch the payload from a held volume before it delivers the frame.
bool NeedsLoad(const model::Frame& frame);
/// The same frame without its payload, as the TopicTable remembers volume frames.
model::FramePtr WithoutPayload(const model::Frame& frame);
/// A copy of the frame without data. The subscriber reads the volume itself, and the server loads
/// nothing.
model::FramePtr ToBeRead(const model::Frame& frame);

}  // namespace octavo::publish
