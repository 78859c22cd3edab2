#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/project.h"
#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"
#include "server/memory/volume_slot.h"
#include "server/model/resolved_scan.h"
#include "server/scan/block_shares.h"
#include "server/scan/scan_memory.h"
#include "server/source/source.h"

namespace octavo::scan {

/// Records of a block that are in one volume.
struct Segment {
  int64_t volume = 0;        // counted from the start of the scan
  int64_t first_record = 0;  // within the volume
  int64_t records = 0;
  int64_t active = 0;  // of them, from the first on, carry A-scans that have a place
};

/// The devices that a scan runs on, one lane each: streams, raw blocks, events, placement tables
/// and processors. The first lane is home: a volume lies there whole, or in stripes on all lanes of
/// which only the projections come together at home. The other lanes take some B-scans of each
/// block; what they make is copied home on streams of their own, beside their next kernels. One
/// device is one lane, which takes every block in one piece.
///
/// Used by the compute thread but where it says otherwise; enqueues only, and allocates nothing
/// after Allocate.
class DeviceLanes {
 public:
  /// `scan` must outlive this. Its chain may change with Replace, nothing else that is read here.
  /// `devices`: home first.
  DeviceLanes(const model::ResolvedScan& scan, const std::vector<ScanDevice>& devices);
  ~DeviceLanes();

  /// The streams of the home device: slots are scrubbed on compute() before the rest is there.
  absl::Status OpenStreams();
  absl::Status Allocate();
  /// Waits for what is enqueued on all lanes.
  void Synchronize();
  /// When the device is through with all.
  void Free();
  /// Tables on the host.
  void LetGo() { shares_.LetGo(); }

  size_t size() const { return lanes_.size(); }
  Device& home() const { return *devices_[0].device; }
  /// The home device's stream of the chain. Whatever is on another lane is waited for there where
  /// that is said.
  StreamRef compute() const;

  // -- a block
  /// Copies a block from page-locked memory into raw buffer `raw` of each lane that has a share of
  /// it, beside the kernels of the block before. The chain waits for it.
  absl::Status Upload(size_t raw, const uint8_t* from, const source::SourceBlock& block);
  /// Where record `record` of a block lies on the home device; whole blocks are there with one
  /// lane.
  const uint8_t* RawAt(size_t raw, int64_t record) const;
  /// Runs the chain over a segment of the block that is in raw buffer `raw`. `slot` null: the
  /// volume has none, and the records only count for a rolling background. Rows that are whole are
  /// sent home.
  absl::Status Process(size_t raw, const source::SourceBlock& block, const Segment& segment,
                       const memory::VolumeSlot* slot);
  /// All segments of the block were processed: its raw buffer is free behind what is enqueued, and
  /// compute() has waited for the uploads of all lanes.
  absl::Status EndBlock(size_t raw);

  // -- a volume
  /// Before its first record. The volume itself needs no fill: what stays unplaced is filled when
  /// it ends. Its live projections do, and its counts.
  absl::Status BeginVolume(const memory::VolumeSlot* slot);
  /// After its last record; `missing`: A-scans (first, count) that are to be filled. compute() has
  /// waited for all lanes.
  absl::Status EndVolume(const memory::VolumeSlot& slot,
                         const std::vector<std::pair<int64_t, int64_t>>& missing);
  /// compute() goes on when the other lanes are where they are now.
  absl::Status Join();
  /// What the volume is sealed with, to page-locked `words`: memory::kSealWords of each lane.
  /// `stream`, of the home device, has waited for all lanes then.
  absl::Status EnqueueSeal(StreamRef stream, const memory::VolumeSlot& slot, uint64_t* words);
  /// How many records each lane has met that are not finite, to page-locked `words`; `stream`, of
  /// the home device, has waited for all lanes.
  absl::Status EnqueueNonFinite(StreamRef stream, uint64_t* words);
  struct SealSum {
    uint64_t digest = 0;
    int64_t clipped_below = 0, clipped_above = 0;
  };
  /// What the words of EnqueueSeal say of the whole volume. Any thread.
  SealSum Sum(const uint64_t* words) const;

  // -- products of a volume, on a stream of the home device
  /// Where the plane is that was cut from a volume: `scratch`. Null: it lies across devices.
  absl::StatusOr<const void*> CutPlane(StreamRef stream, const memory::VolumeSlot& slot, Axis axis,
                                       int64_t index, void* scratch);
  /// Where the maximum projection of a volume is: `scratch`, or where it was made with the volume.
  /// Null: it would go across devices.
  absl::StatusOr<const void*> MakeMip(StreamRef stream, const memory::VolumeSlot& slot, Axis axis,
                                      void* scratch);

  // -- another processing, from volume `volume` on
  /// Puts one processor for each lane in the place of those that are used now, which are kept until
  /// TakeReplaced. Returns whether the background goes on in all of them.
  absl::StatusOr<bool> Replace(std::vector<std::shared_ptr<SpectralProcessor>> next,
                               int64_t volume);
  /// Those that were replaced since the last call: they must live until the device has passed their
  /// last use, which is before an event that is recorded on compute() after EndBlock.
  std::vector<std::shared_ptr<SpectralProcessor>> TakeReplaced();
  std::string Describe() const;  // of the home processor

  // -- any thread
  /// The first error of what the other lanes have sent home. Retire thread, behind an event that
  /// waited for them.
  absl::Status SentStatus();
  bool Uses(int device) const;
  /// devices/<n> of all, home first; empty for one.
  std::vector<std::string> SpreadNames() const;
  struct Failure {
    std::string code, reason;
  };
  /// What a scan fails with: DEVICE_LOST if one of its devices is, else DEVICE_ERROR.
  Failure FailureOf(const absl::Status& status) const;

 private:
  struct Lane;
  absl::Status AllocateLane(size_t index);
  absl::Status AllocatePlacement(size_t index);
  RecordPlacement PlacementOf(const Lane& lane, int64_t volume, int64_t first_record) const;
  SpectralTarget TargetOf(size_t lane, const memory::VolumeSlot& slot) const;
  absl::Status ProcessShare(size_t raw, const BlockShares::Share& share, const Segment& segment,
                            int64_t offset, const memory::VolumeSlot* slot);
  template <class Part>
  absl::Status ClearProjections(size_t lane, const Part& part, int64_t ascans);
  absl::Status SendRows(size_t lane, const memory::VolumeSlot& slot);
  absl::Status FillMissing(const memory::VolumeSlot& slot,
                           const std::vector<std::pair<int64_t, int64_t>>& missing);
  absl::Status DigestStripes(StreamRef stream, const memory::VolumeSlot& slot, uint64_t* words);
  void ShareWindows();
  absl::Status BringSums(size_t from, int64_t first, int64_t entries);
  bool rolling() const { return scan_.chain.background == math::Background::kRolling; }
  /// Whether what a lane makes is sent home.
  bool Sends(size_t lane) const { return lane > 0 || striped_; }

  const model::ResolvedScan& scan_;
  const std::vector<ScanDevice> devices_;
  const bool striped_;
  const int64_t record_bytes_;
  BlockShares shares_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Event begun_;  // the home device has prepared the volume; of several lanes
  std::vector<std::shared_ptr<SpectralProcessor>> replaced_;
};

}  // namespace octavo::scan
