#include "server/scan/stage_clock.h"

#include <algorithm>

#include "gpu/base/status.h"

namespace octavo::scan {
namespace {

constexpr int64_t kClockReadNs = 100'000'000;  // clocks drift apart by some microseconds a second

}  // namespace

absl::Status StageClock::Allocate(Device& device, int64_t in_flight) {
  slots_ = in_flight + 1;
  OCTAVO_ASSIGN_OR_RETURN(
      stamps_, device.AllocatePinned(3 * slots_ * static_cast<int64_t>(sizeof(int64_t))));
  OCTAVO_ASSIGN_OR_RETURN(reading_, device.ReadClock());
  return absl::OkStatus();
}

// In order: an error of the conversion must not make a stage negative.
model::StageTimes StageClock::StagesOf(const Completion& item, int64_t seen_ns,
                                       int64_t sealed_ns) const {
  model::StageTimes stages{
      .taken_ns = item.enqueued_ns, .seen_ns = seen_ns, .sealed_ns = sealed_ns};
  int64_t before = stages.taken_ns;
  const auto host_time = [&](const int64_t* stamp) -> int64_t {
    if (stamp == nullptr || *stamp == 0 || reading_.host_ns == 0) return 0;
    return before = std::clamp(*stamp - reading_.device_ns + reading_.host_ns, before,
                               std::max(before, seen_ns));
  };
  stages.uploaded_ns = host_time(item.uploaded);
  stages.processed_ns = host_time(item.processed);
  stages.on_host_ns = host_time(item.on_host);
  return stages;
}

void StageClock::KeepInStep(Device& device, int64_t now_ns) {
  if (now_ns - reading_.host_ns <= kClockReadNs) return;
  if (const auto reading = device.ReadClock(); reading.ok()) reading_ = *reading;
}

}  // namespace octavo::scan
