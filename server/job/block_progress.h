#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"

namespace octavo::job {

/// The steps of a stage that enqueues blocks on the job's stream, faster than the device computes
/// them: keeps the host a few blocks ahead only, so that the steps are those of the device and a
/// cancelled job ends soon. Used by the job's thread.
class BlockProgress {
 public:
  /// `run` must outlive this object.
  static absl::StatusOr<std::unique_ptr<BlockProgress>> Create(JobRun& run, std::stop_token stop);

  /// Before a block: `done` blocks are enqueued. Cancelled if a stop was requested.
  absl::Status OnBlock(int64_t done);

 private:
  BlockProgress(JobRun& run, std::stop_token stop) : run_(run), stop_(std::move(stop)) {}

  JobRun& run_;
  const std::stop_token stop_;
  Event passed_[2];
};

}  // namespace octavo::job
