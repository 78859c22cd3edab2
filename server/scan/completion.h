#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"

#include "gpu/base/clock.h"
#include "gpu/spectral/spectral.h"
#include "server/memory/volume_slot.h"
#include "server/model/frame.h"
#include "server/model/status_types.h"
#include "server/processing/first_records.h"
#include "server/publish/publisher.h"
#include "server/scan/ascan_coverage.h"

namespace octavo::scan {

/// A volume from its first record to its seal. The compute thread fills it and then passes it to
/// the retire thread inside a Completion.
struct ActiveVolume {
  explicit ActiveVolume(AscanCoverage of) : coverage(std::move(of)) {}
  int64_t index = 0;
  std::shared_ptr<memory::VolumeSlot> slot;      // null: no slot was free, the volume is dropped
  std::shared_ptr<memory::VolumeSlot> raw_slot;  // with retention.hold_raw; null if `slot` is
  AscanCoverage coverage;
  model::VolumeStatus status, raw_status;
  double display_lo = 0, display_hi = 255;
  std::unique_ptr<processing::FirstRecords> first_records;  // first volume: for inspection
};

/// A product on its way to the host.
struct PendingFrame {
  publish::TopicKey key;
  model::Frame frame;
  bool lost = false;     // no memory for it
  bool yielded = false;  // not made, because the scan would have lost records
};

/// The work of the retire thread once the device has passed an event.
struct Completion {
  int event = -1;      // index in the CompletionQueue
  int ring_slot = -1;  // to be released
  int64_t loan = 0;    // to be returned; 0 = nothing was lent
  int64_t records = 0;
  std::shared_ptr<ActiveVolume> volume;  // a complete volume, to be sealed
  absl::InlinedVector<PendingFrame, 2> frames;
  TimePoint acquired;
  int64_t enqueued_ns = 0;
  int last_block = -1;  // of a volume: CompletionQueue::MarkLastBlock; -1 = not marked
  const int64_t *uploaded = nullptr, *processed = nullptr,
                *on_host = nullptr;                          // stamps of a volume
  std::vector<std::shared_ptr<SpectralProcessor>> replaced;  // kept alive until now
};

}  // namespace octavo::scan
