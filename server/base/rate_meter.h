#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

namespace octavo::base {

/// Events per second over about the last two seconds, or over the last two events if these are
/// further apart. 0 once no event came for two seconds and for twice the time between the last
/// events.
class RateMeter {
 public:
  void Add(int64_t now_ns, int64_t events) {
    total_ += events;
    if (samples_.size() > 1 && now_ns - samples_.back().first < 50'000'000) {
      samples_.back().second = total_;
    } else {
      samples_.emplace_back(now_ns, total_);
    }
    while (samples_.size() > 2 && now_ns - samples_.front().first > kWindowNs) samples_.pop_front();
  }
  double PerSecond(int64_t now_ns) const {
    if (samples_.empty()) return 0;
    const int64_t apart =
        samples_.size() > 1 ? samples_.back().first - samples_[samples_.size() - 2].first : 0;
    if (now_ns - samples_.back().first > std::max(kWindowNs, 2 * apart)) return 0;
    const int64_t span = now_ns - samples_.front().first;
    return span <= 0 ? 0
                     : static_cast<double>(total_ - samples_.front().second) * 1e9 /
                           static_cast<double>(span);
  }
  int64_t total() const { return total_; }

 private:
  static constexpr int64_t kWindowNs = 2'000'000'000;
  int64_t total_ = 0;
  std::deque<std::pair<int64_t, int64_t>> samples_;  // (time, total at that time)
};

}  // namespace octavo::base
