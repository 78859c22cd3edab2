#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// A commit of a volume, from its begin (VolumeStore::BeginCommit) to its end. While it is under
/// way, no other verb takes or discards the volume. It does not hold the bytes: a queued commit
/// keeps no slot of a volume that is moved meanwhile. Finish ends it, and uses it up: a second end
/// is none. A commit that is destroyed before Finish has failed, so no early return and no
/// exception leaves a volume committing. The end takes the store's lock, so every commit must end
/// before the store, and none under that lock. Not thread-safe; another thread may take it over.
class VolumeCommit {
 public:
  VolumeCommit() = default;  // none
  VolumeCommit(VolumeCommit&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)), volume_(std::move(other.volume_)) {}
  /// The commit that was here before fails if it has not ended.
  VolumeCommit& operator=(VolumeCommit&& other) noexcept;
  ~VolumeCommit() { Abandon(); }

  /// False: none was begun, or it has ended. Finish does nothing then.
  bool under_way() const { return table_ != nullptr; }

  /// Ends the commit. The volume is COMMITTED and its memory is released; or it is HELD again and
  /// kept, last_error says why, and the failure counts for its scan. If Finish throws before it has
  /// changed the volume, the commit is still under way.
  void Finish(const absl::StatusOr<storage::CommitOutcome>& outcome) &&;

 private:
  friend class VolumeStore;
  /// Made under the table's lock, when the entry is COMMITTING.
  VolumeCommit(VolumeTable* table, std::string volume) noexcept
      : table_(table), volume_(std::move(volume)) {}
  /// The end of a commit without Finish.
  void Abandon() noexcept;

  VolumeTable* table_ = nullptr;  // null: nothing is to be ended
  std::string volume_;
};

}  // namespace octavo::volume
