#pragma once

#include <memory>

#include "gpu/array/array_ops.h"
#include "gpu/array/gather_ascans.h"
#include "gpu/array/motion_contrast.h"
#include "gpu/array/project.h"

// The host's operators of this family.
namespace octavo::inline gpu::host {

std::unique_ptr<ProjectOps> MakeHostProjectOps();
std::unique_ptr<ResampleOps> MakeHostResampleOps();
std::unique_ptr<RepeatOps> MakeHostRepeatOps();
std::unique_ptr<ArrayOps> MakeHostArrayOps();

}  // namespace octavo::inline gpu::host
