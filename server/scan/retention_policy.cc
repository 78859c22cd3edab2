#include "server/scan/retention_policy.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::scan {

publish::VolumesStay StayOf(const model::Retention& retention) {
  if (retention.disposition == model::Disposition::kAutoDiscard) return publish::VolumesStay::kNot;
  const bool leave = retention.mode == model::RetentionMode::kLive ||
                     retention.disposition == model::Disposition::kAutoCommit;
  return leave ? publish::VolumesStay::kAWhile : publish::VolumesStay::kUntilAsked;
}

RetentionPolicy::RetentionPolicy(const model::Retention& retention, int64_t slots, Context context)
    : retention_(retention), slots_(slots), context_(std::move(context)) {}

std::shared_ptr<memory::VolumeSlot> RetentionPolicy::TakeSlot(memory::SlotPool& pool) {
  const std::string& scan = context_.scan;
  const int64_t failures = context_.relief->SpillFailures(scan);
  const bool live = retention_.mode == model::RetentionMode::kLive;
  while (!context_.aborted.stop_requested()) {
    // This question comes before the search for a slot. If the retire thread finishes a volume
    // after the answer, the search below finds its slot, or a volume to give up or move. If the
    // question came after the search, both could happen in between, and the volume would be
    // dropped.
    const bool returning = context_.slots_return();
    if (auto slot = pool.TryTake()) return slot;
    if (live && retention_.keep_last == 0 && context_.store->ring().OverwriteOldest(scan)) continue;
    if (model::Spills(retention_.on_full) && !live) {
      // Wait only while the ring before the compute thread has room for incoming records: the tier
      // must not make the source lose records.
      const bool patient = context_.source_waits || context_.ring_occupancy() < 0.5;
      const bool moving = context_.relief->SpillFailures(scan) == failures &&
                          context_.relief->Spill(scan, model::TierOf(retention_.on_full));
      const bool committing = retention_.disposition == model::Disposition::kAutoCommit &&
                              context_.relief->CommitsPending(scan);
      if (!patient || !(moving || committing || returning)) return pool.TryTake();
      pool.WaitForReturn();
      continue;
    }
    // Volumes on their way through the device may free a slot in a moment; so may commits, if the
    // source can wait.
    const bool may_come =
        ((live || retention_.disposition == model::Disposition::kAutoDiscard) && returning) ||
        (retention_.disposition == model::Disposition::kAutoCommit && context_.source_waits &&
         (returning || context_.relief->CommitsPending(scan)));
    if (!may_come) return pool.TryTake();
    pool.WaitForReturn();
  }
  return nullptr;
}

std::optional<std::string> RetentionPolicy::EndOfScan() {
  const bool tier_full =
      model::Spills(retention_.on_full) && retention_.on_tier_full == model::OnFull::kStopAtVolume;
  if (!tier_full && retention_.on_full != model::OnFull::kStopAtVolume) return std::nullopt;
  const int64_t mapped = tier_full ? context_.store->MappedOf(context_.scan) : 0;
  return absl::StrCat(
      "all ", slots_, " hold slots are full",
      tier_full ? absl::StrCat(" and the tier ", Name(model::TierOf(retention_.on_full)),
                               " is full or slower than the scan")
                : "",
      ": commit or discard volumes, or submit with more retention.hold_slots",
      mapped > 0 ? absl::StrCat("; ", mapped,
                                " of them are mapped by other processes, and moving those would "
                                "win no slot")
                 : "");
}

RetentionPolicy::Sealed RetentionPolicy::Seal(const ActiveVolume& volume) {
  const bool kept = retention_.mode != model::RetentionMode::kLive;
  volume::UntoldSeal sealed = context_.store->Seal(volume.status, kept);
  return {.raw = volume.raw_slot == nullptr ? volume::UntoldSeal()
                                            : context_.store->Seal(volume.raw_status, kept),
          .volume = std::move(sealed)};
}

void RetentionPolicy::Dispose(const ActiveVolume& volume, memory::SlotPool& pool,
                              const std::function<int64_t()>& volumes_to_come) {
  if (retention_.keep_last > 0)
    context_.store->ring().KeepNewest(context_.scan, retention_.keep_last);
  if (retention_.disposition == model::Disposition::kAutoDiscard) {
    (void)context_.store->Discard(volume.status.name, Reason::kAutoDiscarded, "AUTO_DISCARD");
    if (volume.raw_slot != nullptr)
      (void)context_.store->Discard(volume.raw_status.name, Reason::kAutoDiscarded, "AUTO_DISCARD");
  } else if (retention_.disposition == model::Disposition::kAutoCommit) {
    context_.observer->OnCommitWanted(volume.status.name, retention_.auto_commit);
    if (volume.raw_slot != nullptr) {
      model::CommitOptions raw = retention_.auto_commit;
      raw.destination += "_raw";
      context_.observer->OnCommitWanted(volume.raw_status.name, raw);
    }
  }
  // Move one slot ahead of the need: a move made while the next volumes are acquired costs the scan
  // nothing.
  const int64_t free = pool.Free();
  const int64_t to_come = volumes_to_come();
  const bool needed = to_come < 0 || to_come > free;
  if (model::Spills(retention_.on_full) && retention_.mode != model::RetentionMode::kLive &&
      needed && free <= 1) {
    context_.relief->Spill(context_.scan, model::TierOf(retention_.on_full));
  }
}

}  // namespace octavo::scan
