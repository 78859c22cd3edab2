#pragma once

// Private to this folder: what travels between a session's threads.

#include "server/scan/scan_session.h"

namespace octavo::scan {

/// A volume from its first record to its seal.
struct ScanSession::ActiveVolume {
  explicit ActiveVolume(AscanCoverage of) : assembly(std::move(of)) {}
  int64_t index = 0;
  std::shared_ptr<memory::VolumeSlot> slot;      // null: dropped for want of one
  std::shared_ptr<memory::VolumeSlot> raw_slot;  // with retention.hold_raw; null if slot is
  AscanCoverage assembly;
  model::VolumeStatus status, raw_status;
  double display_lo = 0, display_hi = 255;
  model::Retention retention;
};

struct ScanSession::PendingFrame {
  publish::TopicKey key;
  model::Frame frame;
  bool lost = false;     // no memory for it
  bool yielded = false;  // not made: the scan would have lost records
};

/// Something the retire thread does once the device has passed an event.
struct ScanSession::Completion {
  int event = -1;
  int ring_slot = -1;  // to be released
  int64_t loan = 0;    // to be returned; 0 = nothing was lent
  int64_t records = 0;
  std::shared_ptr<ActiveVolume> volume;  // complete: to be sealed
  absl::InlinedVector<PendingFrame, 2> frames;
  TimePoint acquired;
  int64_t enqueued_ns = 0;
  const int64_t *uploaded = nullptr, *processed = nullptr,
                *on_host = nullptr;  // stamps of a volume
  std::vector<std::shared_ptr<SpectralProcessor>> replaced;
  std::unique_ptr<processing::FirstRecords>
      first_records;  // with the first volume: to be looked at
};

struct ScanSession::VolumeFrameJob {
  volume::VolumeHold pinned;
  double display_lo = 0, display_hi = 255;
};

/// A device that takes some B-scans of the scan beside the home device; of a striped scan also the
/// home device itself, whose streams, raw blocks and processor are the session's own.
struct ScanSession::Peer {
  Peer(Device& of, int at) : device(of), index(at) {}
  Device& device;
  const int index;
  memory::VolumeSlot part;  // its B-scans in their places; the others' are stale
  DeviceBuffer raw[kRawBuffers];
  DeviceBuffer placement[2];
  std::shared_ptr<SpectralProcessor> processor;
  Stream upload, compute, copy;
  Event uploaded[kRawBuffers], raw_free[kRawBuffers];
  Event processed, copied;  // of compute and copy
  struct OpenRow {
    int64_t row, end;  // one past its last record
  };
  std::vector<OpenRow> open;  // B-scans that the processor may not have made whole yet
  std::vector<std::pair<int64_t, int64_t>> rows;  // first, count: to be sent home
};

/// One device of the scan and the raw block on it: home or a peer.
struct ScanSession::Lane {
  Device& device;
  StreamRef upload, compute;
  uint8_t* raw;
  Event& uploaded;
  Event& raw_free;
  SpectralProcessor& processor;
  const DeviceBuffer (&placement)[2];
};

SpectralTarget TargetOf(const model::ResolvedScan& scan, const memory::VolumeSlot& slot);
/// Of one device of a striped volume.
SpectralTarget TargetOf(const model::ResolvedScan& scan, const memory::VolumeStripe& stripe);

/// Header of a VOLUME frame, without payload.
model::Frame VolumeFrame(const model::VolumeStatus& volume, double display_lo, double display_hi);
}  // namespace octavo::scan
