#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::volume {

/// NotFound (VOLUME_GONE) for a volume that has left memory. `state`: its last one, "COMMITTED".
/// `reason`: why; may be empty. `more` ends the message.
inline absl::Status HasLeftMemory(const std::string& name, const std::string& state,
                                  const std::string& reason, const std::string& more = "") {
  return WithInfo(absl::NotFoundError(absl::StrCat(name, " has left memory: ", state,
                                                   reason.empty() ? "" : ", ", reason, more)),
                  {.reason = Reason::kVolumeGone, .field = "name", .numbers = {{"state", state}}});
}

}  // namespace octavo::volume
