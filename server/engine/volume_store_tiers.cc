// Volumes on their way from tier to tier, and those that never were on a device.

#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "server/engine/volume_states.h"
#include "server/engine/volume_store.h"

namespace octavo::engine {

absl::StatusOr<PinnedVolume> VolumeStore::BeginSpillOf(Record& record) {
  VolumeStatus& status = record.status;
  if (!IsComplete(status.state)) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(status.name, " is ", Name(status.state), "; only HELD volumes can be moved")),
                    {.reason = "VOLUME_STATE", .field = "name", .numbers = {{"state", Name(status.state)}}});
  }
  if (!status.moving.empty()) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(status.name, " is being moved already (", status.moving, "); ask again")),
                    {.reason = "MOVING", .field = "name", .numbers = {{"retryable", "true"}}});
  }
  return PinOf(record, StatusOf(record));
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginSpill(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(*it));
  it->status.moving = "SPILLING";
  return pinned;
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginSpillOldest(const std::string& scan) {
  MutexLock lock(mutex_);
  // Under the lock: who comes to map one from here on sees that it is being moved.
  const std::set<std::string> mapped = mapped_();
  for (Record& record : records_) {
    const VolumeStatus& status = record.status;
    if (status.scan != scan || status.state != VolumeState::kHeld || status.tier != Tier::kDevice || !status.kept || !status.moving.empty() ||
        !status.derived_from.empty() || mapped.count(status.name) > 0) {
      continue;
    }
    OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(record));
    record.status.moving = "SPILLING";
    return pinned;
  }
  return absl::NotFoundError(absl::StrCat(scan, " holds no volume on the device that could be moved"));
}

void VolumeStore::EndSpill(const std::string& name, absl::StatusOr<std::shared_ptr<const SpilledVolume>> spilled) {
  VolumeStatus status;
  Memory gone;
  {
    MutexLock lock(mutex_);
    auto found = Find(name);
    if (found.ok()) (*found)->status.moving.clear();
    const bool here = found.ok() && IsComplete((*found)->status.state);
    if (!spilled.ok()) {
      if (here) (*found)->status.last_error = std::string(spilled.status().message());
      return;
    }
    if (here) {
      Record& record = **found;
      gone = {.slot = std::move(record.slot), .spilled = std::move(record.spilled)};
      record.slot = nullptr;
      record.spilled = *std::move(spilled);
      record.status.tier = record.spilled->tier();
      record.status.stripe_bscans = 0;  // in one piece from now on
      record.status.kept = true;        // no slot of a ring any more
      status = StatusOf(record);
    } else {
      gone.spilled = *std::move(spilled);
    }
  }
  gone.LetGo();
  if (!status.name.empty()) on_change_(status);
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginRestore(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(*it));
  if (pinned.spilled != nullptr) it->status.moving = "RESTORING";
  return pinned;
}

void VolumeStore::EndRestore(const std::string& name, absl::StatusOr<std::shared_ptr<VolumeSlot>> slot, int device) {
  VolumeStatus status;
  Memory gone;
  {
    MutexLock lock(mutex_);
    auto found = Find(name);
    if (found.ok()) (*found)->status.moving.clear();
    const bool here = found.ok() && IsComplete((*found)->status.state);
    if (!slot.ok()) return;
    if (here) {
      Record& record = **found;
      gone.spilled = std::move(record.spilled);
      record.spilled = nullptr;
      record.slot = *std::move(slot);
      record.device = device;
      record.status.tier = Tier::kDevice;
      ledger_->Hold(record.slot->charge, name);
      status = StatusOf(record);
    } else {
      gone.slot = *std::move(slot);
    }
  }
  gone.LetGo();
  if (!status.name.empty()) on_change_(status);
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginRelocate(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(*it));
  if (pinned.slot == nullptr) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is not on its device (tier ", Name(pinned.status.tier), ")")),
                    {.reason = "SPILLED", .field = "name", .numbers = {{"tier", Name(pinned.status.tier)}}});
  }
  it->status.moving = "RELOCATING";
  return pinned;
}

bool VolumeStore::EndRelocate(const std::string& name, absl::StatusOr<std::shared_ptr<VolumeSlot>> slot) {
  Memory gone;
  bool moved = false;
  {
    MutexLock lock(mutex_);
    auto found = Find(name);
    if (found.ok()) (*found)->status.moving.clear();
    if (!slot.ok()) return false;
    gone.slot = *std::move(slot);
    if (found.ok() && IsComplete((*found)->status.state)) {
      std::swap((*found)->slot, gone.slot);
      ledger_->Hold((*found)->slot->charge, name);
      moved = true;
    }
  }
  gone.LetGo();
  return moved;
}

void VolumeStore::AddRecovered(VolumeStatus status, std::shared_ptr<const SpilledVolume> spilled) {
  status.recovered = true;
  AddStored(std::move(status), std::move(spilled));
}

void VolumeStore::AddStored(VolumeStatus status, std::shared_ptr<const SpilledVolume> spilled) {
  status.state = VolumeState::kHeld;
  status.tier = spilled->tier();
  status.kept = true;
  int device = 0;
  if (!absl::SimpleAtoi(absl::StripPrefix(status.device, "devices/"), &device)) device = 0;
  {
    MutexLock lock(mutex_);
    const int64_t now = clock_->Now().monotonic_ns;
    records_.push_back({.number = ++added_,
                        .status = status,
                        .slot = nullptr,
                        .device = status.recovered ? 0 : device,
                        .sealed_ns = now,
                        .gone_ns = 0,
                        .living_ns = now});
    records_.back().spilled = std::move(spilled);
    by_name_[status.name] = std::prev(records_.end());
  }
  on_change_(status);
}

}  // namespace octavo::engine
