#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"

namespace octavo::inline gpu::host {

/// The host as a device, with its operators: always there. One of `shares` that divide its memory
/// among them.
absl::StatusOr<std::unique_ptr<Device>> MakeHostDevice(int index, int shares);

}  // namespace octavo::inline gpu::host
