#pragma once

#include <memory>

#include "gpu/device.h"

namespace octavo::host {

/// The host as a device: always there.
std::unique_ptr<Device> MakeHostDevice(int index);

std::unique_ptr<SpectralOps> MakeHostSpectralOps();
std::unique_ptr<ProjectOps> MakeHostProjectOps();

}  // namespace octavo::host
