#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_services.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/publish/topic.h"

namespace octavo::job {

/// The images that subscribers get of a running job: previews while it runs, and planes of its
/// results. Copies each through page-locked memory of the device's frame pool; without such memory
/// the publisher counts the frame as lost. Used by the job's thread only.
class JobPictures {
 public:
  JobPictures(const JobServices& services, std::string name, int device_index, StreamRef stream)
      : services_(services),
        name_(std::move(name)),
        device_index_(device_index),
        device_(services.devices.device(device_index)),
        stream_(stream) {}

  /// As those of JobRun.
  double PreviewDueIn() const;
  std::vector<publish::Wanted> Wanted() const { return services_.publisher->WantedOf(name_); }
  absl::Status Publish(const JobRun::Plane& plane);

  /// Publishes the MIP over z of a complete volume, and its planes with subscribers. `slot`: has
  /// its bytes; may be without a volume or a MIP.
  void PublishCuts(const model::VolumeStatus& volume, const memory::VolumeSlot& slot);

 private:
  const JobServices& services_;
  const std::string name_;
  const int device_index_;
  Device& device_;
  const StreamRef stream_;
  int64_t preview_ns_ = 0;  // of the last preview; 0: none
};

}  // namespace octavo::job
