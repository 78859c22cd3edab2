// Which volumes of a LIVE scan are kept, and which give their slots to newer ones.

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/model/volume_states.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {
namespace {

/// Whether a LIVE scan may overwrite it. Not while it is being moved: who asked for that wants it,
/// and its slot would not become free before the move is through.
bool IsTheRings(const model::VolumeStatus& status) {
  return status.state == model::VolumeState::kHeld && !status.kept && status.moving.empty();
}

}  // namespace

absl::StatusOr<model::VolumeStatus> VolumeStore::Keep(const std::string& name, int64_t limit) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  if (!model::IsComplete(it->status.state)) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(name, " is ", Name(it->status.state),
                                     "; only HELD and COMMITTING volumes can be kept")),
                    {.reason = Reason::kVolumeState,
                     .field = "name",
                     .numbers = {{"state", Name(it->status.state)}}});
  }
  if (!it->status.kept) {
    OCTAVO_RETURN_IF_ERROR(CheckHoldSlots(*it, limit));
    it->status.kept = true;
  }
  it->status.marked = true;
  return StatusOf(*it);
}

absl::Status VolumeStore::CheckHoldSlots(const Record& of, int64_t limit) {
  int64_t kept = 0;
  for (const Record& record : records_) {
    // What was derived, or has left its slot, has memory of its own, beside the scan's slots.
    kept += record.status.scan == of.status.scan && record.status.is_raw == of.status.is_raw &&
            record.status.kept && model::InMemory(record.status.state) && record.InSlot();
  }
  if (kept < limit) return absl::OkStatus();
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat(of.status.scan, " keeps ", kept,
                                                " volumes, all of its ", limit,
                                                " hold slots; commit or discard one first")),
      {.reason = Reason::kHoldSlotsFull,
       .field = "name",
       .numbers = {
           {"held", absl::StrCat(kept)}, {"allowed", absl::StrCat(limit)}, {"retryable", "true"}}});
}

absl::Status VolumeStore::Lend(const std::string& name, int64_t limit) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  if (it->status.state != model::VolumeState::kHeld) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is ", Name(it->status.state),
                                                               "; only HELD volumes can be lent")),
                    {.reason = Reason::kVolumeState,
                     .field = "name",
                     .numbers = {{"state", Name(it->status.state)}}});
  }
  if (!it->status.kept) {
    OCTAVO_RETURN_IF_ERROR(CheckHoldSlots(*it, limit));
    it->status.kept = it->lent = true;
  }
  ++it->loans;
  return absl::OkStatus();
}

void VolumeStore::TakeBack(const std::string& name, bool ring) {
  MutexLock lock(mutex_);
  const auto it = Find(name);
  if (!it.ok() || (*it)->loans == 0 || --(*it)->loans > 0 || !(*it)->lent) return;
  const model::VolumeStatus& status = (*it)->status;
  (*it)->lent = false;
  // A commit that failed wants it kept, too; and what has memory of its own is no slot of the ring.
  if (ring && !RingOver(**it) && !status.marked && status.last_error.empty() &&
      status.tier == model::Tier::kDevice)
    (*it)->status.kept = false;
}

bool VolumeStore::RingOver(const Record& record) const {
  const auto scan = scans_.find(record.status.scan);
  return scan != scans_.end() && scan->second.ring_over;
}

absl::StatusOr<model::VolumeStatus> VolumeStore::Unmark(const std::string& name, bool ring,
                                                        const ClientVerb* asked) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  if (!model::IsComplete(it->status.state)) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(name, " is ", Name(it->status.state),
                                     "; only HELD and COMMITTING volumes have a mark")),
                    {.reason = Reason::kVolumeState,
                     .field = "name",
                     .numbers = {{"state", Name(it->status.state)}}});
  }
  OCTAVO_RETURN_IF_ERROR(CheckLeases(*it, asked));
  OCTAVO_RETURN_IF_ERROR(CheckExports(
      *it, asked));  // the ring would run short of a slot for as long as somebody maps it
  it->living_ns = clock_->Now().monotonic_ns;
  it->warned = false;
  it->status.marked = false;
  // A slot of the ring, unless it has memory of its own; of who has it on loan, until it is given
  // back.
  if (ring && !RingOver(*it) && it->status.derived_from.empty() &&
      it->status.tier == model::Tier::kDevice) {
    it->lent = it->loans > 0;
    it->status.kept = it->lent;
  }
  return StatusOf(*it);
}

bool VolumeStore::OverwriteOldest(const std::string& scan) {
  model::VolumeStatus status;
  Memory gone;
  {
    MutexLock lock(mutex_);
    auto it = records_.begin();
    while (it != records_.end() && !(it->status.scan == scan && IsTheRings(it->status))) ++it;
    if (it == records_.end()) return false;
    gone = Overwrite(*it);
    status = StatusOf(*it);
  }
  LetGo(status.name, std::move(gone));
  Changed(status);
  return true;
}

VolumeStore::Memory VolumeStore::Overwrite(Record& record) {
  Memory gone = Leave(record, model::VolumeState::kDiscarded,
                      "overwritten by a newer volume of a LIVE scan", "overwritten");
  ++TotalsOf(record).overwritten;
  return gone;
}

void VolumeStore::KeepNewest(const std::string& scan, int64_t count) {
  std::vector<model::VolumeStatus> overwritten;
  std::vector<Memory> leaving;
  {
    // Counted and given up under one lock: one that is held in between is one less to give up.
    MutexLock lock(mutex_);
    int64_t over[2] = {-count, -count};  // volumes, raw ones
    const auto is_the_rings = [&](const Record& record) {
      return record.status.scan == scan && IsTheRings(record.status);
    };
    for (const Record& record : records_) over[record.status.is_raw] += is_the_rings(record);
    for (auto next = records_.begin(); next != records_.end();) {
      Record& record = *next++;  // it may leave
      if (!is_the_rings(record) || over[record.status.is_raw]-- <= 0) continue;
      leaving.push_back(Overwrite(record));
      overwritten.push_back(StatusOf(record));
    }
  }
  for (size_t i = 0; i < leaving.size(); ++i) LetGo(overwritten[i].name, std::move(leaving[i]));
  for (const model::VolumeStatus& status : overwritten) Changed(status);
}

void VolumeStore::KeepAll(const std::string& scan) {
  MutexLock lock(mutex_);
  scans_[scan].ring_over = true;
  for (Record& record : records_) {
    if (record.status.scan == scan && model::InMemory(record.status.state))
      record.status.kept = true;
  }
}

}  // namespace octavo::volume
