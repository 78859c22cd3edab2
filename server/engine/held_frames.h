#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/stream.h"
#include "server/base/worker_pool.h"
#include "server/job/job_queue.h"
#include "server/memory/device_set.h"
#include "server/publish/held_frame_source.h"
#include "server/volume/volume_projector.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Makes volume and B-scan frames from held volumes, for subscribers of scans and jobs.
class HeldFrames final : public publish::HeldFrameSource {
 public:
  struct Context {
    memory::DeviceSet devices;
    std::vector<StreamRef> streams;  // by device, of low priority
    volume::VolumeStore* volumes = nullptr;
    volume::VolumeProjector* projector = nullptr;
    job::JobQueue* jobs = nullptr;
    base::WorkerPool* workers = nullptr;
  };
  explicit HeldFrames(Context context) : context_(std::move(context)) {}

  void Load(const model::FramePtr& header,
            std::function<void(absl::StatusOr<model::FramePtr>)> done) override;
  std::vector<model::VolumeStatus> HeldBy(const std::string& name) override;

 private:
  absl::StatusOr<model::Bytes> ReadPayload(const model::Frame& header);

  const Context context_;
};

}  // namespace octavo::engine
