#pragma once

#include <cstdint>
#include <vector>

#include "gpu/spectral/spectral.h"

namespace octavo::engine {

/// Computes the output of the chain of `config` for one record [S] in double precision: D values in
/// stored units, before rounding. Written from the equations of the chain, with a plain DFT; shares
/// no code with the backends. For MeasureDevice's chains only: static background, cubic
/// k-linearisation, dB with levels.
std::vector<double> ReferenceAscan(const SpectralConfig& config, const uint16_t* record);

}  // namespace octavo::engine
