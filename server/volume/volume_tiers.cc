#include "server/volume/volume_tiers.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/model/volume_states.h"

namespace octavo::volume {

absl::Status VolumeTiers::CheckMovable(const VolumeEntry& entry) {
  if (!model::IsComplete(entry.state)) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(entry.name(), " is ", Name(entry.state),
                                     "; only HELD and COMMITTING volumes can be moved")),
                    {.reason = Reason::kVolumeState,
                     .field = "name",
                     .numbers = {{"state", Name(entry.state)}}});
  }
  if (entry.moving != model::Move::kNone) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(entry.name(), " is being moved already (",
                                                   Name(entry.moving), "); ask again")),
        {.reason = Reason::kMoving, .field = "name", .numbers = {{"retryable", "true"}}});
  }
  return absl::OkStatus();
}

VolumeHold VolumeTiers::Begin(VolumeEntry& entry, model::Move move) {
  VolumeHold hold = table_.HoldMemory(entry);
  entry.moving = move;
  return hold;
}

std::optional<model::VolumeStatus> VolumeTiers::End(
    const std::string& name, VolumeBytes made, const std::function<void(VolumeEntry&)>& ended) {
  std::optional<model::VolumeStatus> moved;
  {
    MutexLock lock(table_.mutex());
    const auto found = table_.Find(name);
    if (found.ok()) (*found)->moving = model::Move::kNone;
    if (found.ok() && model::IsComplete((*found)->state)) {
      VolumeEntry& entry = **found;
      const bool failed = made.slot == nullptr && made.spilled == nullptr;
      if (!failed) {
        std::swap(entry.bytes, made);
        const VolumeBytes& now = entry.bytes;
        entry.tier = now.slot != nullptr ? model::Tier::kDevice : now.spilled->tier();
        if (now.slot != nullptr) table_.ledger().Hold(now.slot->charge, name);
      }
      ended(entry);
      if (!failed) moved = table_.StatusOf(entry);
    }
  }
  table_.LetGo(name, std::move(made));  // what it had before; what was made for nothing
  return moved;
}

absl::StatusOr<VolumeHold> VolumeTiers::BeginSpill(const std::string& name,
                                                   const ClientVerb* asked) {
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  OCTAVO_RETURN_IF_ERROR(table_.CheckLeases(*entry, asked));
  // The move would free no memory and would take the volume from processes that map it.
  OCTAVO_RETURN_IF_ERROR(table_.CheckExports(*entry, asked));
  return Begin(*entry, model::Move::kSpilling);
}

absl::StatusOr<VolumeHold> VolumeTiers::BeginSpillOldest(const std::string& scan) {
  MutexLock lock(table_.mutex());
  const std::set<std::string> mapped = table_.Mapped();
  for (const auto& [number, entry] : table_.InMemoryOf(scan)) {
    if (entry->state == model::VolumeState::kHeld && entry->tier == model::Tier::kDevice &&
        entry->kept && entry->moving == model::Move::kNone && entry->about->derived_from.empty() &&
        mapped.count(entry->name()) == 0)
      return Begin(*entry, model::Move::kSpilling);
  }
  return absl::NotFoundError(
      absl::StrCat(scan, " holds no volume on the device that could be moved"));
}

void VolumeTiers::EndSpill(const std::string& name,
                           absl::StatusOr<std::shared_ptr<const SpilledVolume>> spilled) {
  const absl::Status status = spilled.status();
  const auto moved = End(name, {.slot = nullptr, .spilled = std::move(spilled).value_or(nullptr)},
                         [&](VolumeEntry& entry) {
                           if (!status.ok()) {
                             entry.last_error = std::string(status.message());
                             return;
                           }
                           entry.stripe_bscans = 0;  // in one piece from now on
                           entry.kept = true;        // no slot of a ring any more
                         });
  if (moved.has_value()) table_.Tell(*moved);
}

absl::StatusOr<VolumeHold> VolumeTiers::BeginRestore(const std::string& name) {
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  return Begin(*entry,
               entry->bytes.spilled == nullptr ? model::Move::kNone : model::Move::kRestoring);
}

void VolumeTiers::EndRestore(const std::string& name,
                             absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot, int device) {
  const bool made = slot.ok();
  const auto moved = End(name, {.slot = std::move(slot).value_or(nullptr), .spilled = nullptr},
                         [&](VolumeEntry& entry) {
                           if (!made) return;
                           entry.device = device;
                           entry.device_name = base::DeviceName(device);
                           entry.restored = true;
                         });
  if (moved.has_value()) table_.Tell(*moved);
}

absl::StatusOr<VolumeHold> VolumeTiers::BeginRelocate(const std::string& name) {
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  if (entry->bytes.slot == nullptr) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(name, " is not on its device (tier ", Name(entry->tier), ")")),
        {.reason = Reason::kSpilled, .field = "name", .numbers = {{"tier", Name(entry->tier)}}});
  }
  return Begin(*entry, model::Move::kRelocating);
}

bool VolumeTiers::EndRelocate(const std::string& name,
                              absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot) {
  return End(name, {.slot = std::move(slot).value_or(nullptr), .spilled = nullptr},
             [](VolumeEntry&) {})
      .has_value();
}

}  // namespace octavo::volume
