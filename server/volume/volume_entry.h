#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/volume/spilled_volume.h"

namespace octavo::volume {

/// OK if a volume may go from one state to the other; FailedPrecondition that names both otherwise.
///   acquiring → held | failed;  held → committing | discarded;  committing → committed | held
/// `end`: the path of a COMMITTED volume, or why another one has ended, for the message; empty =
/// not known.
absl::Status CheckTransition(const std::string& volume, model::VolumeState from,
                             model::VolumeState to, const std::string& end = "");

/// The memory that holds a volume's bytes: exactly one of the first two is set, neither once the
/// volume has left memory. What lies on the disk beside it leaves with it.
struct VolumeBytes {
  std::shared_ptr<memory::VolumeSlot> slot;
  std::shared_ptr<const SpilledVolume> spilled;
  // A copy in the tier DISK of bytes that are in another; null: there is none.
  std::shared_ptr<const SpilledVolume> mirror = {};
  // Of the file that a spill or a mirroring is writing; null: none is.
  std::shared_ptr<storage::SpillGate> writing = {};
  // What some thread removes, or shuts, at this moment, after it took it out of the entry: if the
  // volume leaves meanwhile, whoever ends it does the same, and so waits for it.
  std::vector<std::shared_ptr<const SpilledVolume>> leaving = {};
  std::vector<std::shared_ptr<storage::SpillGate>> shutting = {};

  /// The file is about to be removed; null: nothing.
  void Leaves(const std::shared_ptr<const SpilledVolume>& file) {
    if (file == nullptr || file->tier() != model::Tier::kDisk) return;
    // What nobody else holds any more is removed.
    std::erase_if(leaving, [](const auto& one) { return one.use_count() == 1; });
    leaving.push_back(file);
  }
  /// The gate is about to be shut; null: nothing.
  void Shuts(const std::shared_ptr<storage::SpillGate>& gate) {
    if (gate == nullptr) return;
    std::erase_if(shutting, [](const auto& one) { return one.use_count() == 1; });
    shutting.push_back(gate);
  }
  /// Leaves and Shuts of the next few do not throw.
  void MakeRoom() {
    leaving.reserve(leaving.size() + 4);
    shutting.reserve(shutting.size() + 4);
  }

  /// The copy that a later process would find; null: none.
  const std::shared_ptr<const SpilledVolume>& OnDisk() const {
    return spilled != nullptr && spilled->tier() == model::Tier::kDisk ? spilled : mirror;
  }
};

/// A volume as the store keeps it. A state change touches plain fields only. The strings, maps and
/// lists of the description are shared, so no change copies them.
struct VolumeEntry {
  uint64_t number = 0;                                    // in order of arrival
  uint64_t revision = 0;                                  // counts its changes
  std::shared_ptr<const model::VolumeDescription> about;  // replaced once, by the seal
  // Cleared once the volume has left memory: these take megabytes, and the store remembers
  // thousands of such entries.
  std::shared_ptr<const model::ResolvedScan> origin;
  std::shared_ptr<const pattern::Pattern> recovered_pattern;
  std::string job_parameters;

  // -- state
  model::VolumeState state = model::VolumeState::kAcquiring;
  Reason reason_code = Reason::kNone;
  std::string reason;      // why it failed, or was discarded
  std::string last_error;  // of a commit or a spill
  std::vector<model::SkippedChain> skipped_chains;
  std::optional<storage::CommitOutcome> commit;

  // -- tier
  model::Tier tier = model::Tier::kDevice;
  model::Move moving = model::Move::kNone;
  VolumeBytes bytes;
  int device = 0;
  std::string device_name;    // of a recovered volume: the other process's name for the device
  int64_t stripe_bscans = 0;  // as VolumeStatus::stripe_bscans
  bool restored = false;      // into memory of its own, not a slot of its scan

  // -- holds
  bool of_ring = false;  // a LIVE scan sealed it and may overwrite it unless something keeps it
  bool kept = false;     // the ring must not overwrite it, for whichever reason
  bool marked = false;   // HoldVolume
  int loans = 0;
  bool lent = false;  // kept because of the loans alone

  // -- the copy on disk
  bool noted_mark = false;    // what that copy says of `marked`
  bool mark_failing = false;  // the last try to write that had an error of the disk
  int64_t mark_retry_ns = 0;  // then: when the next one is due; monotonic
  bool unmirrorable = false;  // its bytes are not what was sealed: no copy of them is right

  // -- times, monotonic
  int64_t sealed_ns = 0, gone_ns = 0;  // 0 = not yet; negative: before the machine was started
  int64_t living_ns = 0;               // start of the time to live
  int64_t wall_ns = 0;  // the wall clock less the monotonic one when it began to live
  bool warned = false;  // the warning of its expiry was sent

  // -- its session
  std::string session;  // as in the table's index, whatever a seal describes
  bool orphaned = false;
  bool orphan_told = false;

  const std::string& name() const { return about->name; }
  /// Its time to live begins (anew).
  void Live(const TimePoint& now) {
    living_ns = now.monotonic_ns;
    wall_ns = now.unix_ns - now.monotonic_ns;
    warned = false;
  }
  /// After Live: an earlier process held it since `held_unix_ns`, and `seconds_left` of its time to
  /// live were left when that process wrote its file; 0 = not known. The time without a server does
  /// not count: nobody could commit the volume then, and a clock that was set changes nothing.
  void HeldBefore(const TimePoint& now, int64_t held_unix_ns, double seconds_left);
  /// Whether the volume takes one of its scan's slots. A derived volume, or one that has left its
  /// slot, has memory of its own.
  bool InSlot() const {
    return !restored && about->derived_from.empty() && tier == model::Tier::kDevice;
  }
  /// Seconds until its time to live ends, negative once it has ended. Empty for a marked volume and
  /// for one without a time to live.
  std::optional<double> SecondsToLive(int64_t now_ns) const;
};

/// Makes an entry from a volume's first status: takes its description, place and holds.
VolumeEntry MakeEntry(const model::VolumeStatus& volume);
/// Replaces the description and the origin of the entry with those of `volume`.
void Describe(const model::VolumeStatus& volume, VolumeEntry* entry);
/// The status that clients and observers see.
model::VolumeStatus StatusOf(const VolumeEntry& entry, int64_t now_ns);

}  // namespace octavo::volume
