#include "server/job/block_progress.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gpu/base/status.h"

namespace octavo::job {
namespace {

constexpr int64_t kBlocksAhead = 8;  // blocks between two events

}  // namespace

absl::StatusOr<std::unique_ptr<BlockProgress>> BlockProgress::Create(JobRun& run,
                                                                     std::stop_token stop) {
  std::unique_ptr<BlockProgress> self(new BlockProgress(run, std::move(stop)));
  for (Event& event : self->passed_) {
    OCTAVO_ASSIGN_OR_RETURN(event, run.device().NewEvent());
  }
  return self;
}

absl::Status BlockProgress::OnBlock(int64_t done) {
  if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  if (done == 0 || done % kBlocksAhead != 0) return absl::OkStatus();
  Event& event = passed_[done / kBlocksAhead % 2];
  OCTAVO_RETURN_IF_ERROR(event.Synchronize());  // of twice as many blocks before
  OCTAVO_RETURN_IF_ERROR(event.Record(run_.stream()));
  run_.Step(std::max<int64_t>(0, done - 2 * kBlocksAhead),
            std::numeric_limits<double>::quiet_NaN());
  return absl::OkStatus();
}

}  // namespace octavo::job
