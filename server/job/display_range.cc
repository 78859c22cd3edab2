#include "server/job/display_range.h"

#include <algorithm>
#include <cmath>

#include "gpu/base/status.h"
#include "gpu/device/buffer.h"

namespace octavo::job {
namespace {

constexpr int64_t kMostDisplayed =
    int64_t{64} << 20;  // bytes sampled for the values to show as black and white
constexpr double kDarkPart = 0.002, kBrightPart = 0.998;  // of the pixels

}  // namespace

absl::StatusOr<DisplayRange> FindDisplayRange(JobRun& run, const float* image, int64_t rows,
                                              int64_t columns) {
  const int64_t shown = std::clamp<int64_t>(kMostDisplayed / (columns * 4), 1, rows),
                count = shown * columns;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run.device().AllocatePinned(count * 4));
  const absl::Status copied = run.device().CopyToHost(
      run.stream(), host.data(), image + (rows - shown) / 2 * columns, count * 4);
  OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
  OCTAVO_RETURN_IF_ERROR(copied);
  auto* const values = host.as<float>();
  // Numbers that are not finite have no place in an order.
  auto* const end =
      std::remove_if(values, values + count, [](float value) { return !std::isfinite(value); });
  DisplayRange range = {.not_finite = count - (end - values), .looked_at = count};
  if (end == values) return range;
  const auto n = static_cast<double>(end - values - 1);
  const auto at = [&](double part) {
    auto* const nth = values + static_cast<int64_t>(std::lround(part * n));
    std::nth_element(values, nth, end);
    return static_cast<double>(*nth);
  };
  range.lo = at(kDarkPart);
  range.hi = at(kBrightPart);
  return range;
}

}  // namespace octavo::job
