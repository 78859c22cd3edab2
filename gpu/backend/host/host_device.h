#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"

namespace octavo::inline gpu::host {

/// Part of the cores that each stream of a host with `leaves_cores` uses at most, rounded down to
/// whole cores, at least one. The threads of its jobs are nicer than others besides
/// (server/job/job_workers.cc).
inline constexpr double kMostOfCores = 0.75;

/// The host as a device, with its operators: always there. One of `shares` that divide its memory
/// among them. `leaves_cores`: each of its streams uses at most kMostOfCores, and gives way to
/// other parallel work of the process.
absl::StatusOr<std::unique_ptr<Device>> MakeHostDevice(int index, int shares,
                                                       bool leaves_cores = false);

}  // namespace octavo::inline gpu::host
