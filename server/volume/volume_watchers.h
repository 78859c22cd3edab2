#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/change_watchers.h"
#include "server/model/status_types.h"
#include "server/model/volume_states.h"
#include "server/volume/volume_observer.h"

namespace octavo::volume {

/// Clients that watch all volumes in memory. A volume is gone for them when it leaves memory.
class VolumeWatchers final : public VolumeObserver {
 public:
  using Told = std::function<void(base::ChangeKind, const model::VolumeStatus&)>;

  /// As ChangeWatchers::Watch.
  std::shared_ptr<void> Watch(Told told,
                              const std::function<std::vector<model::VolumeStatus>()>& existing) {
    return watchers_.Watch(
        "",
        [told = std::move(told)](base::ChangeKind kind, const model::VolumeStatus& volume,
                                 const std::string&) { told(kind, volume); },
        existing);
  }

  void OnVolumeChanged(const model::VolumeStatus& volume) override {
    watchers_.Tell(
        model::InMemory(volume.state) ? base::ChangeKind::kChanged : base::ChangeKind::kGone,
        volume, "");
  }
  void OnVolumeDetails(const model::VolumeStatus& volume) override { OnVolumeChanged(volume); }

 private:
  base::ChangeWatchers<model::VolumeStatus> watchers_;
};

}  // namespace octavo::volume
