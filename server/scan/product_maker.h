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

/// Projections, planes and angiograms of volumes, on their way to subscribers. Those of complete
/// volumes have a stream of their own, beside the next kernels; previews go with the kernels that
/// they interrupt. Compute thread; enqueues only.
///
/// Products yield to the scan. Those that subscribers ask for are made beside the chain, on the
/// same device and, on the host, by the same cores. They keep their volume's slot, and those of the
/// volumes that come after it, until they are made: enough of them fill the ring of blocks behind
/// them, and a source that cannot wait loses records. What one costs is not known before, and what
/// is enqueued cannot be taken back, so each volume has an allowance of them: it grows while
/// volumes get through in time and halves when they pile up; a volume behind which others wait
/// already, or with a ring that fills, has none. The others are left out and counted as dropped
/// frames (policy "yielded"). Which of them comes first goes around, so that each has its turn. A
/// source that can wait does: nothing is left out then. The scan's own projections cost next to
/// nothing, they are made with the volume.
class ProductMaker {
 public:
  struct Context {
    std::string scan;
    publish::Publisher* publisher = nullptr;
    std::shared_ptr<memory::FramePool> frames;
    bool source_waits = false;               // without loss, while the scan is behind
    std::function<double()> ring_occupancy;  // of the ring before the compute thread, 0 ... 1
    std::function<int()> volumes_behind;     // complete ones that are not through the device
  };
  /// `scan` and `lanes` must outlive this. Of `scan` the chain may change between volumes.
  ProductMaker(const model::ResolvedScan& scan, DeviceLanes* lanes, Context context);

  absl::Status Allocate();
  void Free();
  /// Of complete volumes.
  StreamRef stream() const { return stream_.ref(); }

  /// Adds the products of a complete volume to its completion. What was enqueued on the lanes'
  /// compute stream comes before.
  absl::Status Make(const ActiveVolume& volume, Completion* item);
  /// Whether it is time for a preview: since the last one for which this was true.
  bool PreviewIsDue(int64_t now_ns);
  /// Adds those products of a volume that grow with it and that subscribers want to preview.
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
  /// How many products that subscribers ask for may be made of the volume that is complete now.
  size_t Allowance();
  /// Whether records will be lost soon.
  bool RingFills() const;

  const model::ResolvedScan& scan_;
  DeviceLanes& lanes_;
  const Context context_;
  Stream stream_;
  Event volume_ready_;    // what products are made of is there
  DeviceBuffer scratch_;  // one plane
  DeviceBuffer repeat_rows_,
      angiogram_;          // [bscans, repeats] and f32 [bscans, x], with products.angiography
  size_t turn_ = 0;        // which subscribed product comes first
  size_t allowance_ = 32;  // of a volume; doubled before the first
  int64_t last_preview_ns_ = 0;
};

}  // namespace octavo::scan
