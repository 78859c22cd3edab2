#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu/math/prepare.h"
#include "gpu/tomography/preprocess.h"

// The filter of phase retrieval, as numbers for the kernels (CheckPhase of
// gpu/tomography/preprocess.h checks a configuration alone). A configuration must have passed that.
namespace octavo::inline gpu {

/// Raw pixels beyond which the filter's kernel is below e^-7 of its middle. The generalised one
/// lies on a lattice of W and falls by exp(−arccosh(1 + W² / 2α)) from point to point.
double PhaseReachPixels(const PhaseRetrieval& phase);

/// For frequencies in cycles per binned pixel.
math::PhaseFilter PhaseFilterOf(const PhaseRetrieval& phase, int64_t bin_rows, int64_t bin_columns);

/// InvalidArgument (phase.retrieval_method) for kFarago if the filter is infinite near a frequency
/// of these pixels: it divides by zero where tan χ = −β/δ.
absl::Status CheckPhaseFilter(const PhaseRetrieval& phase, int64_t bin_rows, int64_t bin_columns);

}  // namespace octavo::inline gpu
