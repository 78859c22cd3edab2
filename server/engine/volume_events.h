#pragma once

#include "gpu/base/clock.h"
#include "server/publish/publisher.h"
#include "server/volume/volume_observer.h"

namespace octavo::engine {

/// Publishes changes of volumes as events of their scan or job.
class VolumeEvents final : public volume::VolumeObserver {
 public:
  VolumeEvents(publish::Publisher* publisher, const Clock* clock)
      : publisher_(publisher), clock_(clock) {}
  void OnVolumeChanged(const model::VolumeStatus& volume) override;
  /// Publishes an event about a volume to the subscribers of its scan or job.
  void Publish(const model::VolumeStatus& volume, model::ScanEvent what);

 private:
  publish::Publisher* const publisher_;
  const Clock* const clock_;
};

}  // namespace octavo::engine
