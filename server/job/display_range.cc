#include "server/job/display_range.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

#include "gpu/base/status.h"
#include "gpu/device/buffer.h"

namespace octavo::job {
namespace {

constexpr int64_t kMostDisplayed =
    int64_t{64} << 20;  // bytes sampled for the values to show as black and white
constexpr double kDarkPart = 0.002, kBrightPart = 0.998;  // of the pixels

// Values are counted by the high half of their keys, and then those that share it with a wanted one
// by the low half: nothing is copied, whatever the values are.
constexpr int kHalf = 16;
constexpr size_t kBins = size_t{1} << kHalf;
constexpr int64_t kPart = 256 << 10;  // values of a task

/// Numbers in the order of the floats.
uint32_t KeyOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits >> 31) != 0 ? ~bits : bits | (uint32_t{1} << 31);
}
float ValueOf(uint32_t key) {
  return std::bit_cast<float>((key >> 31) != 0 ? key & ~(uint32_t{1} << 31) : ~key);
}

using Bins = std::vector<int64_t>;

/// How many of the finite values have each half key; `half_of` gives that of a key, or nothing.
template <class HalfOf>
Bins CountsOf(const float* values, int64_t count, const HalfOf& half_of) {
  // As many counts of all bins as there are threads.
  const int64_t parts =
      std::clamp<int64_t>(count / kPart, 1, tbb::this_task_arena::max_concurrency());
  std::vector<Bins> counts(static_cast<size_t>(parts), Bins(kBins));
  tbb::parallel_for(int64_t{0}, parts, [&](int64_t part) {
    Bins& bins = counts[static_cast<size_t>(part)];
    const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
    for (int64_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      if (const std::optional<size_t> half = half_of(KeyOf(values[i]))) ++bins[*half];
    }
  });
  for (size_t part = 1; part < counts.size(); ++part) {
    for (size_t bin = 0; bin < kBins; ++bin) counts.front()[bin] += counts[part][bin];
  }
  return std::move(counts.front());
}

/// A place in the order of the values, by the bin that has it.
struct Place {
  size_t bin = 0;
  int64_t within = 0;  // in the order of the bin's values
};
Place PlaceOf(const Bins& bins, int64_t place) {
  size_t bin = 0;
  for (; place >= bins[bin]; ++bin) place -= bins[bin];
  return {.bin = bin, .within = place};
}

}  // namespace

DisplayRange DisplayRangeOf(const float* values, int64_t count) {
  const Bins high =
      CountsOf(values, count, [](uint32_t key) { return std::optional<size_t>(key >> kHalf); });
  const int64_t finite = std::accumulate(high.begin(), high.end(), int64_t{0});
  DisplayRange range = {.not_finite = count - finite, .looked_at = count};
  if (finite == 0) return range;
  const auto at = [&](double part) {
    const Place place = PlaceOf(high, std::lround(part * static_cast<double>(finite - 1)));
    const Bins low = CountsOf(values, count, [&](uint32_t key) {
      return key >> kHalf == place.bin ? std::optional<size_t>(key % kBins) : std::nullopt;
    });
    const size_t key = place.bin * kBins + PlaceOf(low, place.within).bin;
    return static_cast<double>(ValueOf(static_cast<uint32_t>(key)));
  };
  range.lo = at(kDarkPart);
  range.hi = at(kBrightPart);
  return range;
}

absl::StatusOr<DisplayRange> FindDisplayRange(JobRun& run, const float* image, int64_t rows,
                                              int64_t columns) {
  const int64_t shown = std::clamp<int64_t>(kMostDisplayed / (columns * 4), 1, rows),
                count = shown * columns;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run.device().AllocatePinned(count * 4));
  const absl::Status copied = run.device().CopyToHost(
      run.stream(), host.data(), image + (rows - shown) / 2 * columns, count * 4);
  OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
  OCTAVO_RETURN_IF_ERROR(copied);
  return DisplayRangeOf(host.as<float>(), count);
}

}  // namespace octavo::job
