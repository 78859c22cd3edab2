#include "server/volume/volume_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/model/volume_states.h"
#include "server/volume/left_memory.h"

namespace octavo::volume {
namespace {

/// Where a committed volume lies, or why another one has ended: what an error says beside its
/// state.
std::string EndOf(const VolumeEntry& entry) {
  return entry.commit.has_value() ? entry.commit->path : entry.reason;
}

absl::Status HasLeft(const VolumeEntry& entry, const std::string& more = "") {
  return HasLeftMemory(entry.name(), Name(entry.state), entry.reason, more);
}

absl::Status Spilled(const VolumeHold& hold) {
  const model::VolumeStatus& volume = hold.status;
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat(volume.name, " was spilled (tier ",
                                                 Name(volume.tier),
                                                 "); restore it to its device first")),
      {.reason = Reason::kSpilled, .field = "name", .numbers = {{"tier", Name(volume.tier)}}});
}

absl::Status Striped(const VolumeHold& hold) {
  const model::VolumeStatus& volume = hold.status;
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat(
          volume.name, " is striped over ", absl::StrJoin(volume.spread_devices, ", "),
          " and this needs it on one device; SpillVolume and RestoreVolume bring it together on ",
          volume.device, " (ReadVolume and CommitVolume take it as it is)")),
      {.reason = Reason::kStriped,
       .field = "name",
       .numbers = {{"device", volume.device},
                   {"devices", absl::StrCat(hold.slot->stripes.size())},
                   {"retryable", "false"}}});
}

}  // namespace

void VolumeStore::Insert(VolumeEntry entry) {
  model::VolumeStatus status;
  {
    MutexLock lock(table_.mutex());
    status = table_.Changed(table_.Insert(std::move(entry)));
  }
  table_.Tell(status);
}

void VolumeStore::Add(const model::VolumeStatus& volume, std::shared_ptr<memory::VolumeSlot> slot,
                      int device) {
  VolumeEntry entry = MakeEntry(volume);
  entry.stripe_bscans = slot->stripe_bscans;
  entry.bytes.slot = std::move(slot);
  entry.device = device;
  Insert(std::move(entry));
}

void VolumeStore::AddStored(const model::VolumeStatus& volume,
                            std::shared_ptr<const SpilledVolume> spilled) {
  VolumeEntry entry = MakeEntry(volume);
  entry.state = model::VolumeState::kHeld;
  entry.tier = spilled->tier();
  entry.bytes.spilled = std::move(spilled);
  entry.kept = true;
  // The devices of an earlier process may be others: what it left is restored to the first.
  if (!volume.recovered) entry.device = table_.ledger().names().Find(volume.device).value_or(0);
  const TimePoint now = table_.Now();
  entry.Live(now);
  entry.sealed_ns = entry.living_ns;
  if (volume.recovered) entry.HeldBefore(now, volume.held_unix_ns, volume.expires_seconds);
  Insert(std::move(entry));
}

UntoldSeal VolumeStore::Seal(const model::VolumeStatus& final_status, bool kept) {
  MutexLock lock(table_.mutex());
  const auto found = table_.Find(final_status.name);
  if (!found.ok() ||
      !CheckTransition(final_status.name, (*found)->state, model::VolumeState::kHeld).ok())
    return {};
  VolumeEntry& entry = **found;
  Describe(final_status, &entry);
  entry.state = model::VolumeState::kHeld;
  entry.kept = kept;
  entry.of_ring = !kept;
  entry.Live(table_.Now());
  entry.sealed_ns = entry.living_ns;
  table_.totals().missing_ascans += final_status.missing_ascans;
  for (const auto id : entry.bytes.slot->charges()) table_.ledger().Hold(id, entry.name());
  return {&table_, table_.Changed(entry)};
}

void VolumeStore::Fail(const std::string& name, Reason code, const std::string& reason) {
  model::VolumeStatus status;
  VolumeBytes gone;
  {
    MutexLock lock(table_.mutex());
    const auto found = table_.Find(name);
    if (!found.ok() || !CheckTransition(name, (*found)->state, model::VolumeState::kFailed).ok())
      return;
    gone = table_.Leave(**found, model::VolumeState::kFailed, code, reason, "failed");
    status = table_.Changed(**found);
  }
  table_.LetGo(status.name, std::move(gone));
  table_.Tell(status);
}

absl::StatusOr<model::VolumeStatus> VolumeStore::Discard(const std::string& name, Reason code,
                                                         const std::string& reason,
                                                         const ClientVerb* asked) {
  model::VolumeStatus status;
  VolumeBytes gone;
  {
    MutexLock lock(table_.mutex());
    OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
    OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
    OCTAVO_RETURN_IF_ERROR(
        CheckTransition(name, entry->state, model::VolumeState::kDiscarded, EndOf(*entry)));
    OCTAVO_RETURN_IF_ERROR(table_.CheckLeases(*entry, asked));
    OCTAVO_RETURN_IF_ERROR(table_.CheckExports(*entry, asked));
    gone = table_.Leave(*entry, model::VolumeState::kDiscarded, code, reason, "discarded");
    ++table_.TotalsOf(*entry).discarded;
    status = table_.Changed(*entry);
  }
  table_.LetGo(status.name, std::move(gone));
  table_.Tell(status);
  return status;
}

void VolumeStore::AddSkippedChain(const std::string& name, model::SkippedChain skipped) {
  model::VolumeStatus status;
  {
    MutexLock lock(table_.mutex());
    const auto found = table_.Find(name);
    if (!found.ok() || !model::InMemory((*found)->state)) return;
    (*found)->skipped_chains.push_back(std::move(skipped));
    status = table_.Changed(**found);
  }
  table_.TellDetails(status);
}

absl::StatusOr<VolumeCommit> VolumeStore::BeginCommit(const std::string& name,
                                                      const ClientVerb* asked) {
  VolumeCommit commit;  // before the lock: if what follows throws, it ends after it
  model::VolumeStatus status;
  {
    std::string volume = name;
    MutexLock lock(table_.mutex());
    OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
    OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
    OCTAVO_RETURN_IF_ERROR(
        CheckTransition(name, entry->state, model::VolumeState::kCommitting, EndOf(*entry)));
    OCTAVO_RETURN_IF_ERROR(table_.CheckLeases(*entry, asked));
    entry->state = model::VolumeState::kCommitting;
    entry->last_error.clear();
    commit = VolumeCommit(&table_, std::move(volume));
    status = table_.Changed(*entry);
  }
  table_.Tell(status);
  return commit;
}

absl::StatusOr<model::VolumeStatus> VolumeStore::Get(const std::string& name) {
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(const VolumeEntry* const entry, table_.Find(name));
  return table_.StatusOf(*entry);
}

std::vector<model::VolumeStatus> VolumeStore::List(const VolumeQuery& query) {
  MutexLock lock(table_.mutex());
  table_.Purge();
  std::vector<model::VolumeStatus> list;
  // Of one scan in memory there may be few among many. A job's volumes may be listed under a scan.
  const VolumeTable::ByNumber& among = query.in_memory && absl::StartsWith(query.parent, "scans/")
                                           ? table_.InMemoryOf(query.parent)
                                           : table_.All();
  for (auto it = among.upper_bound(query.after); it != among.end() && list.size() < query.most;
       ++it) {
    const VolumeEntry& entry = *it->second;
    if ((query.parent.empty() || model::ParentOf(*entry.about) == query.parent) &&
        (!query.in_memory || model::InMemory(entry.state)))
      list.push_back(table_.StatusOf(entry));
  }
  return list;
}

// -- holds

absl::StatusOr<VolumeHold> VolumeStore::Hold(const std::string& name, HoldKind kind,
                                             int64_t hold_slots) {
  switch (kind) {
    case HoldKind::kNone: return VolumeHold();
    case HoldKind::kMemory: return HoldMemory(name);
    case HoldKind::kRead: return HoldOpen(name);
    case HoldKind::kDevice: return HoldOnDevice(name);
    case HoldKind::kLoan: return ring_.Lend(name, hold_slots);
  }
  return absl::InternalError("no such kind of hold");
}

absl::StatusOr<VolumeHold> VolumeStore::HoldMemory(const std::string& name) {
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(const VolumeEntry* const entry, table_.Find(name));
  if (entry->state == model::VolumeState::kAcquiring) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(name, " is still being acquired; wait until it is HELD")),
                    {.reason = Reason::kVolumeState,
                     .field = "name",
                     .numbers = {{"state", Name(entry->state)}}});
  }
  if (!model::InMemory(entry->state)) {
    return HasLeft(*entry,
                   entry->commit.has_value() ? absl::StrCat(" (", entry->commit->path, ")") : "");
  }
  return table_.HoldMemory(*entry);
}

absl::StatusOr<VolumeHold> VolumeStore::HoldOpen(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(VolumeHold hold, HoldMemory(name));
  while (hold.spilled != nullptr) {
    auto opened = hold.spilled->Open();
    if (opened.ok()) {
      hold.cursor = *std::move(opened);
      break;
    }
    OCTAVO_ASSIGN_OR_RETURN(VolumeHold now, HoldMemory(name));
    if (now.spilled == hold.spilled) return opened.status();
    hold = std::move(now);
  }
  hold.kind = HoldKind::kRead;
  return hold;
}

absl::StatusOr<VolumeHold> VolumeStore::HoldOnDevice(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(VolumeHold hold, HoldMemory(name));
  if (hold.slot == nullptr) return Spilled(hold);
  if (!hold.slot->stripes.empty()) return Striped(hold);
  hold.kind = HoldKind::kDevice;
  return hold;
}

absl::StatusOr<session::Lease> VolumeStore::AcquireLease(const session::LeaseRequest& request) {
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(const VolumeEntry* const entry, table_.Find(request.resource));
  if (entry->state != model::VolumeState::kHeld) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        entry->name(), " is ", Name(entry->state),
                        entry->reason.empty() ? "" : absl::StrCat(" (", entry->reason, ")"),
                        "; only HELD volumes can be leased")),
                    {.reason = Reason::kVolumeState,
                     .field = "resource",
                     .numbers = {{"state", Name(entry->state)}}});
  }
  return table_.leases()->TryAcquire(request);
}

absl::Status VolumeStore::WhileMappable(const VolumeHold& hold, bool borrowed,
                                        const std::function<absl::Status()>& act) {
  const std::string& name = hold.status.name;
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(const VolumeEntry* const entry, table_.Find(name));
  if (!model::IsComplete(entry->state)) return HasLeft(*entry);
  if (entry->bytes.slot != hold.slot || entry->moving == model::Move::kSpilling) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(name, " is being moved; ask again")),
        {.reason = Reason::kMoving, .field = "name", .numbers = {{"retryable", "true"}}});
  }
  if (!entry->kept || (!borrowed && entry->lent && !entry->marked)) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(name,
                                                   " is a volume of a LIVE scan's ring, which may "
                                                   "overwrite it; hold it first (HoldVolume)")),
        {.reason = Reason::kExportNotHeld, .field = "name", .numbers = {}});
  }
  return act();
}

// -- counts

VolumeStore::Counts VolumeStore::Count() {
  MutexLock lock(table_.mutex());
  const int64_t now = table_.NowNs();
  Counts counts;
  counts.finished = table_.totals().finished;
  counts.missing_ascans = table_.totals().missing_ascans;
  for (const VolumeEntry& entry : table_.InMemory()) {
    ++counts.by_state[Name(entry.state)];
    if (entry.state != model::VolumeState::kAcquiring) ++counts.by_tier[Name(entry.tier)];
    if (entry.bytes.mirror != nullptr) {
      ++counts.mirrors;
      counts.mirror_bytes += entry.bytes.mirror->bytes();
    } else if (entry.state == model::VolumeState::kHeld && entry.tier != model::Tier::kDisk &&
               entry.kept && !entry.lent) {
      ++counts.unmirrored;
      counts.unmirrored_bytes += entry.about->bytes;
    }
    if (entry.sealed_ns != 0) {
      counts.oldest_held_seconds =
          std::max(counts.oldest_held_seconds, static_cast<double>(now - entry.sealed_ns) * 1e-9);
    }
  }
  return counts;
}

VolumeStore::ScanCounts VolumeStore::CountOf(const std::string& scan) {
  MutexLock lock(table_.mutex());
  ScanCounts counts;
  const auto& scans = table_.totals().scans;
  if (const auto it = scans.find(scan); it != scans.end()) {
    const VolumeTable::ScanTotals& totals = it->second;
    counts.committed = totals.committed;
    counts.discarded = totals.discarded;
    counts.overwritten = totals.overwritten;
    counts.commit_failures = totals.commit_failures;
    counts.expired = totals.expired;
  }
  for (const auto& [number, entry] : table_.InMemoryOf(scan)) {
    const bool raw = entry->about->is_raw;
    counts.in_memory.push_back(entry->name());
    counts.held += entry->state != model::VolumeState::kAcquiring && !raw;
    counts.spilled += entry->tier != model::Tier::kDevice;
    counts.kept_slots += entry->kept && !raw && entry->InSlot();
  }
  return counts;
}

std::set<std::string> VolumeStore::ScansInMemory() {
  MutexLock lock(table_.mutex());
  std::set<std::string> scans;
  for (const auto& [scan, entries] : table_.InMemoryByScan()) scans.insert(scan);
  return scans;
}

std::vector<std::string> VolumeStore::NamesOfSession(const std::string& session) {
  MutexLock lock(table_.mutex());
  std::vector<std::string> names;
  for (const auto& [number, entry] : table_.InMemoryOfSession(session))
    names.push_back(entry->name());
  return names;
}

int64_t VolumeStore::MappedOf(const std::string& scan) {
  MutexLock lock(table_.mutex());
  const std::set<std::string> mapped = table_.Mapped();
  const VolumeTable::ByNumber& entries = table_.InMemoryOf(scan);
  return std::count_if(entries.begin(), entries.end(), [&](const auto& numbered) {
    const VolumeEntry& entry = *numbered.second;
    return entry.tier == model::Tier::kDevice && mapped.count(entry.name()) > 0;
  });
}

void VolumeStore::ForgetScan(const std::string& scan) {
  MutexLock lock(table_.mutex());
  table_.totals().scans.erase(scan);
}

}  // namespace octavo::volume
