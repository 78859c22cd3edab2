#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"

namespace octavo::inline gpu {

/// Whether a backend is available and chosen, and why.
struct BackendReport {
  std::string name;
  bool available = false;
  bool chosen = false;
  std::string reason;
  int devices = 0;
};

struct OpenedDevices {
  std::vector<std::unique_ptr<Device>> devices;  // never empty
  std::vector<BackendReport> reports;            // one per backend this program knows
};

/// Opens the devices of `choice`: "auto" (cuda if a usable GPU is there, else host), "host",
/// "cuda". The host appears as `host_devices` devices (1 ... 16), as several GPUs would, which
/// share its cores and its memory. `host_for_jobs`: behind them, the host is one more device for
/// jobs, which leaves cores to other work (host_device.h). FailedPrecondition with the reason if
/// the named backend cannot be used; InvalidArgument for another name or number.
absl::StatusOr<OpenedDevices> OpenDevices(const std::string& choice, int host_devices = 1,
                                          bool host_for_jobs = false);

}  // namespace octavo::inline gpu
