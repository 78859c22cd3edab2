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
/// share its cores and its memory. FailedPrecondition with the reason if the named backend cannot
/// be used; InvalidArgument for another name or number.
absl::StatusOr<OpenedDevices> OpenDevices(const std::string& choice, int host_devices = 1);

}  // namespace octavo::inline gpu
