#include "server/volume/volume_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/model/volume_states.h"

namespace octavo::volume {
namespace {

constexpr int64_t kTombstoneNs = int64_t{600} * 1'000'000'000;
constexpr size_t kMostTombstones = 10'000;

bool Allowed(model::VolumeState from, model::VolumeState to) {
  switch (from) {
    case model::VolumeState::kAcquiring:
      return to == model::VolumeState::kHeld || to == model::VolumeState::kFailed;
    case model::VolumeState::kHeld:
      return to == model::VolumeState::kCommitting || to == model::VolumeState::kDiscarded;
    case model::VolumeState::kCommitting:
      return to == model::VolumeState::kCommitted || to == model::VolumeState::kHeld;
    default: return false;
  }
}

}  // namespace

absl::Status CheckTransition(const std::string& volume, model::VolumeState from,
                             model::VolumeState to) {
  if (Allowed(from, to)) return absl::OkStatus();
  return WithInfo(absl::FailedPreconditionError(
                      absl::StrCat(volume, " is ", Name(from), " and cannot become ", Name(to))),
                  {.reason = Reason::kVolumeState,
                   .field = "name",
                   .numbers = {{"state", Name(from)}, {"wanted_state", Name(to)}}});
}

absl::StatusOr<VolumeStore::Records::iterator> VolumeStore::Find(const std::string& name) {
  auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    return WithInfo(
        absl::NotFoundError(absl::StrCat(
            "no volume ", name,
            " (of those that left memory the last 10000 are remembered for ten minutes)")),
        {.reason = Reason::kNoVolume, .field = "name", .numbers = {}});
  }
  return it->second;
}

model::VolumeStatus VolumeStore::StatusOf(const Record& record) const {
  model::VolumeStatus status = record.status;
  if (record.sealed_ns > 0 && model::InMemory(status.state)) {
    const int64_t now = clock_->Now().monotonic_ns;
    status.held_seconds = static_cast<double>(now - record.sealed_ns) * 1e-9;
    if (status.ttl_seconds > 0 && !status.marked) {
      status.expires_seconds =
          std::max(1e-3, status.ttl_seconds - static_cast<double>(now - record.living_ns) * 1e-9);
    }
  }
  return status;
}

void VolumeStore::Changed(const model::VolumeStatus& status) noexcept {
  for (VolumeObserver* const observer : observers_) {
    try {
      observer->OnVolumeChanged(status);
    } catch (...) {
      Log(LogLevel::kError, "a change of a volume was not told to all",
          {{"volume", status.name}, {"error", base::StatusOfException().ToString()}});
    }
  }
}

void VolumeStore::Purge() {
  const int64_t now = clock_->Now().monotonic_ns;
  while (!gone_.empty() &&
         (now - gone_.front().gone_ns > kTombstoneNs || gone_.size() > kMostTombstones)) {
    by_name_.erase(gone_.front().status.name);
    gone_.pop_front();
  }
}

void VolumeStore::LetGo(const std::string& name, Memory memory) noexcept {
  try {
    if (memory.slot != nullptr && protections_.mappings != nullptr)
      protections_.mappings->Left(name, memory.slot->charge);
  } catch (...) {
    Log(LogLevel::kError, "who maps a volume's memory was not told that it has left",
        {{"volume", name}, {"error", base::StatusOfException().ToString()}});
  }
  memory.slot.reset();
  if (memory.spilled != nullptr) memory.spilled->Remove();
}

PinnedVolume VolumeStore::PinOf(const Record& record, model::VolumeStatus status) {
  return {.status = std::move(status),
          .slot = record.slot,
          .device = record.device,
          .spilled = record.spilled};
}

VolumeStore::Memory VolumeStore::Leave(Record& record, model::VolumeState to,
                                       const std::string& reason, const char* finished) {
  record.status.held_seconds = StatusOf(record).held_seconds;
  record.status.state = to;
  record.status.reason = reason;
  record.gone_ns = clock_->Now().monotonic_ns;
  record.status.recovered_pattern = nullptr;
  record.status.origin = nullptr;  // megabytes, and thousands of these are remembered
  record.status.job_parameters = {};
  ++finished_[finished];
  // Nobody ever waits for a lease of a volume: nobody is called back here.
  if (protections_.leases != nullptr) protections_.leases->Forget(record.status.name);
  const auto scan = of_scan_.find(record.status.scan);
  scan->second.erase(record.number);
  if (scan->second.empty()) of_scan_.erase(scan);
  gone_.splice(gone_.end(), records_, by_name_.at(record.status.name));
  return {.slot = std::move(record.slot), .spilled = std::move(record.spilled)};
}

void VolumeStore::Add(model::VolumeStatus status, std::shared_ptr<memory::VolumeSlot> slot,
                      int device) {
  status.state = model::VolumeState::kAcquiring;
  {
    MutexLock lock(mutex_);
    Purge();
    records_.push_back(
        {.number = ++added_, .status = status, .slot = std::move(slot), .device = device});
    by_name_[status.name] = of_scan_[status.scan][added_] = std::prev(records_.end());
  }
  Changed(status);
}

void VolumeStore::Seal(const model::VolumeStatus& final_status, bool kept) {
  model::VolumeStatus status;
  {
    MutexLock lock(mutex_);
    auto it = Find(final_status.name);
    if (!it.ok() ||
        !CheckTransition(final_status.name, (*it)->status.state, model::VolumeState::kHeld).ok())
      return;
    Record& record = **it;
    record.status = final_status;
    record.status.state = model::VolumeState::kHeld;
    record.status.kept = kept;
    record.sealed_ns = record.living_ns = clock_->Now().monotonic_ns;
    missing_ascans_ += final_status.missing_ascans;
    for (const auto id : record.slot->charges()) ledger_->Hold(id, record.status.name);
    status = StatusOf(record);
  }
  Changed(status);
}

void VolumeStore::Fail(const std::string& name, const std::string& reason) {
  model::VolumeStatus status;
  Memory gone;
  {
    MutexLock lock(mutex_);
    auto it = Find(name);
    if (!it.ok() || !CheckTransition(name, (*it)->status.state, model::VolumeState::kFailed).ok())
      return;
    gone = Leave(**it, model::VolumeState::kFailed, reason, "failed");
    status = StatusOf(**it);
  }
  LetGo(status.name, std::move(gone));
  Changed(status);
}

absl::StatusOr<model::VolumeStatus> VolumeStore::Get(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  return StatusOf(*it);
}

std::vector<model::VolumeStatus> VolumeStore::List(const VolumeQuery& query) {
  MutexLock lock(mutex_);
  Purge();
  std::vector<const Record*> all;
  all.reserve(records_.size() + gone_.size());
  const auto take = [&](const Records& records) {
    for (const Record& record : records) {
      if (query.scan.empty() || record.status.scan == query.scan) all.push_back(&record);
    }
  };
  if (!query.in_memory) take(gone_);
  take(records_);
  std::sort(all.begin(), all.end(),
            [](const Record* a, const Record* b) { return a->number < b->number; });
  std::vector<model::VolumeStatus> list;
  list.reserve(all.size());
  for (const Record* record : all) list.push_back(StatusOf(*record));
  return list;
}

absl::StatusOr<PinnedVolume> VolumeStore::Pin(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, PinAnyTier(name));
  if (pinned.slot != nullptr && pinned.slot->stripes.empty()) return pinned;
  if (pinned.slot != nullptr) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            name, " is striped over ", absl::StrJoin(pinned.status.spread_devices, ", "),
            " and this needs it on one device; SpillVolume and RestoreVolume bring it together on ",
            pinned.status.device, " (ReadVolume and CommitVolume take it as it is)")),
        {.reason = Reason::kStriped,
         .field = "name",
         .numbers = {{"device", pinned.status.device},
                     {"devices", absl::StrCat(pinned.slot->stripes.size())},
                     {"retryable", "false"}}});
  }
  return WithInfo(absl::FailedPreconditionError(
                      absl::StrCat(name, " was spilled (tier ", Name(pinned.status.tier),
                                   "); restore it to its device first (RestoreVolume)")),
                  {.reason = Reason::kSpilled,
                   .field = "name",
                   .numbers = {{"tier", Name(pinned.status.tier)}}});
}

absl::StatusOr<PinnedVolume> VolumeStore::PinAnyTier(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  const model::VolumeState state = it->status.state;
  if (state == model::VolumeState::kAcquiring) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(name, " is still being acquired; wait until it is HELD")),
        {.reason = Reason::kVolumeState, .field = "name", .numbers = {{"state", Name(state)}}});
  }
  if (!model::InMemory(state)) {
    return WithInfo(
        absl::NotFoundError(absl::StrCat(
            name, " has left memory: ", Name(state), it->status.reason.empty() ? "" : ", ",
            it->status.reason,
            it->status.has_commit ? absl::StrCat(" (", it->status.commit.path, ")") : "")),
        {.reason = Reason::kVolumeGone, .field = "name", .numbers = {{"state", Name(state)}}});
  }
  return PinOf(*it, StatusOf(*it));
}

absl::StatusOr<PinnedVolume> VolumeStore::OpenAnyTier(
    const std::string& name, std::unique_ptr<storage::SpillCursor>* cursor) {
  OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, PinAnyTier(name));
  while (pinned.spilled != nullptr) {
    auto opened = pinned.spilled->Open();
    if (opened.ok()) {
      *cursor = *std::move(opened);
      break;
    }
    OCTAVO_ASSIGN_OR_RETURN(PinnedVolume now, PinAnyTier(name));
    if (now.spilled == pinned.spilled) return opened.status();
    pinned = std::move(now);
  }
  return pinned;
}

// -- verbs and what protects from them

absl::Status VolumeStore::CheckLeases(const Record& record, const ClientVerb* asked) {
  if (asked == nullptr) return absl::OkStatus();
  if (asked->of_orphans && !record.status.orphaned) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            record.status.name, " is no orphan: ", record.status.session, " has come back")),
        {.reason = Reason::kAdopted, .field = "name", .numbers = {}});
  }
  if (protections_.leases == nullptr) return absl::OkStatus();
  return protections_.leases->CheckNobodyElse(record.status.name, asked->lease_token);
}

absl::Status VolumeStore::CheckExports(const Record& record, const ClientVerb* asked) {
  if (asked == nullptr || asked->detach_exports || protections_.mappings == nullptr)
    return absl::OkStatus();
  return protections_.mappings->CheckFree(record.status.name);
}

absl::StatusOr<session::Lease> VolumeStore::AcquireLease(const session::LeaseRequest& request) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(request.resource));
  const model::VolumeStatus& status = it->status;
  if (status.state != model::VolumeState::kHeld) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        status.name, " is ", Name(status.state),
                        status.reason.empty() ? "" : absl::StrCat(" (", status.reason, ")"),
                        "; only HELD volumes can be leased")),
                    {.reason = Reason::kVolumeState,
                     .field = "resource",
                     .numbers = {{"state", Name(status.state)}}});
  }
  return protections_.leases->TryAcquire(request);
}

absl::Status VolumeStore::WhileMappable(const PinnedVolume& pinned, bool borrowed,
                                        const std::function<absl::Status()>& act) {
  const std::string& name = pinned.status.name;
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const auto it, Find(name));
  const model::VolumeStatus& status = it->status;
  if (!model::IsComplete(status.state)) {
    return WithInfo(
        absl::NotFoundError(absl::StrCat(name, " has left memory: ", Name(status.state),
                                         status.reason.empty() ? "" : ", ", status.reason)),
        {.reason = Reason::kVolumeGone,
         .field = "name",
         .numbers = {{"state", Name(status.state)}}});
  }
  if (it->slot != pinned.slot || status.moving == "SPILLING") {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(name, " is being moved; ask again")),
        {.reason = Reason::kMoving, .field = "name", .numbers = {{"retryable", "true"}}});
  }
  if (!status.kept || (!borrowed && it->lent && !status.marked)) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(name,
                                                   " is a volume of a LIVE scan's ring, which may "
                                                   "overwrite it; hold it first (HoldVolume)")),
        {.reason = Reason::kExportNotHeld, .field = "name", .numbers = {}});
  }
  return act();
}

absl::StatusOr<model::VolumeStatus> VolumeStore::Discard(const std::string& name,
                                                         const std::string& reason,
                                                         const ClientVerb* asked) {
  model::VolumeStatus status;
  Memory gone;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
    OCTAVO_RETURN_IF_ERROR(CheckTransition(name, it->status.state, model::VolumeState::kDiscarded));
    OCTAVO_RETURN_IF_ERROR(CheckLeases(*it, asked));
    OCTAVO_RETURN_IF_ERROR(CheckExports(*it, asked));
    gone = Leave(*it, model::VolumeState::kDiscarded, reason, "discarded");
    ++TotalsOf(*it).discarded;
    status = StatusOf(*it);
  }
  LetGo(status.name, std::move(gone));
  Changed(status);
  return status;
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginCommit(const std::string& name,
                                                      const ClientVerb* asked) {
  PinnedVolume pinned;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
    OCTAVO_RETURN_IF_ERROR(
        CheckTransition(name, it->status.state, model::VolumeState::kCommitting));
    OCTAVO_RETURN_IF_ERROR(CheckLeases(*it, asked));
    pinned = PinOf(*it, StatusOf(*it));
    for (model::VolumeStatus* status : {&it->status, &pinned.status}) {
      status->state = model::VolumeState::kCommitting;
      status->last_error.clear();
    }
  }
  Changed(pinned.status);
  return pinned;
}

void VolumeStore::EndCommit(const std::string& name,
                            const absl::StatusOr<storage::CommitOutcome>& outcome) {
  model::VolumeStatus status;
  Memory gone;
  {
    MutexLock lock(mutex_);
    auto found = Find(name);
    if (!found.ok() || (*found)->status.state != model::VolumeState::kCommitting) return;
    Record& record = **found;
    if (outcome.ok()) {
      record.status.has_commit = true;
      record.status.commit = *outcome;
      ++TotalsOf(record).committed;
      gone = Leave(record, model::VolumeState::kCommitted, "", "committed");
    } else {
      record.status.state = model::VolumeState::kHeld;
      record.status.kept = true;  // somebody wanted it: LIVE must not overwrite it now
      record.living_ns = clock_->Now().monotonic_ns;  // nor its time to live end it in this moment
      record.warned = false;
      record.status.last_error = std::string(outcome.status().message());
      ++TotalsOf(record).commit_failures;
    }
    status = StatusOf(record);
  }
  LetGo(status.name, std::move(gone));
  Changed(status);
}

VolumeStore::Counts VolumeStore::Count() {
  MutexLock lock(mutex_);
  Counts counts;
  counts.finished = finished_;
  counts.missing_ascans = missing_ascans_;
  for (const Record& record : records_) {
    if (!model::InMemory(record.status.state)) continue;
    ++counts.by_state[Name(record.status.state)];
    if (record.status.state != model::VolumeState::kAcquiring)
      ++counts.by_tier[Name(record.status.tier)];
    counts.oldest_held_seconds =
        std::max(counts.oldest_held_seconds, StatusOf(record).held_seconds);
  }
  return counts;
}

VolumeStore::ScanCounts VolumeStore::CountOf(const std::string& scan) {
  MutexLock lock(mutex_);
  ScanCounts counts;
  if (auto it = scans_.find(scan); it != scans_.end()) counts = it->second;
  const auto records = of_scan_.find(scan);
  if (records == of_scan_.end()) return counts;
  for (const auto& [number, place] : records->second) {
    const Record& record = *place;
    counts.in_memory.push_back(record.status.name);
    counts.held += record.status.state != model::VolumeState::kAcquiring && !record.status.is_raw;
    counts.spilled += record.status.tier != model::Tier::kDevice;
    counts.kept_slots += record.status.kept && !record.status.is_raw && record.InSlot();
  }
  return counts;
}

std::set<std::string> VolumeStore::ScansInMemory() {
  MutexLock lock(mutex_);
  std::set<std::string> scans;
  for (const auto& [scan, records] : of_scan_) scans.insert(scan);
  return scans;
}

int64_t VolumeStore::MappedOf(const std::string& scan) {
  MutexLock lock(mutex_);
  const std::set<std::string> mapped =
      protections_.mappings == nullptr ? std::set<std::string>() : protections_.mappings->Mapped();
  return std::count_if(records_.begin(), records_.end(), [&](const Record& record) {
    return record.status.scan == scan && record.status.tier == model::Tier::kDevice &&
           mapped.count(record.status.name) > 0;
  });
}

VolumeStore::ScanCounts& VolumeStore::TotalsOf(const Record& record) {
  const model::VolumeStatus& status = record.status;
  return status.recovered || !absl::StartsWith(status.scan, "scans/") ? others_
                                                                      : scans_[status.scan];
}

void VolumeStore::ForgetScan(const std::string& scan) {
  MutexLock lock(mutex_);
  scans_.erase(scan);
}

}  // namespace octavo::volume
