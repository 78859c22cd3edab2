#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/stats.h"
#include "server/model/status_types.h"
#include "server/model/stop_forecast.h"

namespace octavo::drain {

/// Writes `bytes` into a file of `folder` that has no name, and syncs it. Bytes a second.
absl::StatusOr<double> MeasureDisk(const std::string& folder, int64_t bytes);

/// How fast the disk of a folder takes what must stay: measured once, on a thread of its own; and
/// by what was written since, once that is enough to say more.
class DiskRate {
 public:
  static constexpr int64_t kProbeBytes = 16 << 20;
  /// What was written tells less than the measurement if it has fewer bytes than this.
  static constexpr int64_t kEnoughBytes = int64_t{64} << 20;

  /// Whose bytes are written there.
  enum class Of { kSpills, kCommits };

  /// Measures `folder`; empty = there is none. A disk that hangs holds up nobody, not even the
  /// destructor: the thread is left to itself. `remembered`: bytes a second that an earlier daemon
  /// wrote there, 0 = not known; the measurement, which has no volumes to read and to sum, does not
  /// exceed it. `measure`: what measures (tests give their own).
  explicit DiskRate(
      const std::string& folder, Of of = Of::kSpills, double remembered = 0,
      std::function<absl::StatusOr<double>(const std::string&, int64_t)> measure = MeasureDisk);
  /// 0 = not measured yet, or it failed. `stats`: with the spills and commits since the start.
  double BytesPerSecond(const model::Stats& stats) const;

 private:
  const Of of_;
  const std::shared_ptr<std::atomic<double>> measured_;  // shared with the thread
};

/// `volumes`: those in memory.
model::StopForecast ForecastStop(const std::vector<model::VolumeStatus>& volumes,
                                 int64_t room_bytes, double bytes_per_second, double limit_seconds);

}  // namespace octavo::drain
