// Volumes on their way from tier to tier, and those that never were on a device.

#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/model/volume_states.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {

absl::StatusOr<PinnedVolume> VolumeStore::BeginSpillOf(Record& record) {
  model::VolumeStatus& status = record.status;
  if (!model::IsComplete(status.state)) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(status.name, " is ", Name(status.state),
                                     "; only HELD and COMMITTING volumes can be moved")),
                    {.reason = Reason::kVolumeState,
                     .field = "name",
                     .numbers = {{"state", Name(status.state)}}});
  }
  if (!status.moving.empty()) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(status.name, " is being moved already (", status.moving, "); ask again")),
        {.reason = Reason::kMoving, .field = "name", .numbers = {{"retryable", "true"}}});
  }
  return PinOf(record, StatusOf(record));
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginSpill(const std::string& name,
                                                     const ClientVerb* asked) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(*it));
  OCTAVO_RETURN_IF_ERROR(CheckLeases(*it, asked));
  OCTAVO_RETURN_IF_ERROR(CheckExports(
      *it, asked));  // it would win no memory, and pull it from under those who look at it
  it->status.moving = "SPILLING";
  return pinned;
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginSpillOldest(const std::string& scan) {
  MutexLock lock(mutex_);
  const std::set<std::string> mapped =
      protections_.mappings == nullptr ? std::set<std::string>() : protections_.mappings->Mapped();
  for (Record& record : records_) {
    const model::VolumeStatus& status = record.status;
    if (status.scan != scan || status.state != model::VolumeState::kHeld ||
        status.tier != model::Tier::kDevice || !status.kept || !status.moving.empty() ||
        !status.derived_from.empty() || mapped.count(status.name) > 0) {
      continue;
    }
    OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(record));
    record.status.moving = "SPILLING";
    return pinned;
  }
  return absl::NotFoundError(
      absl::StrCat(scan, " holds no volume on the device that could be moved"));
}

std::optional<model::VolumeStatus> VolumeStore::EndMove(const std::string& name, Memory made,
                                                        const std::function<void(Record&)>& ended) {
  std::optional<model::VolumeStatus> moved;
  {
    MutexLock lock(mutex_);
    auto found = Find(name);
    if (found.ok()) (*found)->status.moving.clear();
    if (found.ok() && model::IsComplete((*found)->status.state)) {
      Record& record = **found;
      const bool failed = made.slot == nullptr && made.spilled == nullptr;
      if (!failed) {
        std::swap(record.slot, made.slot);
        std::swap(record.spilled, made.spilled);
        record.status.tier = record.slot != nullptr ? model::Tier::kDevice : record.spilled->tier();
        if (record.slot != nullptr) ledger_->Hold(record.slot->charge, name);
      }
      ended(record);
      if (!failed) moved = StatusOf(record);
    }
  }
  LetGo(name, std::move(made));  // what it had before; what was made for nothing
  return moved;
}

void VolumeStore::EndSpill(const std::string& name,
                           absl::StatusOr<std::shared_ptr<const SpilledVolume>> spilled) {
  const absl::Status status = spilled.status();
  const auto moved =
      EndMove(name, {.slot = nullptr, .spilled = std::move(spilled).value_or(nullptr)},
              [&](Record& record) {
                if (!status.ok()) {
                  record.status.last_error = std::string(status.message());
                  return;
                }
                record.status.stripe_bscans = 0;  // in one piece from now on
                record.status.kept = true;        // no slot of a ring any more
              });
  if (moved.has_value()) Changed(*moved);
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginRestore(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(*it));
  if (pinned.spilled != nullptr) it->status.moving = "RESTORING";
  return pinned;
}

void VolumeStore::EndRestore(const std::string& name,
                             absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot, int device) {
  const bool made = slot.ok();
  const auto moved = EndMove(name, {.slot = std::move(slot).value_or(nullptr), .spilled = nullptr},
                             [&](Record& record) {
                               if (!made) return;
                               record.device = device;
                               record.status.device = base::DeviceName(device);
                               record.restored = true;
                             });
  if (moved.has_value()) Changed(*moved);
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginRelocate(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, BeginSpillOf(*it));
  if (pinned.slot == nullptr) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is not on its device (tier ",
                                                               Name(pinned.status.tier), ")")),
                    {.reason = Reason::kSpilled,
                     .field = "name",
                     .numbers = {{"tier", Name(pinned.status.tier)}}});
  }
  it->status.moving = "RELOCATING";
  return pinned;
}

bool VolumeStore::EndRelocate(const std::string& name,
                              absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot) {
  return EndMove(name, {.slot = std::move(slot).value_or(nullptr), .spilled = nullptr},
                 [](Record&) {})
      .has_value();
}

void VolumeStore::AddRecovered(model::VolumeStatus status,
                               std::shared_ptr<const SpilledVolume> spilled) {
  status.recovered = true;
  AddStored(std::move(status), std::move(spilled));
}

void VolumeStore::AddStored(model::VolumeStatus status,
                            std::shared_ptr<const SpilledVolume> spilled) {
  status.state = model::VolumeState::kHeld;
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
    by_name_[status.name] = of_scan_[status.scan][added_] = std::prev(records_.end());
  }
  Changed(status);
}

}  // namespace octavo::volume
