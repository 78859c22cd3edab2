#include "server/job/display_range.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
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

// Values are counted by the high half of their keys; only those that share it with a wanted one are
// put in order.
constexpr int kLowBits = 16;
constexpr size_t kBins = size_t{1} << (32 - kLowBits);
constexpr int64_t kPart = 256 << 10;  // values of a task

/// Numbers in the order of the floats.
uint32_t KeyOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits >> 31) != 0 ? ~bits : bits | (uint32_t{1} << 31);
}
size_t BinOf(float value) { return KeyOf(value) >> kLowBits; }

/// Calls `use(part, value)` for each finite value, parts side by side.
template <class Use>
void ForFinite(const float* values, int64_t count, int64_t parts, const Use& use) {
  tbb::parallel_for(int64_t{0}, parts, [&](int64_t part) {
    const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
    for (int64_t i = begin; i < end; ++i) {
      if (std::isfinite(values[i])) use(static_cast<size_t>(part), values[i]);
    }
  });
}

/// A place in the order of the values, by the bin that has it.
struct Place {
  size_t bin = 0;
  int64_t within = 0;  // in the order of the bin's values
};
Place PlaceOf(const std::vector<int64_t>& bins, int64_t place) {
  size_t bin = 0;
  for (; place >= bins[bin]; ++bin) place -= bins[bin];
  return {.bin = bin, .within = place};
}

}  // namespace

DisplayRange DisplayRangeOf(const float* values, int64_t count) {
  // As many counts of all bins as there are threads.
  const int64_t parts =
      std::clamp<int64_t>(count / kPart, 1, tbb::this_task_arena::max_concurrency());
  std::vector<std::vector<int64_t>> counts(static_cast<size_t>(parts));
  for (auto& bins : counts) bins.resize(kBins);
  ForFinite(values, count, parts, [&](size_t part, float value) { ++counts[part][BinOf(value)]; });
  std::vector<int64_t> bins = std::move(counts.front());
  for (size_t part = 1; part < counts.size(); ++part) {
    for (size_t bin = 0; bin < kBins; ++bin) bins[bin] += counts[part][bin];
  }
  const int64_t finite = std::accumulate(bins.begin(), bins.end(), int64_t{0});
  DisplayRange range = {.not_finite = count - finite, .looked_at = count};
  if (finite == 0) return range;
  const auto at = [&](double part) {
    return PlaceOf(bins, std::lround(part * static_cast<double>(finite - 1)));
  };
  const Place places[] = {at(kDarkPart), at(kBrightPart)};
  std::vector<std::vector<float>> near[2];
  for (auto& of : near) of.resize(static_cast<size_t>(parts));
  ForFinite(values, count, parts, [&](size_t part, float value) {
    const size_t bin = BinOf(value);
    for (size_t which = 0; which < 2; ++which) {
      if (bin == places[which].bin) near[which][part].push_back(value);
    }
  });
  double found[2];
  for (size_t which = 0; which < 2; ++which) {
    std::vector<float> all;
    for (const auto& of : near[which]) all.insert(all.end(), of.begin(), of.end());
    const auto nth = all.begin() + places[which].within;
    std::nth_element(all.begin(), nth, all.end());
    found[which] = static_cast<double>(*nth);
  }
  range.lo = found[0];
  range.hi = found[1];
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
