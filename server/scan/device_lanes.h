#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/project.h"
#include "gpu/base/reason.h"
#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"
#include "server/memory/volume_slot.h"
#include "server/model/frame.h"
#include "server/model/resolved_scan.h"
#include "server/scan/block_shares.h"
#include "server/scan/scan_memory.h"
#include "server/source/source.h"

namespace octavo::scan {

/// Records of a block that belong to one volume.
struct Segment {
  int64_t volume = 0;        // counted from the start of the scan
  int64_t first_record = 0;  // within the volume
  int64_t records = 0;
  int64_t active = 0;  // this many, counted from the first, carry A-scans with a place
};

/// The devices that a scan runs on, one lane each: streams, raw blocks, events, placement tables
/// and processors. The first lane is home. A volume lies either whole at home or in stripes on all
/// lanes; of a striped volume only the projections are gathered at home. The other lanes process
/// some B-scans of each block; streams of their own copy the results home while their next kernels
/// run. With a single device, its lane processes every block in one piece.
///
/// For the compute thread, except where a function says otherwise. Functions only enqueue work;
/// only Allocate allocates memory.
class DeviceLanes {
 public:
  /// `scan` must outlive this object. Replace may change its chain; everything else that is read
  /// here must not change. `devices`: home first.
  DeviceLanes(const model::ResolvedScan& scan, const std::vector<ScanDevice>& devices);
  ~DeviceLanes();

  /// Opens the streams of the home device. They come first because slots are scrubbed on compute()
  /// before the rest is allocated.
  absl::Status OpenStreams();
  absl::Status Allocate();
  /// Waits for all work enqueued on all lanes. Returns the first failure, after all waits.
  absl::Status Synchronize();
  /// Call after the device has finished all work.
  void Free();
  /// Releases the tables on the host.
  void LetGo() { shares_.LetGo(); }

  size_t size() const { return lanes_.size(); }
  Device& home() const { return *devices_[0].device; }
  /// The home device's stream for the chain. It waits for the other lanes only where a function
  /// says so.
  StreamRef compute() const;

  // -- a block
  /// Copies a block from page-locked memory into raw buffer `raw` of each lane that has a share of
  /// it, while the kernels of the previous block run. The chain waits for the copy.
  absl::Status Upload(size_t raw, const uint8_t* from, const source::SourceBlock& block);
  /// Address of record `record` of a block on the home device. The home device holds the whole
  /// block only if there is one lane.
  const uint8_t* RawAt(size_t raw, int64_t record) const;
  /// Runs the chain over a segment of the block in raw buffer `raw`. If `slot` is null, the volume
  /// has no slot and its records only feed a rolling background. Copies whole rows home.
  absl::Status Process(size_t raw, const source::SourceBlock& block, const Segment& segment,
                       const memory::VolumeSlot* slot);
  /// All segments of the block were processed. The raw buffer is free after the work enqueued so
  /// far, and compute() has waited for the uploads of all lanes.
  absl::Status EndBlock(size_t raw);

  // -- a volume
  /// Call before the first record of a volume. Clears its live projections and counts. The voxels
  /// need no fill here: EndVolume fills the A-scans that stay unplaced.
  absl::Status BeginVolume(const memory::VolumeSlot* slot);
  /// Call after the last record of a volume. `missing`: A-scans (first, count) to be filled.
  /// compute() has waited for all lanes.
  absl::Status EndVolume(const memory::VolumeSlot& slot,
                         const std::vector<std::pair<int64_t, int64_t>>& missing);
  /// Makes compute() wait for the work enqueued on the other lanes so far.
  absl::Status Join();
  /// Copies the seal words of the volume to page-locked `words`, memory::kSealWords for each lane.
  /// Afterwards `stream`, of the home device, has waited for all lanes.
  absl::Status EnqueueSeal(StreamRef stream, const memory::VolumeSlot& slot, uint64_t* words);
  /// Copies each lane's count of non-finite records to page-locked `words`, on the lane's own
  /// stream, which changes it. Call before EnqueueSeal, which waits for the copies.
  absl::Status EnqueueNonFinite(uint64_t* words);
  struct SealSum {
    uint64_t digest = 0;
    int64_t clipped_below = 0, clipped_above = 0;
  };
  /// Combines the words of EnqueueSeal for the whole volume. Any thread.
  SealSum Sum(const uint64_t* words) const;

  // -- products of a volume, on a stream of the home device
  /// Cuts a plane from a volume and returns its address, `scratch`. Null: the volume lies across
  /// devices.
  absl::StatusOr<const void*> CutPlane(StreamRef stream, const memory::VolumeSlot& slot, Axis axis,
                                       int64_t index, void* scratch);
  /// Returns the address of a volume's maximum projection, over z of `slab` alone if that is given:
  /// `scratch`, or the projection made with the volume. Null: the projection would run across
  /// devices.
  absl::StatusOr<const void*> MakeMip(StreamRef stream, const memory::VolumeSlot& slot, Axis axis,
                                      const model::DepthRange& slab, void* scratch);

  // -- another processing, from volume `volume` on
  /// Replaces the processors in use, one for each lane. The old ones are kept until TakeReplaced.
  /// Returns whether all lanes continue their background.
  absl::StatusOr<bool> Replace(std::vector<std::shared_ptr<SpectralProcessor>> next,
                               int64_t volume);
  /// Processors replaced since the last call. They must live until the device has passed their last
  /// use, which comes before any event recorded on compute() after EndBlock.
  std::vector<std::shared_ptr<SpectralProcessor>> TakeReplaced();
  std::string Describe() const;  // of the home processor

  // -- any thread
  /// The first error of the copies that the other lanes sent home. Retire thread, after an event
  /// that waited for those copies.
  absl::Status SentStatus();
  bool Uses(int device) const;
  /// devices/<n> of all lanes, home first; empty if there is only one.
  std::vector<std::string> SpreadNames() const;
  struct Failure {
    Reason code = Reason::kNone;
    std::string reason;
  };
  /// The reason that a scan fails with: DEVICE_LOST if one of its devices is lost, else
  /// DEVICE_ERROR.
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
  absl::Status AwaitPulls(size_t l);
  absl::Status BringSums(size_t from, int64_t first, int64_t entries);
  bool rolling() const { return scan_.chain.background == math::Background::kRolling; }
  /// Whether a lane sends its results home.
  bool Sends(size_t lane) const { return lane > 0 || striped_; }

  const model::ResolvedScan& scan_;
  const std::vector<ScanDevice> devices_;
  const bool striped_;
  const int64_t record_bytes_;
  BlockShares shares_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Event begun_;  // the home device has prepared the volume; with several lanes
  std::vector<std::shared_ptr<SpectralProcessor>> replaced_;
};

}  // namespace octavo::scan
