#pragma once

#include <cstdint>

#include "gpu/device/host/fft_plan.h"

// Many transforms at once, one per lane of a vector.
namespace octavo::inline gpu::host {

/// Lanes of a vector of floats (transforms, records processed together) with the SIMD target of
/// this machine, and its name.
int64_t TileLanes();
const char* SimdTargetName();

/// re, im [n][TileLanes()], in place; scratch of FftScratchRows(plan) TileLanes() floats.
void InverseFft(const FftPlan& plan, float* re, float* im, float* scratch);
int64_t FftScratchRows(const FftPlan& plan);

}  // namespace octavo::inline gpu::host
