#include "server/volume/volume_entry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/model/volume_states.h"

namespace octavo::volume {
namespace {

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
                             model::VolumeState to, const std::string& end) {
  if (Allowed(from, to)) return absl::OkStatus();
  // What the caller wanted, in the contract's words.
  const char* const wanted = to == model::VolumeState::kCommitting  ? "committed"
                             : to == model::VolumeState::kDiscarded ? "discarded"
                                                                    : nullptr;
  return WithInfo(
      absl::FailedPreconditionError(
          wanted == nullptr
              ? absl::StrCat(volume, " is ", Name(from), " and cannot become ", Name(to))
              : absl::StrCat(volume, " is ", Name(from),
                             end.empty() ? "" : absl::StrCat(" (", end, ")"),
                             "; only a HELD one can be ", wanted,
                             from == model::VolumeState::kCommitting
                                 ? ": wait for the operation that commits it, or cancel that"
                                 : "")),
      {.reason = Reason::kVolumeState,
       .field = "name",
       .numbers = {{"state", Name(from)}, {"wanted_state", Name(to)}}});
}

std::optional<double> VolumeEntry::SecondsToLive(int64_t now_ns) const {
  if (about->ttl_seconds <= 0 || marked) return std::nullopt;
  return about->ttl_seconds - static_cast<double>(now_ns - living_ns) * 1e-9;
}

void VolumeEntry::HeldBefore(const TimePoint& now, int64_t held_unix_ns, double seconds_left) {
  if (held_unix_ns > 0) {
    sealed_ns = now.monotonic_ns - std::max<int64_t>(0, now.unix_ns - held_unix_ns);
    if (sealed_ns == 0) sealed_ns = -1;
  }
  if (seconds_left > 0) {
    constexpr double kMost = 4e9;
    living_ns =
        now.monotonic_ns -
        static_cast<int64_t>(std::clamp(about->ttl_seconds - seconds_left, 0.0, kMost) * 1e9);
  }
}

void Describe(const model::VolumeStatus& volume, VolumeEntry* entry) {
  const model::VolumeDescription& description = volume;
  entry->about = std::make_shared<const model::VolumeDescription>(description);
  entry->origin = volume.origin;
  entry->recovered_pattern = volume.recovered_pattern;
  entry->job_parameters = volume.job_parameters;
}

VolumeEntry MakeEntry(const model::VolumeStatus& volume) {
  VolumeEntry entry;
  Describe(volume, &entry);
  entry.device_name = volume.device;
  entry.kept = volume.kept;
  entry.marked = entry.noted_mark = volume.marked;
  return entry;
}

model::VolumeStatus StatusOf(const VolumeEntry& entry, int64_t now_ns) {
  model::VolumeStatus status;
  static_cast<model::VolumeDescription&>(status) = *entry.about;
  status.number = entry.number;
  status.revision = entry.revision;
  status.origin = entry.origin;
  status.recovered_pattern = entry.recovered_pattern;
  status.job_parameters = entry.job_parameters;
  status.state = entry.state;
  status.reason = entry.reason;
  status.reason_code = entry.reason_code;
  status.last_error = entry.last_error;
  status.skipped_chains = entry.skipped_chains;
  status.has_commit = entry.commit.has_value();
  if (entry.commit.has_value()) status.commit = *entry.commit;
  status.device = entry.device_name;
  status.stripe_bscans = entry.stripe_bscans;
  status.tier = entry.tier;
  status.moving = entry.moving;
  status.kept = entry.kept;
  status.marked = entry.marked;
  status.mirrored = entry.bytes.mirror != nullptr;
  status.orphaned = entry.orphaned;
  if (entry.sealed_ns != 0) {
    const bool in_memory = model::InMemory(entry.state);
    status.held_seconds =
        static_cast<double>((in_memory ? now_ns : entry.gone_ns) - entry.sealed_ns) * 1e-9;
    status.held_unix_ns = entry.sealed_ns + entry.wall_ns;
    if (const auto left = entry.SecondsToLive(now_ns); in_memory && left.has_value()) {
      status.expires_seconds = std::max(1e-3, *left);
      status.expires_unix_ns =
          entry.living_ns + entry.wall_ns + static_cast<int64_t>(entry.about->ttl_seconds * 1e9);
    }
  }
  return status;
}

}  // namespace octavo::volume
