#pragma once

#include <cstdint>

namespace octavo::model {

/// What becomes of held volumes at a stop. Values as in octavo.v1.StopForecast.OnHeld.
enum class OnHeld : uint8_t { kSpill = 1, kCommit = 2, kLose = 3 };

/// What the daemon would have to write if it were stopped now. All fields as in
/// octavo.v1.StopForecast.
struct StopForecast {
  OnHeld on_held = OnHeld::kLose;
  int64_t volumes = 0, bytes = 0;  // held or being committed, and not on disk
  int64_t room_bytes = 0;          // that the quota and the disk of the tier DISK leave for them
  double bytes_per_second = 0;     // measured; 0 = not yet, or no tier DISK
  double seconds = 0;              // to write them; 0 = nothing to write, or no rate
  double limit_seconds = 0;        // drain.spill_seconds; 0 = none
};

}  // namespace octavo::model
