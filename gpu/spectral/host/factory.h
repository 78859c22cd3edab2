#pragma once

#include <memory>

#include "gpu/spectral/spectral.h"

// The host's operators of this family.
namespace octavo::inline gpu::host {

std::unique_ptr<SpectralOps> MakeHostSpectralOps();

}  // namespace octavo::inline gpu::host
