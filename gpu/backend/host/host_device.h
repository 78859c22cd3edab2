#pragma once

#include <memory>

#include "gpu/device/device.h"

namespace octavo::inline gpu::host {

/// The host as a device: always there. One of `shares` that divide its memory among them.
std::unique_ptr<Device> MakeHostDevice(int index, int shares);

}  // namespace octavo::inline gpu::host
