#include "server/job/job_workspace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::job {

absl::Status JobWorkspace::Charge(int64_t bytes) {
  if (bytes < 0 || used_ + bytes > bytes_) {
    return absl::InternalError(absl::StrCat("the job wants ", bytes,
                                            " bytes more of its workspace of ", bytes_,
                                            ", of which it has used ", used_));
  }
  used_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<void*> JobWorkspace::Allocate(int64_t bytes) {
  OCTAVO_RETURN_IF_ERROR(Charge(bytes));
  auto buffer = device_.Allocate(bytes);
  if (!buffer.ok()) {
    used_ -= bytes;
    return buffer.status();
  }
  buffers_.push_back(*std::move(buffer));
  return buffers_.back().data();
}

void JobWorkspace::Free(void* data) {
  auto it = std::find_if(buffers_.begin(), buffers_.end(),
                         [&](const DeviceBuffer& buffer) { return buffer.data() == data; });
  if (it == buffers_.end()) return;
  used_ -= it->bytes();
  buffers_.erase(it);
}

}  // namespace octavo::job
