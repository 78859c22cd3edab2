#include "server/watchdog.h"

#include <cstdlib>
#include <pthread.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"

namespace octavo {

std::string StallDetector::Look(const std::vector<model::ScanStatus>& scans,
                                std::chrono::nanoseconds now) {
  std::map<std::string, Seen> still;
  std::string problem;
  for (const auto& scan : scans) {
    if (IsFinal(scan.state)) continue;
    Seen seen{.records = scan.records, .waiting = scan.ring_occupancy > 0, .since = now};
    // An idle source is no stall; records that wait in the ring untaken are one.
    if (const auto it = seen_.find(scan.name); it != seen_.end() &&
                                               it->second.records == seen.records &&
                                               it->second.waiting && seen.waiting) {
      seen = it->second;
    }
    if (now - seen.since >= patience_) {
      problem = absl::StrCat(
          scan.name, " has not processed a record for ",
          std::chrono::duration_cast<std::chrono::seconds>(now - seen.since).count(),
          " s although its ring is ", static_cast<int>(scan.ring_occupancy * 100), " % full");
    }
    still[scan.name] = seen;
  }
  seen_ = std::move(still);
  return problem;
}

std::optional<std::chrono::microseconds> Watchdog::PeriodFromEnvironment() {
  const char* period = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  int64_t microseconds = 0, process = 0;
  if (period == nullptr || !absl::SimpleAtoi(period, &microseconds) || microseconds <= 0)
    return std::nullopt;
  if (pid != nullptr && (!absl::SimpleAtoi(pid, &process) || process != ::getpid()))
    return std::nullopt;  // meant for another process
  return std::chrono::microseconds(microseconds);
}

Watchdog::Watchdog(std::chrono::microseconds period, std::function<std::string()> problem,
                   std::function<void()> beat)
    : period_(period),
      problem_(std::move(problem)),
      beat_(std::move(beat)),
      thread_([this](std::stop_token stop) {
        pthread_setname_np(pthread_self(), "oct-watchdog");
        Run(stop);
      }) {}

Watchdog::~Watchdog() {
  thread_.request_stop();
  {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  }
  thread_.join();
}

void Watchdog::Run(std::stop_token stop) {
  std::string told;
  auto next = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    const std::string problem = problem_();
    if (problem.empty()) {
      beat_();
    } else if (problem != told) {
      Log(LogLevel::kError, "not alive: the watchdog is not answered", {{"problem", problem}});
    }
    told = problem;
    next += period_ / 3;
    MutexLock lock(mutex_);
    while (!stop.stop_requested() && std::chrono::steady_clock::now() < next) {
      cv_.WaitFor(lock, std::chrono::duration_cast<std::chrono::milliseconds>(
                            next - std::chrono::steady_clock::now()) +
                            std::chrono::milliseconds(1));
    }
  }
}

}  // namespace octavo
