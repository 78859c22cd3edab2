#pragma once

#include <cstdint>
#include <vector>

#include "server/source/source.h"

namespace octavo::source {

/// Reads records from a source in groups for averaging: group g holds the source's records g n ...
/// g n + n - 1. A group with a lost record is left out as a whole. Used by the acquisition thread.
class RecordGroups {
 public:
  /// `record_bytes`: of a record of the source. `size`: n, at least 1.
  RecordGroups(int64_t size, int64_t record_bytes) : size_(size), record_bytes_(record_bytes) {}

  /// As Source::Next, in groups: `slot` has room for max_groups of them; the block counts groups.
  absl::StatusOr<SourceBlock> Next(Source& source, void* slot, int64_t max_groups,
                                   std::stop_token stop);
  /// As Source::Skip, in groups.
  absl::StatusOr<SourceBlock> Skip(Source& source, int64_t groups, std::stop_token stop);

 private:
  const int64_t size_, record_bytes_;
  // Records that came after a gap while the slot held groups from before it.
  std::vector<char> behind_;
  SourceBlock behind_block_;
};

}  // namespace octavo::source
