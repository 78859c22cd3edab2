#pragma once

#include "server/model/status_types.h"

namespace octavo::volume {

/// Receives changes of volumes. This is the only way in which the VolumeStore calls the layers
/// above it.
class VolumeObserver {
 public:
  virtual ~VolumeObserver() = default;
  /// `volume` has reached a new state or tier. The thread that made the change calls the observers
  /// in the order in which they were added, without locks of the store. Must not wait. An exception
  /// is logged; the other observers are still called.
  virtual void OnVolumeChanged(const model::VolumeStatus& volume) = 0;
  /// The same for a change that is neither of state nor of tier: a move begins or ends without
  /// effect, a hold, the orphan mark, last_error, a skipped chain, a mirror that is made or
  /// dropped.
  virtual void OnVolumeDetails(const model::VolumeStatus& volume) { (void)volume; }
};

}  // namespace octavo::volume
