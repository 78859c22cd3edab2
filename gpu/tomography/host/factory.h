#pragma once

#include <memory>

#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct_kernels.h"

// The host's operators of this family.
namespace octavo::inline gpu::host {

std::unique_ptr<TomographyOps> MakeHostTomographyOps();
std::unique_ptr<PrepareOps> MakeHostPrepareOps();
std::unique_ptr<SinogramOps> MakeHostSinogramOps();

}  // namespace octavo::inline gpu::host
