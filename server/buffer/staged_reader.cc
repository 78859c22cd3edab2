#include "server/buffer/staged_reader.h"

#include <algorithm>

#include "gpu/base/status.h"

namespace octavo::buffer {

absl::StatusOr<model::Bytes> StagedReader::Next(int64_t max_bytes) {
  if (next_ == parts_.size()) return model::Bytes{};
  const StagedPiece& part = parts_[next_];
  if (part.event != nullptr) OCTAVO_RETURN_IF_ERROR(part.event->Synchronize());
  const int64_t n = std::min(max_bytes, part.bytes - at_);
  model::Bytes out{
      .owner = part.memory, .data = static_cast<const char*>(part.memory.get()) + at_, .size = n};
  if ((at_ += n) == part.bytes) ++next_, at_ = 0;
  return out;
}

}  // namespace octavo::buffer
