#include "server/volume/retention_ring.h"

#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/model/volume_states.h"
#include "server/volume/volume_news.h"

namespace octavo::volume {
namespace {

/// Whether a LIVE scan may overwrite the volume. Not while it is being moved: the client that
/// requested the move wants the volume, and its slot would not become free before the move ends.
bool MayOverwrite(const VolumeEntry& entry) {
  return entry.state == model::VolumeState::kHeld && !entry.kept &&
         entry.moving == model::Move::kNone;
}

absl::Status WrongState(const VolumeEntry& entry, const char* what) {
  return WithInfo(
      absl::FailedPreconditionError(
          absl::StrCat(entry.name(), " is ", Name(entry.state), "; only ", what)),
      {.reason = Reason::kVolumeState, .field = "name", .numbers = {{"state", Name(entry.state)}}});
}

}  // namespace

/// One loan. Made before the volume is lent, so that nothing can fail once it is.
class RetentionRing::Loan {
 public:
  Loan(RetentionRing* ring, std::string name) : ring_(ring), name_(std::move(name)) {}
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  ~Loan() {
    if (lent_) ring_->TakeBack(name_);
  }
  void Begin() { lent_ = true; }

 private:
  RetentionRing* const ring_;
  const std::string name_;
  bool lent_ = false;
};

bool RetentionRing::OverwriteOldest(const std::string& scan) {
  model::VolumeStatus status;
  VolumeBytes gone;
  {
    MutexLock lock(table_.mutex());
    VolumeEntry* oldest = nullptr;
    for (const auto& [number, entry] : table_.InMemoryOf(scan)) {
      if (!MayOverwrite(*entry)) continue;
      oldest = entry;
      break;
    }
    if (oldest == nullptr) return false;
    gone = Overwrite(*oldest);
    status = table_.Changed(*oldest);
  }
  table_.LetGo(status.name, std::move(gone));
  table_.Tell(status);
  return true;
}

void RetentionRing::KeepNewest(const std::string& scan, int64_t count) {
  std::vector<model::VolumeStatus> overwritten;
  std::vector<VolumeBytes> leaving;
  {
    // Counted and given up under one lock: one that is held in between is one less to give up.
    MutexLock lock(table_.mutex());
    std::vector<VolumeEntry*> ring;
    int64_t over[2] = {-count, -count};  // volumes, raw ones
    for (const auto& [number, entry] : table_.InMemoryOf(scan)) {
      if (!MayOverwrite(*entry)) continue;
      ring.push_back(entry);
      ++over[entry->about->is_raw];
    }
    for (VolumeEntry* const entry : ring) {
      if (over[entry->about->is_raw]-- <= 0) continue;
      leaving.push_back(Overwrite(*entry));
      overwritten.push_back(table_.Changed(*entry));
    }
  }
  for (size_t i = 0; i < leaving.size(); ++i)
    table_.LetGo(overwritten[i].name, std::move(leaving[i]));
  for (const model::VolumeStatus& status : overwritten) table_.Tell(status);
}

void RetentionRing::KeepAll(const std::string& scan) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  table_.totals().scans[scan].ring_over = true;
  for (const auto& [number, entry] : table_.InMemoryOf(scan)) {
    if (std::exchange(entry->kept, true)) continue;
    news.Add(*entry);
  }
}

VolumeBytes RetentionRing::Overwrite(VolumeEntry& entry) {
  VolumeBytes gone = table_.Leave(entry, model::VolumeState::kDiscarded, Reason::kOverwritten,
                                  "overwritten by a newer volume of a LIVE scan", "overwritten");
  ++table_.TotalsOf(entry).overwritten;
  return gone;
}

bool RetentionRing::IsOver(const VolumeEntry& entry) const {
  const auto& scans = table_.totals().scans;
  const auto scan = scans.find(entry.about->scan);
  return scan != scans.end() && scan->second.ring_over;
}

absl::Status RetentionRing::CheckHoldSlots(const VolumeEntry& entry, int64_t hold_slots) {
  int64_t kept = 0;
  for (const auto& [number, other] : table_.InMemoryOf(entry.about->scan))
    kept += other->about->is_raw == entry.about->is_raw && other->kept && other->InSlot();
  if (kept < hold_slots) return absl::OkStatus();
  return WithInfo(absl::ResourceExhaustedError(
                      absl::StrCat(entry.about->scan, " keeps ", kept, " volumes, all of its ",
                                   hold_slots, " hold slots; commit or discard one first")),
                  {.reason = Reason::kHoldSlotsFull,
                   .field = "name",
                   .numbers = {{"held", absl::StrCat(kept)},
                               {"allowed", absl::StrCat(hold_slots)},
                               {"retryable", "true"}}});
}

absl::StatusOr<model::VolumeStatus> RetentionRing::Mark(const std::string& name, int64_t hold_slots,
                                                        const ClientVerb* asked) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
  if (!model::IsComplete(entry->state))
    return WrongState(*entry, "HELD and COMMITTING volumes can be kept");
  if (!entry->kept) {
    OCTAVO_RETURN_IF_ERROR(CheckHoldSlots(*entry, hold_slots));
    entry->kept = true;
  }
  if (!std::exchange(entry->marked, true)) news.Add(*entry);
  return table_.StatusOf(*entry);
}

absl::StatusOr<model::VolumeStatus> RetentionRing::Unmark(const std::string& name,
                                                          const ClientVerb* asked, bool endangers) {
  VolumeBytes copies;  // on the disk, which the ring has none of
  const absl::Cleanup drop = [&] { table_.LetGo(name, std::move(copies)); };
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
  if (!model::IsComplete(entry->state))
    return WrongState(*entry, "HELD and COMMITTING volumes have a mark");
  if (endangers) {
    OCTAVO_RETURN_IF_ERROR(table_.CheckLeases(*entry, asked));
    // The ring would lack a slot as long as another process maps it.
    OCTAVO_RETURN_IF_ERROR(table_.CheckExports(*entry, asked));
  }
  entry->Live(table_.Now());
  entry->marked = false;
  // The volume is a slot of the ring again, unless it is in another tier. If it is on loan, it
  // becomes one when the loan ends.
  if (entry->of_ring && !IsOver(*entry) && entry->tier == model::Tier::kDevice) {
    entry->lent = entry->loans > 0;
    entry->kept = entry->lent;
    // Overwriting must not wait for a disk (VolumeTiers::BeginMirror). A spill that is under way
    // has use for both, and makes the volume a kept one.
    if (entry->moving != model::Move::kSpilling) {
      entry->bytes.Leaves(entry->bytes.mirror);
      entry->bytes.Shuts(entry->bytes.writing);
      copies.mirror = std::move(entry->bytes.mirror);
      copies.writing = std::move(entry->bytes.writing);
    }
  }
  news.Add(*entry);
  return table_.StatusOf(*entry);
}

absl::StatusOr<VolumeHold> RetentionRing::Lend(const std::string& name, int64_t hold_slots) {
  auto loan = std::make_shared<Loan>(this, name);
  VolumeNews news(table_);
  {
    MutexLock lock(table_.mutex());
    OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
    if (entry->state != model::VolumeState::kHeld)
      return WrongState(*entry, "HELD volumes can be lent");
    if (!entry->kept) {
      OCTAVO_RETURN_IF_ERROR(CheckHoldSlots(*entry, hold_slots));
      entry->kept = entry->lent = true;
      news.Add(*entry);
    }
    ++entry->loans;
    loan->Begin();
  }
  VolumeHold hold;
  hold.kind = HoldKind::kLoan;
  hold.loan = std::move(loan);
  return hold;
}

void RetentionRing::TakeBack(const std::string& name) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  const auto found = table_.Find(name);
  if (!found.ok()) return;
  VolumeEntry& entry = **found;
  if (entry.loans == 0 || --entry.loans > 0 || !entry.lent) return;
  entry.lent = false;
  // A volume whose commit failed must be kept, too. A volume with memory of its own takes no slot
  // of the ring.
  if (entry.of_ring && !IsOver(entry) && !entry.marked && entry.last_error.empty() &&
      entry.tier == model::Tier::kDevice) {
    entry.kept = false;
    news.Add(entry);
  }
}

}  // namespace octavo::volume
