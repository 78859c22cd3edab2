#pragma once

#include <functional>
#include <utility>

#include "server/volume/volume_observer.h"

namespace octavo::testing {

/// Calls a function with each change of a volume.
class VolumeCallback final : public volume::VolumeObserver {
 public:
  explicit VolumeCallback(std::function<void(const model::VolumeStatus&)> call)
      : call_(std::move(call)) {}
  void OnVolumeChanged(const model::VolumeStatus& volume) override { call_(volume); }

 private:
  const std::function<void(const model::VolumeStatus&)> call_;
};

}  // namespace octavo::testing
