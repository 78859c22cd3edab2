#pragma once

#include <cstdint>
#include <memory>

#include "gpu/spectral/spectral.h"

namespace octavo::bench {

/// The spectral chain written with FFTW (single precision, patient plans), only for comparison with
/// the host backend. One loop over the samples of an A-scan does background, cubic k-linearisation
/// and window × dispersion. A batch of 16 transforms follows. Another loop does |z|², logarithm,
/// levels and the maximum, u8 out. TBB spreads blocks over cores in tiles of 16 A-scans, whose
/// intermediates stay in cache. Compiled with -O3 -ffast-math, so that its loops are vectorised.
class FftwChain {
 public:
  virtual ~FftwChain() = default;
  /// records [count, S] → volume [count, D], mip [count].
  virtual void Process(const uint16_t* records, int64_t count, uint8_t* volume, uint8_t* mip) = 0;
};

/// The chain with its loops compiled for this machine, and for processors that have AVX2 and no
/// AVX-512. FFTW itself chooses its vectors; Debian's knows SSE2 and AVX, without FMA. `config`:
/// u16, static background, cubic, dispersion, dB to U8, all bins from 0.
std::unique_ptr<FftwChain> MakeFftwChain(const SpectralConfig& config);
std::unique_ptr<FftwChain> MakeFftwChainAvx2(const SpectralConfig& config);

}  // namespace octavo::bench
