#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace octavo::inline gpu::host {

/// Inverse transform X[k] = Σ x[j] exp(+2πi jk/n), not scaled, of any length. Lengths 2^a 3^b 5^c:
/// mixed-radix Stockham passes. Other lengths: a convolution (Bluestein 1970) of the first fast
/// length that has room for the requested inputs and outputs,
///   X[k] = c[k] Σ (x[j] c[j]) conj(c[k - j]),  c[m] = exp(πi m²/n).
struct FftPlan {
  struct Pass {
    int radix;
    int64_t length;         // n of this pass
    int64_t stride;         // interleaved sub-transforms
    int64_t first_twiddle;  // into twiddles: (radix - 1) complex numbers for each p
    // Into twiddles, for a radix of 32 or 64: exp(+2πi n k / radix), [n < radix / f][k < f], where
    // f = FirstFactor(radix).
    int64_t first_inner_twiddle;
  };
  /// A transform of 32 is made of those of 4 and then 8, one of 64 of 8 and 8. With 16 registers of
  /// vectors a transform of 8 spills some, so it does not come first, where the input is computed.
  static constexpr int FirstFactor(int radix) { return radix == 32 ? 4 : 8; }

  int64_t n = 0;
  int64_t rows = 0;  // length of the passes: n, or of the convolution
  std::vector<Pass> passes;
  std::vector<float>
      twiddles;  // re, im pairs of exp(+2πi p k / length), computed in double precision
  // Convolution only: the filter's transform / rows, and the chirps of inputs and outputs.
  bool convolution = false;
  std::vector<float> filter_re, filter_im;        // [rows]
  std::vector<float> chirp_in_re, chirp_in_im;    // [inputs]
  std::vector<float> chirp_out_re, chirp_out_im;  // [outputs]
};

/// Plan for n >= 1 of which only the first `inputs` are not zero and only the outputs [first, first
/// + outputs) are wanted. Passes write all n outputs to their rows; a convolution writes output
/// first + i to row i.
FftPlan MakeFftPlan(int64_t n, int64_t inputs, int64_t first, int64_t outputs);
inline FftPlan MakeFftPlan(int64_t n) { return MakeFftPlan(n, n, 0, n); }

/// The latest plans of whole transforms. Any thread may call it.
class FftPlans {
 public:
  std::shared_ptr<const FftPlan> Of(int64_t n);

 private:
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const FftPlan>> plans_;
};

}  // namespace octavo::inline gpu::host
