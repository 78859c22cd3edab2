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

/// Tells, from one look at the scans to the next, whether one of them stands still although records
/// wait for it: a device that hangs, a thread that is stuck. One thread.
class StallDetector {
 public:
  explicit StallDetector(std::chrono::nanoseconds patience) : patience_(patience) {}
  /// Empty, or what is wrong in words.
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

/// Sends a sign of life to whoever supervises the daemon, three times in the period it has asked
/// for, as long as `problem` comes back and comes back empty. A `problem` that hangs (a lock that
/// is never given back) is no sign of life either.
class Watchdog {
 public:
  /// The period of systemd's watchdog for this process (WATCHDOG_USEC, WATCHDOG_PID); nothing if
  /// there is none.
  static std::optional<std::chrono::microseconds> PeriodFromEnvironment();

  /// `problem` and `beat` are called from a thread of its own; the first beat comes at once.
  Watchdog(std::chrono::microseconds period, std::function<std::string()> problem,
           std::function<void()> beat);
  /// Waits for a call that is under way.
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
