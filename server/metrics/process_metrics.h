#pragma once

#include <vector>

#include "prometheus/metric_family.h"

namespace octavo::metrics {

/// This process by the names that Prometheus' own clients use: process_cpu_seconds_total,
/// process_resident_memory_bytes, process_virtual_memory_bytes, process_open_fds, process_max_fds,
/// process_threads, process_start_time_seconds. What /proc does not tell is left out.
std::vector<prometheus::MetricFamily> ProcessMetrics();

}  // namespace octavo::metrics
