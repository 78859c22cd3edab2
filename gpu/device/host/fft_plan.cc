#include "gpu/device/host/fft_plan.h"

#include <bit>
#include <cmath>
#include <complex>
#include <numbers>

#include "gpu/device/fft_length.h"

namespace octavo::inline gpu::host {
namespace {

using Complex = std::complex<double>;

// exp(2πi numerator / denominator). The fraction is reduced before it becomes an angle, so that the
// result is exact for any length.
Complex Turn(int64_t numerator, int64_t denominator) {
  return std::polar(1.0, 2 * std::numbers::pi * static_cast<double>(numerator % denominator) /
                             static_cast<double>(denominator));
}

// exp(πi m²/n)
Complex Chirp(int64_t m, int64_t n) { return Turn(m % (2 * n) * (m % (2 * n)), 2 * n); }

void AddPasses(FftPlan& plan) {
  int64_t length = plan.rows, stride = 1;
  const auto add = [&](int radix) {
    plan.passes.push_back({.radix = radix,
                           .length = length,
                           .stride = stride,
                           .first_twiddle = static_cast<int64_t>(plan.twiddles.size())});
    const auto add_twiddle = [&](const Complex& w) {
      plan.twiddles.push_back(static_cast<float>(w.real()));
      plan.twiddles.push_back(static_cast<float>(w.imag()));
    };
    const int64_t m = length / radix;
    for (int64_t p = 0; p < m; ++p) {
      for (int k = 1; k < radix; ++k) add_twiddle(Turn(p * k, length));
    }
    plan.passes.back().first_inner_twiddle = static_cast<int64_t>(plan.twiddles.size());
    if (radix > 16) {
      const int factor = FftPlan::FirstFactor(radix);
      for (int n = 0; n < radix / factor; ++n) {
        for (int k = 0; k < factor; ++k) add_twiddle(Turn(n * k, radix));
      }
    }
    length = m;
    stride *= radix;
  };
  // As few passes as possible, because each pass reads and writes all data. The powers of two are
  // divided evenly among passes of a radix up to 64.
  int twos = std::countr_zero(static_cast<uint64_t>(length));
  for (int passes = (twos + 5) / 6; passes > 0; --passes) {
    const int bits = (twos + passes - 1) / passes;
    add(1 << bits);
    twos -= bits;
  }
  for (const int radix : {5, 3}) {
    while (length % radix == 0) add(radix);
  }
}

// Σ x[j] exp(2πi jk/n) for a fast length, in double precision; the filter is computed with it.
std::vector<Complex> Transform(std::vector<Complex> x) {
  const auto n = static_cast<int64_t>(x.size());
  int64_t radix = n;
  for (const int64_t p : {5, 3, 2}) {
    if (n % p == 0) radix = p;
  }
  if (n == 1) return x;
  const int64_t m = n / radix;
  std::vector<std::vector<Complex>> parts;
  for (int64_t r = 0; r < radix; ++r) {
    std::vector<Complex> part(static_cast<size_t>(m));
    for (int64_t j = 0; j < m; ++j)
      part[static_cast<size_t>(j)] = x[static_cast<size_t>(j * radix + r)];
    parts.push_back(Transform(std::move(part)));
  }
  for (int64_t k = 0; k < n; ++k) {
    Complex sum = 0;
    for (int64_t r = 0; r < radix; ++r)
      sum += parts[static_cast<size_t>(r)][static_cast<size_t>(k % m)] * Turn(r * k, n);
    x[static_cast<size_t>(k)] = sum;
  }
  return x;
}

void Split(const std::vector<Complex>& values, double scale, std::vector<float>* re,
           std::vector<float>* im) {
  for (const Complex& value : values) {
    re->push_back(static_cast<float>(value.real() * scale));
    im->push_back(static_cast<float>(value.imag() * scale));
  }
}

}  // namespace

FftPlan MakeFftPlan(int64_t n, int64_t inputs, int64_t first, int64_t outputs) {
  FftPlan plan;
  plan.n = n;
  plan.convolution = !IsFastLength(n);
  plan.rows = plan.convolution ? NextFastLength(inputs + outputs - 1) : n;
  AddPasses(plan);
  if (!plan.convolution) return plan;
  std::vector<Complex> filter(static_cast<size_t>(plan.rows)), in, out;
  // Output i needs conj(c[first + i - j]) for every input j; negative indices wrap around to the
  // end.
  for (int64_t i = 1 - inputs; i < outputs; ++i) {
    filter[static_cast<size_t>(i < 0 ? i + plan.rows : i)] =
        std::conj(Chirp(std::abs(first + i), n));
  }
  for (int64_t j = 0; j < inputs; ++j) in.push_back(Chirp(j, n));
  for (int64_t i = 0; i < outputs; ++i) out.push_back(Chirp(first + i, n));
  Split(Transform(std::move(filter)), 1.0 / static_cast<double>(plan.rows), &plan.filter_re,
        &plan.filter_im);
  Split(in, 1, &plan.chirp_in_re, &plan.chirp_in_im);
  Split(out, 1, &plan.chirp_out_re, &plan.chirp_out_im);
  return plan;
}

std::shared_ptr<const FftPlan> FftPlans::Of(int64_t n) {
  const std::lock_guard lock(mutex_);
  if (auto it = plans_.find(n); it != plans_.end()) return it->second;
  if (plans_.size() >= 32) plans_.clear();
  return plans_[n] = std::make_shared<const FftPlan>(MakeFftPlan(n));
}

}  // namespace octavo::inline gpu::host
