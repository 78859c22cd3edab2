#include "server/scan/ascan_coverage.h"

namespace octavo::scan {

void AscanCoverage::Placed(int64_t first, int64_t count) {
  if (first > next_) Miss(next_, first);
  next_ = std::max(next_, first + count);
}

void AscanCoverage::Finish() {
  if (next_ < active_records()) Miss(next_, active_records());
  next_ = std::max(next_, active_records());
  // Placement tables may place in any order; neighbouring ranges are joined at the end.
  std::sort(missing_.begin(), missing_.end());
  std::vector<std::pair<int64_t, int64_t>> joined;
  for (const auto& range : missing_) {
    if (!joined.empty() && joined.back().first + joined.back().second == range.first) {
      joined.back().second += range.second;
    } else {
      joined.push_back(range);
    }
  }
  missing_ = std::move(joined);
}

void AscanCoverage::Add(int64_t begin, int64_t count) {
  missing_ascans_ += count;
  if (!missing_.empty() && missing_.back().first + missing_.back().second == begin) {
    missing_.back().second += count;
  } else if (!missing_.empty() && begin + count == missing_.back().first) {
    missing_.back().first = begin;
    missing_.back().second += count;
  } else {
    missing_.emplace_back(begin, count);
  }
}

void AscanCoverage::MissPlaced(int64_t first, int64_t last) {
  for (int64_t record = first; record < last; ++record) {
    const int32_t ascan = (*placement_)[static_cast<size_t>(record)];
    if (ascan < 0) continue;
    if (passes_ > 1) {
      if (lost_.size() <= static_cast<size_t>(ascan)) lost_.resize(static_cast<size_t>(ascan) + 1);
      if (++lost_[static_cast<size_t>(ascan)] < passes_) continue;
    }
    Add(ascan, 1);
  }
}

// Records [first, last) were lost: one range of A-scans per line they touch.
void AscanCoverage::Miss(int64_t first, int64_t last) {
  last = std::min(last, active_records());
  if (placement_ != nullptr) return MissPlaced(first, last);
  const int64_t line = raster_.ascans_per_bscan + raster_.flyback_records;
  for (int64_t y = first / line; y * line < last; ++y) {
    const int64_t x0 = std::max(first - y * line, int64_t{0});
    const int64_t x1 = std::min(last - y * line, raster_.ascans_per_bscan);
    if (x0 >= x1) continue;
    const bool mirrored = raster_.bidirectional && (y & 1);
    Add(y * raster_.ascans_per_bscan + (mirrored ? raster_.ascans_per_bscan - x1 : x0), x1 - x0);
  }
}

}  // namespace octavo::scan
