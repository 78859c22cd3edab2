#include "server/engine/volume_events.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::engine {

void VolumeEvents::OnVolumeChanged(const model::VolumeStatus& volume) {
  const bool elsewhere =
      volume.state == model::VolumeState::kHeld && volume.tier != model::Tier::kDevice;
  Publish(volume,
          {.kind = volume.state == model::VolumeState::kAcquiring ? model::EventKind::kVolumeStarted
                   : volume.state == model::VolumeState::kHeld && !elsewhere
                       ? model::EventKind::kVolumeDone
                       : model::EventKind::kVolumeState,
           .text = absl::StrCat("volume ", Name(volume.state), elsewhere ? ", tier " : "",
                                elsewhere ? Name(volume.tier) : ""),
           .volume_index = volume.index,
           .time = clock_->Now(),
           .volume_state = volume.state,
           .tier = volume.state == model::VolumeState::kHeld ? std::optional(volume.tier)
                                                             : std::nullopt});
}

void VolumeEvents::Publish(const model::VolumeStatus& volume, model::ScanEvent what) {
  model::Frame event;
  event.parent = volume.scan;
  event.volume = volume.name;
  event.volume_index = volume.index;
  event.product = model::Product::kEvent;
  event.acquired = what.time;
  event.event = std::move(what);
  publisher_->Publish({.product = model::Product::kEvent}, std::move(event));
}

}  // namespace octavo::engine
