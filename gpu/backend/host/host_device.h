#pragma once

#include <memory>

#include "gpu/device/device.h"

namespace octavo::host {

/// The host as a device: always there. One of `shares` that divide its memory among them.
std::unique_ptr<Device> MakeHostDevice(int index, int shares);

std::unique_ptr<SpectralOps> MakeHostSpectralOps();
std::unique_ptr<ProjectOps> MakeHostProjectOps();
std::unique_ptr<ResampleOps> MakeHostResampleOps();
std::unique_ptr<RepeatOps> MakeHostRepeatOps();
std::unique_ptr<TomographyOps> MakeHostTomographyOps();
std::unique_ptr<PrepareOps> MakeHostPrepareOps();
std::unique_ptr<SinogramOps> MakeHostSinogramOps();
std::unique_ptr<ArrayOps> MakeHostArrayOps();

}  // namespace octavo::host
