#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "server/model/frame.h"
#include "server/scan/completion.h"

namespace octavo::scan {

/// The times at which the device reached the boundaries of a volume's stages: page-locked stamps of
/// the device's clock, converted to the host's clock.
class StageClock {
 public:
  /// Makes room for `in_flight` blocks and as many volumes. Each kind has one more stamp, so that
  /// everything in flight keeps its own.
  absl::Status Allocate(Device& device, int64_t in_flight);
  void Free() { stamps_ = PinnedBuffer(); }

  // -- compute thread; each stamp is one word
  /// The stamp "block `block` is uploaded".
  HostSpan<int64_t> UploadStamp(int64_t block) const { return Stamp(block % slots_); }
  /// The stamps "volume `volume` is processed" and "its products are on the host".
  HostSpan<int64_t> ProcessedStamp(int64_t volume) const { return Stamp(slots_ + volume % slots_); }
  HostSpan<int64_t> OnHostStamp(int64_t volume) const {
    return Stamp(2 * slots_ + volume % slots_);
  }

  // -- retire thread
  /// The device's stamps for a volume, converted to the host's clock and in order; 0 where the
  /// device set none.
  model::StageTimes StagesOf(const Completion& item, int64_t seen_ns, int64_t sealed_ns) const;
  /// Reads the device's clock again if the last reading is old.
  void KeepInStep(Device& device, int64_t now_ns);

 private:
  HostSpan<int64_t> Stamp(int64_t i) const { return stamps_.span<int64_t>().From(i).First(1); }

  PinnedBuffer stamps_;  // i64 [3][slots_]
  int64_t slots_ = 0;
  ClockReading reading_;
};

}  // namespace octavo::scan
