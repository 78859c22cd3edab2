#pragma once

// What all benchmarks have in common: ending with a message where something fails, and medians of times.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::bench {

using Clock = std::chrono::steady_clock;

[[noreturn]] inline void Die(const std::string& what) {
  std::fprintf(stderr, "bench: %s\n", what.c_str());
  std::exit(1);
}
inline void Ok(const absl::Status& status) {
  if (!status.ok()) Die(std::string(status.message()));
}
template <class T>
T Take(absl::StatusOr<T> value) {
  Ok(value.status());
  return *std::move(value);
}

inline double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Median seconds of `round`, which enqueues and waits, over at least `seconds` and 5 rounds after one warm-up.
template <class F>
double MedianSeconds(double seconds, F round) {
  round();
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < 5 || SecondsSince(begin) < seconds) {
    const auto start = Clock::now();
    round();
    times.push_back(SecondsSince(start));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace octavo::bench
