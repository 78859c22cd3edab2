#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/publish/held_frame_source.h"

namespace octavo::testing {

/// Answers a publisher with functions. Until a test sets them, no volume is held and every frame is
/// gone.
class HeldFrames final : public publish::HeldFrameSource {
 public:
  using Done = std::function<void(absl::StatusOr<model::FramePtr>)>;
  std::function<void(const model::FramePtr&, const Done&)> load =
      [](const model::FramePtr&, const Done& done) { done(absl::NotFoundError("gone")); };
  std::function<std::vector<model::VolumeStatus>(const std::string& name)> held_by =
      [](const std::string&) { return std::vector<model::VolumeStatus>(); };

  void Load(const model::FramePtr& header, Done done) override { load(header, done); }
  std::vector<model::VolumeStatus> HeldBy(const std::string& name) override {
    return held_by(name);
  }
};

}  // namespace octavo::testing
