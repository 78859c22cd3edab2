#pragma once

#include "server/model/frame.h"

namespace octavo::publish {

/// Whether the server must fetch the payload from a held volume before it delivers the frame.
bool NeedsLoad(const model::Frame& frame);
/// The same frame without its payload, as the TopicTable remembers volume frames.
model::FramePtr WithoutPayload(const model::Frame& frame);
/// The same frame of a volume for a subscriber who reads the data itself, so that the server loads
/// nothing.
model::FramePtr ToBeRead(const model::Frame& frame);

}  // namespace octavo::publish
