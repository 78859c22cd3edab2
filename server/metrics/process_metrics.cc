#include "server/metrics/process_metrics.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace octavo::metrics {
namespace {

using prometheus::MetricType;

/// The fields of /proc/self/stat from the third on: the second, the program's name, may hold spaces
/// and brackets.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_ends = line.rfind(')');
  if (name_ends == std::string::npos) return {};
  std::istringstream rest(line.substr(name_ends + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

/// When the machine was started, in seconds since 1970; 0 = not known.
double BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    double seconds = 0;
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

/// Open descriptors of this process, including the one used for listing; -1 = not known.
double OpenDescriptors() {
  std::error_code error;
  auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
  if (error) return -1;
  double count = 0;
  for (; it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (error) return -1;
    ++count;
  }
  return count;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics() {
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](const char* name, const char* help, MetricType type, double value) {
    prometheus::ClientMetric metric;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    families.push_back({.name = name, .help = help, .type = type, .metric = {std::move(metric)}});
  };
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) == 0) {
    add("process_cpu_seconds_total", "Processor time, user and system", MetricType::Counter,
        Seconds(used.ru_utime) + Seconds(used.ru_stime));
  }
  // Counted from the third field of proc(5): 17 = num_threads (20), 19 = starttime (22), 20 = vsize
  // (23), 21 = rss (24).
  if (const auto fields = StatFields(); fields.size() > 21) {
    const double page = static_cast<double>(::sysconf(_SC_PAGESIZE)),
                 tick = static_cast<double>(::sysconf(_SC_CLK_TCK));
    add("process_threads", "Threads", MetricType::Gauge, std::strtod(fields[17].c_str(), nullptr));
    add("process_virtual_memory_bytes", "Address space", MetricType::Gauge,
        std::strtod(fields[20].c_str(), nullptr));
    add("process_resident_memory_bytes", "Memory in RAM", MetricType::Gauge,
        page * std::strtod(fields[21].c_str(), nullptr));
    if (const double boot = BootTime(); boot > 0) {
      add("process_start_time_seconds", "When the process began, seconds since 1970",
          MetricType::Gauge, boot + std::strtod(fields[19].c_str(), nullptr) / tick);
    }
  }
  if (const double open = OpenDescriptors(); open >= 0)
    add("process_open_fds", "Open descriptors", MetricType::Gauge, open);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add("process_max_fds", "Most descriptors that may be open", MetricType::Gauge,
        static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace octavo::metrics
