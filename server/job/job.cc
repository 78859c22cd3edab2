#include "server/job/job.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/exportable_memory.h"

namespace octavo::job {

const char* Name(JobState state) {
  switch (state) {
    case JobState::kQueued: return "QUEUED";
    case JobState::kRunning: return "RUNNING";
    case JobState::kCancelling: return "CANCELLING";
    case JobState::kDone: return "DONE";
    case JobState::kFailed: return "FAILED";
    case JobState::kCancelled: return "CANCELLED";
    case JobState::kLost: return "LOST";
  }
  return "?";
}

const char* Name(JobKind kind) {
  switch (kind) {
    case JobKind::kNone: return "";
    case JobKind::kReprocess: return "reprocess";
    case JobKind::kDispersionAutofocus: return "dispersion_autofocus";
    case JobKind::kKCalibration: return "k_calibration";
    case JobKind::kTomography: return "tomography";
    case JobKind::kImport: return "import";
    case JobKind::kProjection: return "projection";
  }
  return "?";
}

absl::Status CheckTransition(const std::string& job, JobState from, JobState to) {
  const bool allowed = [&] {
    switch (from) {
      case JobState::kQueued:
        return to == JobState::kRunning || to == JobState::kCancelled || to == JobState::kFailed;
      case JobState::kRunning:
        return to == JobState::kDone || to == JobState::kFailed || to == JobState::kCancelling;
      case JobState::kCancelling: return to == JobState::kCancelled || to == JobState::kFailed;
      default: return false;
    }
  }();
  if (allowed) return absl::OkStatus();
  return WithInfo(absl::FailedPreconditionError(
                      absl::StrCat(job, " is ", Name(from), " and cannot become ", Name(to))),
                  {.reason = Reason::kJobState,
                   .field = "name",
                   .numbers = {{"state", Name(from)}, {"wanted_state", Name(to)}}});
}

int64_t JobPlan::Result::charged_bytes() const {
  return (on_disk ? 0 : ClientMemory::Bytes(AlignedBytes(bytes))) + AlignedBytes(mip_bytes) +
         kMemoryAlignment;
}

int64_t JobPlan::bytes() const {
  int64_t sum = workspace_bytes + buffer_bytes;
  for (const Result& result : results)
    sum += (result.on_disk ? 0 : result.bytes) + result.mip_bytes;
  return sum;
}

}  // namespace octavo::job
