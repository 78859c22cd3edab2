#include "server/publish/frames.h"

#include <memory>

#include "server/publish/plane_frame.h"

namespace octavo::publish {

bool NeedsLoad(const model::Frame& frame) {
  return (frame.product == model::Product::kVolume || IsCut(frame.product)) &&
         frame.payload.data == nullptr;
}

model::FramePtr WithoutPayload(const model::Frame& frame) {
  auto header = std::make_shared<model::Frame>(frame);
  header->payload.owner = nullptr;
  header->payload.data = nullptr;
  return header;
}

}  // namespace octavo::publish
