#pragma once

// Shared by all benchmarks: options, ending with a message after a failure, and medians of times.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
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

/// An option of the command line, `--name value`, and the variable that it sets. 0 is false.
struct Option {
  const char* name;
  std::variant<std::string*, int*, int64_t*, uint64_t*, double*, bool*> to;
};
/// Ends the program at an unknown option, or one without a value.
inline void ReadOptions(int argc, char** argv, const std::vector<Option>& options) {
  struct Set {
    const char* value;
    void operator()(std::string* to) const { *to = value; }
    void operator()(int* to) const { *to = std::atoi(value); }
    void operator()(int64_t* to) const { *to = std::atoll(value); }
    void operator()(uint64_t* to) const { *to = std::strtoull(value, nullptr, 10); }
    void operator()(double* to) const { *to = std::atof(value); }
    void operator()(bool* to) const { *to = std::strcmp(value, "0") != 0; }
  };
  for (int i = 1; i < argc; i += 2) {
    const auto option = std::find_if(options.begin(), options.end(), [&](const Option& o) {
      return std::strcmp(o.name, argv[i]) == 0;
    });
    if (option == options.end()) Die(std::string("unknown option ") + argv[i]);
    if (i + 1 == argc) Die(std::string("no value of ") + argv[i]);
    std::visit(Set{argv[i + 1]}, option->to);
  }
}

inline double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Median seconds of `round`, which enqueues and waits, over at least `seconds` and 5 rounds after
/// one warm-up.
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
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

}  // namespace octavo::bench
