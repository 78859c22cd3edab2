#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/base/mutex.h"
#include "server/model/status_types.h"

namespace octavo {

/// Compares successive checks of the scans to detect one that makes no progress although records
/// wait for it: a device that hangs, a thread that is stuck. Used by one thread.
class StallDetector {
 public:
  explicit StallDetector(std::chrono::nanoseconds patience) : patience_(patience) {}
  /// Empty, or the problem in words.
  std::string Look(const std::vector<model::ScanStatus>& scans, std::chrono::nanoseconds now);

 private:
  struct Seen {
    int64_t records = -1;
    bool waiting = false;
    std::chrono::nanoseconds since{};
  };
  const std::chrono::nanoseconds patience_;
  std::map<std::string, Seen> seen_;
};

/// Sends signs of life to the supervisor of the daemon, three times in its period, as long as
/// `problem` returns, and returns empty. A `problem` that hangs (a lock that is never released)
/// stops the signs of life, too.
class Watchdog {
 public:
  /// The period of systemd's watchdog for this process (WATCHDOG_USEC, WATCHDOG_PID); nothing if
  /// there is none.
  static std::optional<std::chrono::microseconds> PeriodFromEnvironment();

  /// The watchdog's own thread calls `problem` and `beat`; the first beat comes at once.
  Watchdog(std::chrono::microseconds period, std::function<std::string()> problem,
           std::function<void()> beat);
  /// Waits for a call in progress.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run(std::stop_token stop);

  const std::chrono::microseconds period_;
  const std::function<std::string()> problem_;
  const std::function<void()> beat_;
  Mutex mutex_;
  CondVar cv_;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace octavo
