#include "server/source/record_groups.h"

#include <algorithm>
#include <cstring>

#include "gpu/base/status.h"

namespace octavo::source {

absl::StatusOr<SourceBlock> RecordGroups::Next(Source& source, void* slot, int64_t max_groups,
                                               std::stop_token stop) {
  if (size_ == 1) return source.Next(slot, max_groups, stop);
  auto* bytes = static_cast<char*>(slot);
  int64_t first = 0, held = 0;  // records in the slot, the first one at the beginning of a group
  TimePoint acquired;
  while (held == 0 || held % size_ != 0) {
    SourceBlock block;
    if (behind_block_.records > 0) {
      block = behind_block_;
      behind_block_ = {};
      std::memcpy(bytes, behind_.data(), static_cast<size_t>(block.records * record_bytes_));
    } else {
      // Read only the rest of the group, so that it does not wait for later records once complete.
      const int64_t wanted = held == 0 ? max_groups * size_ : size_ - held % size_;
      OCTAVO_ASSIGN_OR_RETURN(block, source.Next(bytes + held * record_bytes_, wanted, stop));
    }
    if (block.records == 0) break;  // the end: an incomplete group is lost
    if (held > 0 && block.first_record == first + held) {
      held += block.records;
      acquired = block.acquired;
      continue;
    }
    if (held >= size_) {  // a gap after complete groups: deliver those first
      behind_.assign(bytes + held * record_bytes_, bytes + (held + block.records) * record_bytes_);
      behind_block_ = block;
      break;
    }
    // Restarts at the next group.
    const int64_t skipped = (size_ - block.first_record % size_) % size_;
    const char* from = bytes + held * record_bytes_;
    held = 0;
    if (block.records <= skipped) continue;
    first = block.first_record + skipped;
    held = block.records - skipped;
    acquired = block.acquired;
    std::memmove(bytes, from + skipped * record_bytes_, static_cast<size_t>(held * record_bytes_));
  }
  return SourceBlock{.first_record = first / size_, .records = held / size_, .acquired = acquired};
}

absl::StatusOr<SourceBlock> RecordGroups::Skip(Source& source, int64_t groups,
                                               std::stop_token stop) {
  behind_block_ = {};
  OCTAVO_ASSIGN_OR_RETURN(SourceBlock block, source.Skip(groups * size_, stop));
  block.first_record /= size_;
  block.records = block.records > 0 ? std::max<int64_t>(1, block.records / size_) : 0;
  return block;
}

}  // namespace octavo::source
