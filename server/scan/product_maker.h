#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu/device/device.h"
#include "server/memory/frame_pool.h"
#include "server/model/resolved_scan.h"
#include "server/publish/publisher.h"
#include "server/scan/completion.h"
#include "server/scan/device_lanes.h"

namespace octavo::scan {

/// Makes projections, planes and angiograms of volumes for subscribers. Products of complete
/// volumes run on a stream of their own, beside the next kernels; previews run on the stream of the
/// kernels that they interrupt. Compute thread; enqueues only.
///
/// Products yield to the scan. Subscribed products compete with the chain for the device and, on
/// the host, for the cores. Until they are made, they keep their volume's slot and the slots of
/// later volumes. Too many of them fill the ring of blocks, and a source that cannot wait then
/// loses records. The cost of a product is not known in advance, and enqueued work cannot be
/// withdrawn. Each volume therefore has an allowance of products: it grows while volumes complete
/// in time and halves when they pile up. It is zero if other volumes already wait behind this one
/// or if the ring fills. Products beyond the allowance are skipped and counted as dropped frames
/// (policy "yielded"). The first product rotates from volume to volume, so each gets its turn. If
/// the source can wait, it does, and nothing is skipped. The scan's own projections are made with
/// the volume and cost next to nothing.
class ProductMaker {
 public:
  struct Context {
    std::string scan;
    publish::Publisher* publisher = nullptr;
    std::shared_ptr<memory::FramePool> frames;
    bool source_waits = false;               // waits without loss while the scan is behind
    std::function<double()> ring_occupancy;  // of the ring before the compute thread, 0 ... 1
    std::function<int()> volumes_behind;     // complete volumes still on the device
  };
  /// `scan` and `lanes` must outlive this object. The chain of `scan` may change between volumes.
  ProductMaker(const model::ResolvedScan& scan, DeviceLanes* lanes, Context context);

  absl::Status Allocate();
  void Free();
  /// The stream for products of complete volumes.
  StreamRef stream() const { return stream_.ref(); }

  /// Adds the products of a complete volume to its completion. They run after the work already
  /// enqueued on the lanes' compute stream.
  absl::Status Make(const ActiveVolume& volume, Completion* item);
  /// Whether a preview is due. Measured from the last call that returned true.
  bool PreviewIsDue(int64_t now_ns);
  /// Adds the products of a volume that grow with it and that subscribers want as previews.
  absl::Status MakePreview(const ActiveVolume& volume, Completion* item);

 private:
  absl::Status MakeProjections(const ActiveVolume& volume, bool complete,
                               const std::vector<publish::Publisher::Wanted>& wanted,
                               Completion* item);
  absl::Status MakeAngiogram(const ActiveVolume& volume, Completion* item);
  absl::Status MakeWanted(const ActiveVolume& volume, const publish::TopicKey& key,
                          Completion* item);
  bool Makes(const publish::TopicKey& key) const;
  absl::Status AddFrame(const ActiveVolume& volume, const publish::TopicKey& key,
                        const void* device_data, DType dtype, StreamRef stream, bool complete,
                        Completion* item);
  /// How many subscribed products may be made of the volume that has just completed.
  size_t Allowance();
  /// Whether the scan is about to lose records.
  bool RingFills() const;

  const model::ResolvedScan& scan_;
  DeviceLanes& lanes_;
  const Context context_;
  Stream stream_;
  Event volume_ready_;    // the input of the products is ready
  DeviceBuffer scratch_;  // one plane
  DeviceBuffer repeat_rows_,
      angiogram_;          // [bscans, repeats] and f32 [bscans, x], with products.angiography
  size_t turn_ = 0;        // which subscribed product comes first
  size_t allowance_ = 32;  // of a volume; doubled before the first
  int64_t last_preview_ns_ = 0;
};

}  // namespace octavo::scan
