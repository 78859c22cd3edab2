#include "server/volume/volume_move.h"

#include <optional>
#include <string>

#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"
#include "server/model/volume_states.h"
#include "server/volume/volume_news.h"

namespace octavo::volume {

VolumeMove& VolumeMove::operator=(VolumeMove&& other) noexcept {
  if (this == &other) return *this;
  Abandon();
  table_ = other.table_;
  kind_ = std::exchange(other.kind_, model::Move::kNone);
  hold_ = std::move(other.hold_);
  gate_ = std::move(other.gate_);
  mirror_ = std::move(other.mirror_);
  return *this;
}

bool VolumeMove::Finish(absl::StatusOr<VolumeBytes> made) && {
  const std::string& name = hold_.status.name;
  const absl::Status status = made.status();
  VolumeBytes bytes;
  if (status.ok()) bytes = *std::move(made);
  // The hold ends before the volume releases its memory, so that the slot is free when observers
  // hear of it.
  hold_.Release();
  bool moved = false;
  std::optional<model::VolumeStatus> told;
  if (under_way()) {
    VolumeNews news(*table_);
    MutexLock lock(table_->mutex());
    const model::Move kind = std::exchange(kind_, model::Move::kNone);
    const auto found = table_->Find(name);
    if (found.ok()) {
      (*found)->moving = model::Move::kNone;
      VolumeBytes& has = (*found)->bytes;
      if (gate_ != nullptr && has.writing == gate_) {
        has.writing = nullptr;
        if (!status.ok()) has.Shuts(gate_);
      }
    }
    if (found.ok() && model::IsComplete((*found)->state)) {
      VolumeEntry& entry = **found;
      if (status.ok()) {
        moved = true;
        std::swap(entry.bytes, bytes);
        Exchanged(kind, entry, &bytes);
        if (kind != model::Move::kRelocating) told = table_->Changed(entry);
      } else if (kind == model::Move::kSpilling) {
        entry.last_error = std::string(status.message());
      }
      if (!told.has_value()) news.Add(entry);
    }
  }
  // What was written and is not told of here has nobody else to remove it.
  if (!status.ok()) ShutGate();
  table_->LetGo(name, std::move(bytes));  // what it had before; what was made for nothing
  if (told.has_value()) table_->Tell(*told);
  return moved;
}

void VolumeMove::ShutGate() {
  if (const auto gate = std::exchange(gate_, nullptr); gate != nullptr) gate->Shut();
}

void VolumeMove::Exchanged(model::Move kind, VolumeEntry& entry, VolumeBytes* before) {
  VolumeBytes& now = entry.bytes;
  now.writing = std::move(before->writing);
  if (now.OnDisk() == nullptr) {
    // The copy on the disk stays what it is, wherever the bytes are.
    if (before->mirror != nullptr) {
      now.mirror = std::move(before->mirror);
    } else if (table_->mirrors() && before->OnDisk() != nullptr) {
      now.mirror = std::move(before->spilled);
    }
  } else if (before->mirror == now.spilled) {
    before->mirror = nullptr;  // it holds the bytes from now on
  } else {
    entry.noted_mark = hold_.status.marked;  // as the new file says
  }
  now.leaving = std::move(before->leaving);
  now.shutting = std::move(before->shutting);
  now.Leaves(before->spilled);
  now.Leaves(before->mirror);
  entry.tier = now.slot != nullptr ? model::Tier::kDevice : now.spilled->tier();
  if (now.slot != nullptr) table_->ledger().Hold(now.slot->charge, entry.name());
  if (kind == model::Move::kSpilling) {
    entry.stripe_bscans = 0;  // in one piece from now on
    entry.kept = true;        // no slot of a ring any more
  } else if (kind == model::Move::kRestoring) {
    // That of an earlier process may be another one.
    entry.device_name = table_->ledger().names().Name(entry.device);
    entry.restored = true;
  }
}

// Frees the volume before anything that may throw.
void VolumeMove::Abandon() noexcept {
  if (!under_way()) return;
  const model::Move kind = std::exchange(kind_, model::Move::kNone);
  const std::string& name = hold_.status.name;
  hold_.Release();
  try {
    {
      VolumeNews news(*table_);
      MutexLock lock(table_->mutex());
      if (const auto found = table_->Find(name); found.ok()) {
        (*found)->moving = model::Move::kNone;
        VolumeBytes& has = (*found)->bytes;
        if (gate_ != nullptr && has.writing == gate_) {
          has.Shuts(gate_);
          has.writing = nullptr;
        }
        if (model::IsComplete((*found)->state)) {
          if (kind == model::Move::kSpilling)
            (*found)->last_error = "the server gave up the move before its end";
          news.Add(**found);
        }
      }
    }
    ShutGate();
    Log(LogLevel::kWarning, "a move was abandoned; the volume stays where it is",
        {{"volume", name}, {"move", Name(kind)}});
  } catch (...) {
    Log(LogLevel::kError, "a move was abandoned, and its volume does not say so",
        {{"volume", name}, {"error", base::StatusOfException().ToString()}});
  }
}

}  // namespace octavo::volume
