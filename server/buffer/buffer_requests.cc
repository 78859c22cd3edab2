#include "server/buffer/buffer_requests.h"

#include "gpu/base/status.h"

namespace octavo::buffer {

absl::Status BufferRequests::CheckOpen() const {
  if (!draining_) return absl::OkStatus();
  return WithInfo(absl::UnavailableError(
                      "the server is draining and takes no new work; try another one or later"),
                  {.reason = Reason::kDraining, .field = "", .numbers = {{"retryable", "true"}}});
}

absl::StatusOr<std::string> BufferRequests::Begin(const std::string& id, const std::string& digest,
                                                  const std::string& principal) {
  MutexLock lock(mutex_);
  return ids_.Begin(id, digest, principal);
}

void BufferRequests::End(const std::string& id, const std::string& name) {
  MutexLock lock(mutex_);
  ids_.End(id, name);
}

}  // namespace octavo::buffer
