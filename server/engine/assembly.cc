#include "server/engine/assembly.h"

namespace octavo::engine {

void VolumeAssembly::Placed(int64_t first, int64_t count) {
  if (first > next_) Miss(next_, first);
  next_ = std::max(next_, first + count);
}

void VolumeAssembly::Finish() {
  if (next_ < active_records()) Miss(next_, active_records());
  next_ = std::max(next_, active_records());
}

// Records [first, last) were lost: one range of A-scans per line they touch.
void VolumeAssembly::Miss(int64_t first, int64_t last) {
  const int64_t line = raster_.ascans_per_bscan + raster_.flyback_records;
  last = std::min(last, active_records());
  for (int64_t y = first / line; y * line < last; ++y) {
    const int64_t x0 = std::max(first - y * line, int64_t{0});
    const int64_t x1 = std::min(last - y * line, raster_.ascans_per_bscan);
    if (x0 >= x1) continue;
    const bool mirrored = raster_.bidirectional && (y & 1);
    const int64_t begin = y * raster_.ascans_per_bscan + (mirrored ? raster_.ascans_per_bscan - x1 : x0);
    missing_ascans_ += x1 - x0;
    if (!missing_.empty() && missing_.back().first + missing_.back().second == begin) {
      missing_.back().second += x1 - x0;
    } else if (!missing_.empty() && begin + x1 - x0 == missing_.back().first) {
      missing_.back().first = begin;
      missing_.back().second += x1 - x0;
    } else {
      missing_.emplace_back(begin, x1 - x0);
    }
  }
}

}  // namespace octavo::engine
