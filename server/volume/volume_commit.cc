#include "server/volume/volume_commit.h"

#include <optional>

#include "absl/strings/string_view.h"

#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"

namespace octavo::volume {
namespace {

/// The entry of a volume that is COMMITTING, or null.
VolumeEntry* FindCommitting(VolumeTable& table, const std::string& name)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mutex()) {
  const auto found = table.Find(name);
  return found.ok() && (*found)->state == model::VolumeState::kCommitting ? *found : nullptr;
}

/// Makes the volume HELD again; throws nothing before it is.
void Return(VolumeTable& table, absl::string_view error, VolumeEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mutex()) {
  entry->state = model::VolumeState::kHeld;
  entry->kept = true;        // a client wanted it, so LIVE must not overwrite it now
  entry->Live(table.Now());  // nor may its time to live end it at this moment
  ++table.TotalsOf(*entry).commit_failures;
  entry->last_error = std::string(error);
}

}  // namespace

VolumeCommit& VolumeCommit::operator=(VolumeCommit&& other) noexcept {
  if (this == &other) return *this;
  Abandon();
  table_ = std::exchange(other.table_, nullptr);
  volume_ = std::move(other.volume_);
  return *this;
}

void VolumeCommit::Finish(const absl::StatusOr<storage::CommitOutcome>& outcome) && {
  if (!under_way()) return;
  // Copied before the lock: if this throws, the commit has not ended, and fails.
  std::optional<storage::CommitOutcome> commit;
  if (outcome.ok()) commit = *outcome;
  VolumeTable& table = *table_;
  model::VolumeStatus status;
  VolumeBytes gone;
  {
    MutexLock lock(table.mutex());
    VolumeEntry* const entry = FindCommitting(table, volume_);
    if (entry == nullptr) {
      table_ = nullptr;
      return;
    }
    if (commit.has_value()) {
      int64_t& committed = table.TotalsOf(*entry).committed;
      gone = table.Leave(*entry, model::VolumeState::kCommitted, Reason::kNone, "", "committed");
      ++committed;
      entry->commit = std::move(commit);
    } else {
      Return(table, outcome.status().message(), entry);
    }
    table_ = nullptr;
    status = table.Changed(*entry);
  }
  table.LetGo(status.name, std::move(gone));
  table.Tell(status);
}

void VolumeCommit::Abandon() noexcept {
  if (!under_way()) return;
  VolumeTable& table = *std::exchange(table_, nullptr);
  try {
    std::optional<model::VolumeStatus> status;
    {
      MutexLock lock(table.mutex());
      if (VolumeEntry* const entry = FindCommitting(table, volume_); entry != nullptr) {
        Return(table, "the server gave up the commit before its end", entry);
        status = table.Changed(*entry);
      }
    }
    if (!status.has_value()) return;
    Log(LogLevel::kWarning, "the server gave up a commit; the volume stays held",
        {{"volume", volume_}});
    table.Tell(*status);
  } catch (...) {
    Log(LogLevel::kError, "the server gave up a commit and could not tell the volume's observers",
        {{"volume", volume_}, {"error", base::StatusOfException().ToString()}});
  }
}

}  // namespace octavo::volume
