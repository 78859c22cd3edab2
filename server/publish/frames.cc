#include "server/publish/frames.h"

#include <memory>

#include "server/publish/plane_frame.h"

namespace octavo::publish {

bool NeedsLoad(const model::Frame& frame) {
  if (frame.payload.data != nullptr) return false;
  return IsCut(frame.product) ||
         (frame.product == model::Product::kVolume && frame.payload.size > 0);
}

model::FramePtr WithoutPayload(const model::Frame& frame) {
  auto header = std::make_shared<model::Frame>(frame);
  header->payload.owner = nullptr;
  header->payload.data = nullptr;
  return header;
}

model::FramePtr ToBeRead(const model::Frame& frame) {
  auto header = std::make_shared<model::Frame>(frame);
  header->payload = {};
  return header;
}

}  // namespace octavo::publish
