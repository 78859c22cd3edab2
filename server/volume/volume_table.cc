#include "server/volume/volume_table.h"

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/model/volume_states.h"
#include "server/security/rights.h"

namespace octavo::volume {
namespace {

constexpr int64_t kTombstoneNs = int64_t{600} * 1'000'000'000;
constexpr size_t kMostTombstones = 10'000;

using Groups = std::map<std::string, VolumeTable::ByNumber>;

const VolumeTable::ByNumber& Among(const Groups& groups, const std::string& name) {
  static const VolumeTable::ByNumber* const none = new VolumeTable::ByNumber;
  const auto it = groups.find(name);
  return it == groups.end() ? *none : it->second;
}

void Drop(Groups& groups, const std::string& name, uint64_t number) {
  const auto it = groups.find(name);
  if (it == groups.end()) return;
  it->second.erase(number);
  if (it->second.empty()) groups.erase(it);
}

}  // namespace

absl::Status CheckOwner(const model::VolumeDescription& volume, const ClientVerb* asked) {
  if (asked == nullptr || asked->of_orphans) return absl::OkStatus();
  return security::MayChange(asked->caller, volume.owner, volume.name, model::ParentOf(volume));
}

VolumeEntry& VolumeTable::Insert(VolumeEntry entry) {
  Purge();
  entry.number = ++added_;
  entries_.push_back(std::move(entry));
  VolumeEntry& inserted = entries_.back();
  by_name_[inserted.name()] = std::prev(entries_.end());
  by_number_[inserted.number] = &inserted;
  of_scan_[inserted.about->scan][inserted.number] = &inserted;
  inserted.session = inserted.about->session;
  if (!inserted.session.empty()) of_session_[inserted.session][inserted.number] = &inserted;
  return inserted;
}

absl::StatusOr<VolumeEntry*> VolumeTable::Find(const std::string& name) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    if (earlier_) OCTAVO_RETURN_IF_ERROR(earlier_(name));
    return WithInfo(
        absl::NotFoundError(absl::StrCat(
            "no volume ", name,
            " (of those that left memory the last 10000 are remembered for ten minutes)")),
        {.reason = Reason::kNoVolume, .field = "name", .numbers = {}});
  }
  return &*it->second;
}

bool VolumeTable::IsInMemory(const std::string& name) noexcept {
  MutexLock lock(mutex_);
  const auto it = by_name_.find(name);
  return it != by_name_.end() && model::InMemory(it->second->state);
}

const VolumeTable::ByNumber& VolumeTable::InMemoryOf(const std::string& scan) const {
  return Among(of_scan_, scan);
}

const VolumeTable::ByNumber& VolumeTable::InMemoryOfSession(const std::string& session) const {
  return Among(of_session_, session);
}

void VolumeTable::Purge() {
  const int64_t now = NowNs();
  while (!gone_.empty() &&
         (now - gone_.front().gone_ns > kTombstoneNs || gone_.size() > kMostTombstones)) {
    by_name_.erase(gone_.front().name());
    by_number_.erase(gone_.front().number);
    gone_.pop_front();
  }
}

VolumeHold VolumeTable::HoldMemory(const VolumeEntry& entry) const {
  return {.kind = HoldKind::kMemory,
          .status = StatusOf(entry),
          .slot = entry.bytes.slot,
          .spilled = entry.bytes.spilled,
          .device = entry.device,
          .cursor = nullptr,
          .loan = nullptr};
}

absl::Status VolumeTable::CheckLeases(const VolumeEntry& entry, const ClientVerb* asked) {
  if (asked == nullptr) return absl::OkStatus();
  if (asked->of_orphans && !entry.orphaned) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        entry.name(), " is no orphan: ", entry.about->session, " has come back")),
                    {.reason = Reason::kAdopted, .field = "name", .numbers = {}});
  }
  if (protections_.leases == nullptr) return absl::OkStatus();
  return protections_.leases->CheckNobodyElse(entry.name(), asked->lease_token);
}

absl::Status VolumeTable::CheckExports(const VolumeEntry& entry, const ClientVerb* asked) {
  if (asked == nullptr || asked->detach_exports || protections_.mappings == nullptr)
    return absl::OkStatus();
  return protections_.mappings->CheckFree(entry.name());
}

std::set<std::string> VolumeTable::Mapped() const {
  return protections_.mappings == nullptr ? std::set<std::string>()
                                          : protections_.mappings->Mapped();
}

VolumeBytes VolumeTable::Leave(VolumeEntry& entry, model::VolumeState to, Reason code,
                               const std::string& reason, const char* finished) {
  // First everything that may throw: if it does, the volume has not left.
  int64_t& count = totals_.finished[finished];
  entry.reason = reason;
  entry.reason_code = code;
  // Clients never wait for a lease of a volume, so there is no callback to run here.
  if (protections_.leases != nullptr) protections_.leases->Forget(entry.name());
  ++count;
  entry.state = to;
  entry.moving = model::Move::kNone;  // the move that is under way finds nothing to move
  entry.gone_ns = NowNs();
  entry.origin = nullptr;
  entry.recovered_pattern = nullptr;
  entry.job_parameters = {};
  Drop(of_scan_, entry.about->scan, entry.number);
  Drop(of_session_, entry.session, entry.number);
  gone_.splice(gone_.end(), entries_, by_name_.at(entry.name()));
  return std::exchange(entry.bytes, {});
}

void VolumeTable::LetGo(const std::string& name, VolumeBytes bytes) noexcept {
  try {
    if (bytes.slot != nullptr && protections_.mappings != nullptr)
      protections_.mappings->Left(name, bytes.slot->charge);
  } catch (...) {
    Log(LogLevel::kError, "the exports of a volume did not hear that it has left its memory",
        {{"volume", name}, {"error", base::StatusOfException().ToString()}});
  }
  bytes.slot.reset();
  if (bytes.writing != nullptr) bytes.writing->Shut();
  if (bytes.spilled != nullptr) bytes.spilled->Remove();
  if (bytes.mirror != nullptr) bytes.mirror->Remove();
  for (const auto& gate : bytes.shutting) gate->Shut();
  for (const auto& file : bytes.leaving) file->Remove();
}

void VolumeTable::Tell(const model::VolumeStatus& status) noexcept {
  TellAll(&VolumeObserver::OnVolumeChanged, status);
}

void VolumeTable::TellDetails(const model::VolumeStatus& status) noexcept {
  TellAll(&VolumeObserver::OnVolumeDetails, status);
}

void VolumeTable::TellAll(OnChange what, const model::VolumeStatus& status) noexcept {
  for (VolumeObserver* const observer : observers_) {
    try {
      (observer->*what)(status);
    } catch (...) {
      Log(LogLevel::kError, "a change of a volume was not told to all",
          {{"volume", status.name}, {"error", base::StatusOfException().ToString()}});
    }
  }
}

VolumeTable::ScanTotals& VolumeTable::TotalsOf(const VolumeEntry& entry) {
  return entry.about->recovered || !absl::StartsWith(entry.about->scan, "scans/")
             ? others_
             : totals_.scans[entry.about->scan];
}

}  // namespace octavo::volume
