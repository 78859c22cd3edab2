#pragma once

#include "server/model/status_types.h"

namespace octavo::volume {

/// Learns of volumes as they change: the one way in which the VolumeStore calls what lies above it.
class VolumeObserver {
 public:
  virtual ~VolumeObserver() = default;
  /// `volume` has come to a new state or tier. The thread that changed it calls, without locks of
  /// the store, each observer in the order in which they were added. Must not wait. An exception is
  /// logged; the other observers are called all the same.
  virtual void OnVolumeChanged(const model::VolumeStatus& volume) = 0;
};

}  // namespace octavo::volume
