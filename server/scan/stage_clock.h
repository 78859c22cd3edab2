#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu/device/device.h"
#include "server/model/frame.h"
#include "server/scan/completion.h"

namespace octavo::scan {

/// The times at which the device came to the borders of a volume's stages: page-locked stamps by
/// its own clock, and what they are by the host's.
class StageClock {
 public:
  /// For `in_flight` blocks and as many volumes at once. One stamp more than that of each kind:
  /// what is in flight keeps its own.
  absl::Status Allocate(Device& device, int64_t in_flight);
  void Free() { stamps_ = PinnedBuffer(); }

  // -- compute thread
  /// Where to stamp that the upload of block `block` is there.
  int64_t* UploadStamp(int64_t block) const { return stamps_.as<int64_t>() + block % slots_; }
  /// Where to stamp that the `volume`-th volume is processed, and that its products are on the
  /// host.
  int64_t* ProcessedStamp(int64_t volume) const {
    return stamps_.as<int64_t>() + slots_ + volume % slots_;
  }
  int64_t* OnHostStamp(int64_t volume) const { return ProcessedStamp(volume) + slots_; }

  // -- retire thread
  /// What the device stamped for a volume, by the host's clock and in order; 0 where it did not.
  model::StageTimes StagesOf(const Completion& item, int64_t seen_ns, int64_t sealed_ns) const;
  /// Reads the device's clock again if that was long ago.
  void KeepInStep(Device& device, int64_t now_ns);

 private:
  PinnedBuffer stamps_;  // i64 [3][slots_]
  int64_t slots_ = 0;
  ClockReading reading_;
};

}  // namespace octavo::scan
