#pragma once

#include "server/model/status_types.h"

namespace octavo::model {

/// All of its data are present and usable.
inline bool IsComplete(VolumeState s) {
  return s == VolumeState::kHeld || s == VolumeState::kCommitting;
}
inline bool InMemory(VolumeState s) { return s == VolumeState::kAcquiring || IsComplete(s); }

}  // namespace octavo::model
