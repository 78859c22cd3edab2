#include <cmath>
#include <numbers>

#include "gpu/host/spectral_kernels.h"

namespace octavo::host {

FftPlan MakeFftPlan(int64_t n) {
  FftPlan plan;
  plan.n = n;
  int64_t length = n, stride = 1;
  const auto add = [&](int radix) {
    plan.passes.push_back({.radix = radix, .length = length, .stride = stride,
                           .first_twiddle = static_cast<int64_t>(plan.twiddles.size())});
    const int64_t m = length / radix;
    for (int64_t p = 0; p < m; ++p) {
      for (int k = 1; k < radix; ++k) {
        // Reduced before it is turned into an angle: exact for any length.
        const double angle = 2 * std::numbers::pi * static_cast<double>(p * k % length) / static_cast<double>(length);
        plan.twiddles.push_back(static_cast<float>(std::cos(angle)));
        plan.twiddles.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    length = m;
    stride *= radix;
  };
  for (const int radix : {5, 3}) {
    while (length % radix == 0) add(radix);
  }
  while (length % 4 == 0) add(4);
  if (length % 2 == 0) add(2);
  return plan;
}

}  // namespace octavo::host
