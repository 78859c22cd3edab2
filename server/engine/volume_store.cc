#include "server/engine/volume_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::engine {
namespace {

constexpr int64_t kTombstoneNs = int64_t{600} * 1'000'000'000;

bool InMemory(VolumeState s) { return s == VolumeState::kAcquiring || s == VolumeState::kHeld || s == VolumeState::kCommitting; }

bool Allowed(VolumeState from, VolumeState to) {
  switch (from) {
    case VolumeState::kAcquiring: return to == VolumeState::kHeld || to == VolumeState::kFailed;
    case VolumeState::kHeld: return to == VolumeState::kCommitting || to == VolumeState::kDiscarded;
    case VolumeState::kCommitting: return to == VolumeState::kCommitted || to == VolumeState::kHeld;
    default: return false;
  }
}

}  // namespace

absl::Status CheckTransition(const std::string& volume, VolumeState from, VolumeState to) {
  if (Allowed(from, to)) return absl::OkStatus();
  return WithInfo(absl::FailedPreconditionError(absl::StrCat(volume, " is ", Name(from), " and cannot become ", Name(to))),
                  {.reason = "VOLUME_STATE", .field = "name", .numbers = {{"state", Name(from)}, {"wanted_state", Name(to)}}});
}

absl::StatusOr<VolumeStore::Records::iterator> VolumeStore::Find(const std::string& name) {
  auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    return WithInfo(absl::NotFoundError(absl::StrCat("no volume ", name, " (one that left memory is remembered for ten minutes)")),
                    {.reason = "NO_VOLUME", .field = "name", .numbers = {}});
  }
  return it->second;
}

VolumeStatus VolumeStore::StatusOf(const Record& record) const {
  VolumeStatus status = record.status;
  if (record.sealed_ns > 0 && InMemory(status.state)) {
    status.held_seconds = static_cast<double>(clock_->Now().monotonic_ns - record.sealed_ns) * 1e-9;
  }
  return status;
}

void VolumeStore::Purge() {
  const int64_t now = clock_->Now().monotonic_ns;
  for (auto it = records_.begin(); it != records_.end();) {
    if (it->gone_ns > 0 && now - it->gone_ns > kTombstoneNs) {
      by_name_.erase(it->status.name);
      it = records_.erase(it);
    } else {
      ++it;
    }
  }
}

std::shared_ptr<VolumeSlot> VolumeStore::Leave(Record& record, VolumeState to, const std::string& reason, const char* finished) {
  record.status.held_seconds = StatusOf(record).held_seconds;
  record.status.state = to;
  record.status.reason = reason;
  record.gone_ns = clock_->Now().monotonic_ns;
  ++finished_[finished];
  return std::move(record.slot);
}

void VolumeStore::Add(VolumeStatus status, std::shared_ptr<VolumeSlot> slot, int device) {
  status.state = VolumeState::kAcquiring;
  {
    MutexLock lock(mutex_);
    Purge();
    records_.push_back({.status = status, .slot = std::move(slot), .device = device});
    by_name_[status.name] = std::prev(records_.end());
  }
  on_change_(status);
}

void VolumeStore::Seal(const VolumeStatus& final_status, bool kept) {
  VolumeStatus status;
  {
    MutexLock lock(mutex_);
    auto it = Find(final_status.name);
    if (!it.ok() || !CheckTransition(final_status.name, (*it)->status.state, VolumeState::kHeld).ok()) return;
    Record& record = **it;
    record.status = final_status;
    record.status.state = VolumeState::kHeld;
    record.status.kept = kept;
    record.sealed_ns = clock_->Now().monotonic_ns;
    missing_ascans_ += final_status.missing_ascans;
    ledger_->Hold(record.slot->charge, record.status.name);
    status = StatusOf(record);
  }
  on_change_(status);
}

void VolumeStore::Fail(const std::string& name, const std::string& reason) {
  VolumeStatus status;
  std::shared_ptr<VolumeSlot> gone;
  {
    MutexLock lock(mutex_);
    auto it = Find(name);
    if (!it.ok() || !CheckTransition(name, (*it)->status.state, VolumeState::kFailed).ok()) return;
    gone = Leave(**it, VolumeState::kFailed, reason, "failed");
    status = StatusOf(**it);
  }
  gone.reset();
  on_change_(status);
}

absl::StatusOr<VolumeStatus> VolumeStore::Get(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  return StatusOf(*it);
}

std::vector<VolumeStatus> VolumeStore::List() {
  MutexLock lock(mutex_);
  Purge();
  std::vector<VolumeStatus> list;
  list.reserve(records_.size());
  for (const Record& record : records_) list.push_back(StatusOf(record));
  return list;
}

absl::StatusOr<PinnedVolume> VolumeStore::Pin(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  const VolumeState state = it->status.state;
  if (state == VolumeState::kAcquiring) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is still being acquired; wait until it is HELD")),
                    {.reason = "VOLUME_STATE", .field = "name", .numbers = {{"state", Name(state)}}});
  }
  if (!InMemory(state)) {
    return WithInfo(
        absl::NotFoundError(absl::StrCat(name, " has left memory: ", Name(state), it->status.reason.empty() ? "" : ", ", it->status.reason,
                                         it->status.has_commit ? absl::StrCat(" (", it->status.commit.path, ")") : "")),
        {.reason = "VOLUME_GONE", .field = "name", .numbers = {{"state", Name(state)}}});
  }
  return PinnedVolume{.status = StatusOf(*it), .slot = it->slot, .device = it->device};
}

absl::StatusOr<VolumeStatus> VolumeStore::Keep(const std::string& name, int64_t limit) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
  if (it->status.state != VolumeState::kHeld && it->status.state != VolumeState::kCommitting) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is ", Name(it->status.state), "; only HELD volumes can be kept")),
                    {.reason = "VOLUME_STATE", .field = "name", .numbers = {{"state", Name(it->status.state)}}});
  }
  if (!it->status.kept) {
    int64_t kept = 0;
    for (const Record& record : records_) {
      // What was derived has memory of its own, beside the scan's slots.
      kept += record.status.scan == it->status.scan && record.status.is_raw == it->status.is_raw && record.status.kept &&
              InMemory(record.status.state) && record.status.derived_from.empty();
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
  return StatusOf(*it);
}

absl::StatusOr<VolumeStatus> VolumeStore::Discard(const std::string& name, const std::string& reason) {
  VolumeStatus status;
  std::shared_ptr<VolumeSlot> gone;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
    OCTAVO_RETURN_IF_ERROR(CheckTransition(name, it->status.state, VolumeState::kDiscarded));
    gone = Leave(*it, VolumeState::kDiscarded, reason, "discarded");
    ++scans_[it->status.scan].discarded;
    status = StatusOf(*it);
  }
  gone.reset();
  on_change_(status);
  return status;
}

absl::StatusOr<PinnedVolume> VolumeStore::BeginCommit(const std::string& name) {
  PinnedVolume pinned;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(auto it, Find(name));
    OCTAVO_RETURN_IF_ERROR(CheckTransition(name, it->status.state, VolumeState::kCommitting));
    it->status.state = VolumeState::kCommitting;
    it->status.last_error.clear();
    pinned = {.status = StatusOf(*it), .slot = it->slot, .device = it->device};
  }
  on_change_(pinned.status);
  return pinned;
}

void VolumeStore::EndCommit(const std::string& name, const absl::StatusOr<storage::CommitOutcome>& outcome) {
  VolumeStatus status;
  std::shared_ptr<VolumeSlot> gone;
  {
    MutexLock lock(mutex_);
    auto found = Find(name);
    if (!found.ok() || (*found)->status.state != VolumeState::kCommitting) return;
    Record& record = **found;
    if (outcome.ok()) {
      record.status.has_commit = true;
      record.status.commit = *outcome;
      ++scans_[record.status.scan].committed;
      gone = Leave(record, VolumeState::kCommitted, "", "committed");
    } else {
      record.status.state = VolumeState::kHeld;
      record.status.kept = true;  // somebody wanted it: LIVE must not overwrite it now
      record.status.last_error = std::string(outcome.status().message());
      ++scans_[record.status.scan].commit_failures;
    }
    status = StatusOf(record);
  }
  gone.reset();
  on_change_(status);
}

bool VolumeStore::OverwriteOldest(const std::string& scan) {
  VolumeStatus status;
  std::shared_ptr<VolumeSlot> gone;
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
  gone.reset();
  on_change_(status);
  return true;
}

void VolumeStore::KeepAll(const std::string& scan) {
  MutexLock lock(mutex_);
  for (Record& record : records_) {
    if (record.status.scan == scan && InMemory(record.status.state)) record.status.kept = true;
  }
}

VolumeStore::Counts VolumeStore::Count() {
  MutexLock lock(mutex_);
  Counts counts;
  counts.finished = finished_;
  counts.missing_ascans = missing_ascans_;
  for (const Record& record : records_) {
    if (!InMemory(record.status.state)) continue;
    ++counts.by_state[Name(record.status.state)];
    counts.oldest_held_seconds = std::max(counts.oldest_held_seconds, StatusOf(record).held_seconds);
  }
  return counts;
}

VolumeStore::ScanCounts VolumeStore::CountOf(const std::string& scan) {
  MutexLock lock(mutex_);
  ScanCounts counts;
  if (auto it = scans_.find(scan); it != scans_.end()) counts = it->second;
  for (const Record& record : records_) {
    if (record.status.scan != scan || !InMemory(record.status.state)) continue;
    counts.in_memory.push_back(record.status.name);
    counts.held += record.status.state != VolumeState::kAcquiring && !record.status.is_raw;
  }
  return counts;
}

}  // namespace octavo::engine
