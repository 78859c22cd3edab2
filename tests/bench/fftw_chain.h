#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/spectral/spectral.h"

namespace octavo::bench {

/// The spectral chain written with FFTW (single precision, patient plans), only for comparison with
/// the host backend. One loop over the samples of an A-scan does background, cubic k-linearisation
/// and window × dispersion. A batch of 16 transforms follows. Another loop does |z|², logarithm,
/// levels and the maximum, u8 out. TBB spreads blocks over cores in tiles of 16 A-scans, whose
/// intermediates stay in cache. Compiled with -O3 -ffast-math for this machine, so that its loops
/// are vectorised.
class FftwChain {
 public:
  /// `config`: u16, static background, cubic, dispersion, dB to U8, all bins from 0.
  explicit FftwChain(const SpectralConfig& config);
  ~FftwChain();
  /// records [count, S] → volume [count, D], mip [count].
  void Process(const uint16_t* records, int64_t count, uint8_t* volume, uint8_t* mip);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace octavo::bench
