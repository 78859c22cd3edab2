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
  using VolumePtr = std::shared_ptr<const model::VolumeStatus>;
  /// All watchers hear of a change with the same object.
  using Told = std::function<void(base::ChangeKind, const VolumePtr&)>;

  /// As ChangeWatchers.
  explicit VolumeWatchers(std::function<void(model::VolumeStatus*)> complete = nullptr)
      : watchers_(std::move(complete)) {}

  /// As ChangeWatchers::Watch.
  std::shared_ptr<void> Watch(Told told,
                              const std::function<std::vector<model::VolumeStatus>()>& existing) {
    return watchers_.Watch(
        "",
        [told = std::move(told)](base::ChangeKind kind, const VolumePtr& volume,
                                 const std::string&) { told(kind, volume); },
        existing);
  }

  void OnVolumeChanged(const model::VolumeStatus& volume) override {
    watchers_.Tell(
        model::InMemory(volume.state) ? base::ChangeKind::kChanged : base::ChangeKind::kGone,
        volume, "");
  }
  void OnVolumeDetails(const model::VolumeStatus& volume) override { OnVolumeChanged(volume); }
  /// As ChangeWatchers::Flush.
  void Flush() { watchers_.Flush(); }

 private:
  base::ChangeWatchers<model::VolumeStatus> watchers_;
};

}  // namespace octavo::volume
