#pragma once

#include <exception>
#include <new>

#include "absl/status/status.h"

#include "gpu/base/status.h"

namespace octavo::engine {

/// Does `work`, which answers with a Status or a StatusOr. What a library throws becomes the answer, so that whoever waits for the end of
/// the work gets one: ResourceExhausted (OUT_OF_MEMORY) for want of memory, else Internal.
template <class Work>
auto WithoutThrowing(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return WithInfo(absl::ResourceExhaustedError("no host memory left for it; try again"),
                    {.reason = "OUT_OF_MEMORY", .field = "", .numbers = {{"retryable", "true"}}});
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

}  // namespace octavo::engine
