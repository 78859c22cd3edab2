#include "server/volume/volume_tiers.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
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

// Nothing throws once the entry is marked.
VolumeMove VolumeTiers::Begin(VolumeEntry& entry, model::Move kind, VolumeNews& news) {
  VolumeHold hold = table_.HoldMemory(entry);
  entry.moving = kind;
  if (kind != model::Move::kNone) news.Add(entry);
  return VolumeMove(&table_, kind, std::move(hold));
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginSpill(const std::string& name,
                                                   const ClientVerb* asked) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  OCTAVO_RETURN_IF_ERROR(table_.CheckLeases(*entry, asked));
  // The move would free no memory and would take the volume from processes that map it.
  OCTAVO_RETURN_IF_ERROR(table_.CheckExports(*entry, asked));
  return Begin(*entry, model::Move::kSpilling, news);
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginSpillOldest(const std::string& scan) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  const std::set<std::string> mapped = table_.Mapped();
  for (const auto& [number, entry] : table_.InMemoryOf(scan)) {
    if (entry->state == model::VolumeState::kHeld && entry->tier == model::Tier::kDevice &&
        entry->kept && entry->moving == model::Move::kNone && entry->about->derived_from.empty() &&
        mapped.count(entry->name()) == 0)
      return Begin(*entry, model::Move::kSpilling, news);
  }
  return absl::NotFoundError(
      absl::StrCat(scan, " holds no volume on the device that could be moved"));
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginRestore(const std::string& name,
                                                     const ClientVerb* asked) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  return Begin(
      *entry, entry->bytes.spilled == nullptr ? model::Move::kNone : model::Move::kRestoring, news);
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginRelocate(const std::string& name) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  if (entry->bytes.slot == nullptr) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(name, " is not on its device (tier ", Name(entry->tier), ")")),
        {.reason = Reason::kSpilled, .field = "name", .numbers = {{"tier", Name(entry->tier)}}});
  }
  return Begin(*entry, model::Move::kRelocating, news);
}

}  // namespace octavo::volume
