#include "server/engine/source.h"

#include "gpu/base/status.h"
#include "server/engine/sources.h"

namespace octavo::engine {

absl::StatusOr<SourceTraits> InspectSource(const ScanSpec& spec, const std::vector<std::string>& replay_roots) {
  if (const auto* simulated = std::get_if<SimulatedSource>(&spec.source)) return InspectSimulated(spec, *simulated);
  if (const auto* replay = std::get_if<ReplaySource>(&spec.source)) return InspectReplay(spec, *replay, replay_roots);
  if (const auto* push = std::get_if<PushSource>(&spec.source)) return InspectPush(spec, *push);
  if (const auto* camera = std::get_if<CameraSource>(&spec.source)) return InspectCamera(spec, *camera);
  if (const auto* ring = std::get_if<RingSource>(&spec.source)) return InspectRing(spec, *ring);
  return InvalidField("source", "is not given; allowed are simulated, replay, push, camera, ring");
}

absl::StatusOr<std::unique_ptr<Source>> OpenSource(const ScanSpec& resolved, const std::vector<std::string>& replay_roots, const Clock* clock) {
  if (const auto* simulated = std::get_if<SimulatedSource>(&resolved.source)) return OpenSimulated(resolved, *simulated, clock);
  if (const auto* replay = std::get_if<ReplaySource>(&resolved.source)) return OpenReplay(resolved, *replay, replay_roots, clock);
  if (const auto* push = std::get_if<PushSource>(&resolved.source)) return OpenPush(resolved, *push, clock);
  if (const auto* camera = std::get_if<CameraSource>(&resolved.source)) return OpenCamera(resolved, *camera, clock);
  if (std::holds_alternative<RingSource>(resolved.source)) return OpenRing(resolved, clock);
  return InvalidField("source", "is not given; allowed are simulated, replay, push, camera, ring");
}

}  // namespace octavo::engine
