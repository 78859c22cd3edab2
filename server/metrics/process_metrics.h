#pragma once

#include <vector>

#include "prometheus/metric_family.h"

namespace octavo::metrics {

/// Metrics of this process under the names of Prometheus' own clients: process_cpu_seconds_total,
/// process_resident_memory_bytes, process_virtual_memory_bytes, process_open_fds, process_max_fds,
/// process_threads, process_start_time_seconds. Values missing in /proc are left out.
std::vector<prometheus::MetricFamily> ProcessMetrics();

}  // namespace octavo::metrics
