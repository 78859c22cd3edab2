// Which volumes of a LIVE scan are kept, and which give their slots to newer ones.

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/volume_states.h"
#include "server/engine/volume_store.h"

namespace octavo::engine {

absl::StatusOr<VolumeStatus> VolumeStore::Keep(const std::string& name, int64_t limit) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  if (!IsComplete(it->status.state)) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is ", Name(it->status.state), "; only HELD volumes can be kept")),
                    {.reason = "VOLUME_STATE", .field = "name", .numbers = {{"state", Name(it->status.state)}}});
  }
  if (!it->status.kept) {
    int64_t kept = 0;
    for (const Record& record : records_) {
      // What was derived or is in another tier has memory of its own, beside the scan's slots.
      kept += record.status.scan == it->status.scan && record.status.is_raw == it->status.is_raw && record.status.kept &&
              InMemory(record.status.state) && record.status.derived_from.empty() && record.status.tier == Tier::kDevice;
    }
    if (kept >= limit) {
      return WithInfo(absl::ResourceExhaustedError(
                          absl::StrCat(it->status.scan, " keeps ", kept, " volumes, all of its ", limit, " hold slots; commit or discard one first")),
                      {.reason = "HOLD_SLOTS_FULL",
                       .field = "name",
                       .numbers = {{"held", absl::StrCat(kept)}, {"allowed", absl::StrCat(limit)}, {"retryable", "true"}}});
    }
    it->status.kept = true;
  }
  it->status.marked = true;
  return StatusOf(*it);
}

absl::StatusOr<VolumeStatus> VolumeStore::Unmark(const std::string& name, bool ring) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  if (!IsComplete(it->status.state)) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is ", Name(it->status.state), "; only HELD volumes have a mark")),
                    {.reason = "VOLUME_STATE", .field = "name", .numbers = {{"state", Name(it->status.state)}}});
  }
  it->living_ns = clock_->Now().monotonic_ns;
  it->warned = false;
  it->status.marked = false;
  // A slot of the ring, unless it has memory of its own.
  if (ring && it->status.derived_from.empty() && it->status.tier == Tier::kDevice) it->status.kept = false;
  return StatusOf(*it);
}

bool VolumeStore::OverwriteOldest(const std::string& scan) {
  VolumeStatus status;
  Memory gone;
  {
    MutexLock lock(mutex_);
    auto it = records_.begin();
    while (it != records_.end() && !(it->status.scan == scan && it->status.state == VolumeState::kHeld && !it->status.kept)) {
      ++it;
    }
    if (it == records_.end()) return false;
    gone = Leave(*it, VolumeState::kDiscarded, "overwritten by a newer volume of a LIVE scan", "overwritten");
    ++scans_[scan].overwritten;
    status = StatusOf(*it);
  }
  gone.LetGo();
  on_change_(status);
  return true;
}

void VolumeStore::KeepNewest(const std::string& scan, int64_t count) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      int64_t free = 0, free_raw = 0;
      for (const Record& record : records_) {
        if (record.status.scan != scan || record.status.state != VolumeState::kHeld || record.status.kept) continue;
        ++(record.status.is_raw ? free_raw : free);
      }
      if (free <= count && free_raw <= count) return;
    }
    if (!OverwriteOldest(scan)) return;
  }
}

void VolumeStore::KeepAll(const std::string& scan) {
  MutexLock lock(mutex_);
  for (Record& record : records_) {
    if (record.status.scan == scan && InMemory(record.status.state)) record.status.kept = true;
  }
}

}  // namespace octavo::engine
