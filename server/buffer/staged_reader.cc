#include "server/buffer/staged_reader.h"

#include <algorithm>
#include <memory>

#include "gpu/base/status.h"

namespace octavo::buffer {

absl::StatusOr<model::Bytes> StagedReader::Next(int64_t max_bytes) {
  if (next_ == parts_.size()) return model::Bytes{};
  PieceToHost& part = parts_[next_];
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory, part.Wait());
  const int64_t n = std::min(max_bytes, part.bytes() - at_);
  model::Bytes out{
      .owner = memory, .data = static_cast<const char*>(memory.get()) + at_, .size = n};
  if ((at_ += n) == part.bytes()) ++next_, at_ = 0;
  return out;
}

}  // namespace octavo::buffer
