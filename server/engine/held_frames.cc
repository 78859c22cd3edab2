#include "server/engine/held_frames.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/base/exception_to_status.h"
#include "server/model/volume_states.h"
#include "server/publish/plane_frame.h"
#include "server/volume/copy_volume.h"

namespace octavo::engine {

void HeldFrames::Load(const model::FramePtr& header,
                      std::function<void(absl::StatusOr<model::FramePtr>)> done) {
  context_.workers->Post([this, header, done = std::move(done)] {
    auto frame = base::ExceptionToStatus([&]() -> absl::StatusOr<model::FramePtr> {
      auto loaded = std::make_shared<model::Frame>(*header);
      OCTAVO_ASSIGN_OR_RETURN(loaded->payload, ReadPayload(*header));
      return loaded;
    });
    // Neither a volume that has gone nor a shortage that passes is worth a line.
    if (!frame.ok() && !absl::IsNotFound(frame.status()) &&
        !absl::IsFailedPrecondition(frame.status()) && !base::IsRetryable(frame.status())) {
      Log(LogLevel::kWarning, "a frame of a held volume could not be made",
          {{"volume", header->volume}, {"error", frame.status().ToString()}});
    }
    done(std::move(frame));
  });
}

absl::StatusOr<model::Bytes> HeldFrames::ReadPayload(const model::Frame& header) {
  OCTAVO_ASSIGN_OR_RETURN(const volume::VolumeHold hold,
                          context_.volumes->Hold(header.volume, volume::HoldKind::kRead));
  Device& device = context_.devices.device(hold.device);
  memory::FramePool& frames = *context_.devices.frames(hold.device);
  const StreamRef stream = context_.streams[static_cast<size_t>(hold.device)];
  if (header.product == model::Product::kVolume)
    return volume::CopyVolumeToHost(device, stream, frames, hold);
  const model::VolumeStatus& volume = hold.status;
  const int64_t bytes = publish::BytesOf(header);
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                          frames.Get(bytes, memory::FramePool::Use::kFrame));
  OCTAVO_RETURN_IF_ERROR(context_.projector->Project(
      hold,
      {.axis =
           header.product == model::Product::kAscan ? 0 : publish::PositionOf(volume, header.axis),
       .kind = std::nullopt,
       .box = publish::PlaneBox(volume, header)},
      nullptr, memory.get()));
  return model::Bytes{.owner = memory, .data = memory.get(), .size = bytes};
}

std::vector<model::VolumeStatus> HeldFrames::HeldBy(const std::string& name) {
  std::vector<model::VolumeStatus> held;
  if (absl::StartsWith(name, "jobs/")) {
    const auto job = context_.jobs->Get(name);
    if (!job.ok()) return held;
    for (const std::string& volume : job->volumes) {
      if (auto status = context_.volumes->Get(volume); status.ok())
        held.push_back(*std::move(status));
    }
  } else {
    held = context_.volumes->List({.parent = name, .in_memory = true});
    std::erase_if(held,
                  [](const model::VolumeStatus& volume) { return !volume.derived_from.empty(); });
  }
  std::erase_if(held, [](const model::VolumeStatus& volume) {
    return !model::IsComplete(volume.state) || volume.is_raw;
  });
  return held;
}

}  // namespace octavo::engine
