#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "server/model/resolved_scan.h"
#include "server/scan/acquirer.h"
#include "server/scan/block_ring.h"
#include "server/scan/completion_queue.h"
#include "server/scan/device_lanes.h"
#include "server/scan/product_maker.h"
#include "server/scan/record_tap.h"
#include "server/scan/scan_events.h"
#include "server/scan/scan_lifecycle.h"
#include "server/scan/scan_progress.h"
#include "server/scan/volume_builder.h"

namespace octavo::scan {

/// A block on its way through the compute thread.
struct BlockContext {
  BlockRing::Part part;
  const uint8_t* data = nullptr;      // in the ring, or lent
  size_t raw = 0;                     // index of its raw buffer on the device
  int64_t taken_ns = 0;               // when it was taken from the ring
  const int64_t* uploaded = nullptr;  // its stamp, if a volume may end with it
  int mark = -1;                      // the same: CompletionQueue::MarkLastBlock
  int64_t done = 0;                   // its records that are already handled
  Segment segment;                    // the next records to handle; all in one volume
  bool completes = false;             // the segment completes the active volume

  const source::SourceBlock& block() const { return part.block; }
};

/// The body of the compute thread: takes blocks from the ring and enqueues all device work for
/// them. It only enqueues; the thread waits for a free slot or a free event, never for a kernel.
class BlockPipeline {
 public:
  struct Context {
    std::string scan;
    const Clock* clock = nullptr;
    Acquirer* acquirer = nullptr;
    DeviceLanes* lanes = nullptr;
    VolumeBuilder* builder = nullptr;
    ProductMaker* products = nullptr;
    RecordTap* tap = nullptr;  // null: nobody wants single records
    CompletionQueue* completions = nullptr;
    ScanEvents* events = nullptr;
    ScanProgress* progress = nullptr;
    ScanLifecycle* life = nullptr;
  };
  /// `scan` is the object that the builder replaces between volumes. All arguments must outlive
  /// this object.
  BlockPipeline(const model::ResolvedScan& scan, Context context);

  /// Runs until the ring is closed and empty, the last volume has ended, or the scan is aborted.
  /// Then calls `stop_acquiring`, which returns once the acquisition thread has ended, ends the
  /// unfinished last volume, and reports why the scan ends.
  void Run(const std::function<void()>& stop_acquiring);

 private:
  absl::Status Process(BlockContext& block);
  // The five steps of a block.
  absl::Status Upload(BlockContext& block);
  absl::StatusOr<bool> Place(BlockContext& block);
  absl::Status RunChain(BlockContext& block);
  absl::Status MakeProducts(BlockContext& block);
  absl::Status Complete(BlockContext& block);

  int64_t WithoutPlace(const BlockContext& block);
  absl::Status StampUpload(BlockContext& block);
  absl::Status MakePreview(const BlockContext& block);
  absl::Status EndVolume(const BlockContext& block, TimePoint acquired);
  absl::Status FinishVolume(const std::shared_ptr<ActiveVolume>& volume, const BlockContext& block,
                            TimePoint acquired);
  absl::Status PushVolume(Completion item);
  void FailVolume(const ActiveVolume& volume);
  void FailForDevice(const absl::Status& status);
  void End(const BlockContext& last);

  const model::ResolvedScan& scan_;
  const Context context_;
  const int64_t record_average_;
  int64_t blocks_ = 0, volumes_ = 0;  // blocks taken; volumes pushed
  int64_t awaited_record_ = 0;        // every earlier record has been handled
};

}  // namespace octavo::scan
