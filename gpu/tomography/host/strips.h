#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

namespace octavo::inline gpu::host {

/// Calls f(strip, scratch) for all strips, in parallel. `scratch` has so many floats, aligned to 64
/// bytes.
template <class F>
absl::Status ForStrips(int64_t strips, int64_t scratch_floats, const F& f) {
  std::atomic<bool> enough = true;
  const auto bytes = static_cast<size_t>(scratch_floats) * sizeof(float);
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, strips), [&](const auto& range) {
    const std::unique_ptr<float, decltype(&std::free)> scratch(
        static_cast<float*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), &std::free);
    if (scratch == nullptr) {
      enough = false;
      return;
    }
    for (int64_t strip = range.begin(); strip < range.end(); ++strip) f(strip, scratch.get());
  });
  if (enough) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no ", bytes, " bytes of memory for a thread's transforms"));
}

}  // namespace octavo::inline gpu::host
