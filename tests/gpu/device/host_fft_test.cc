// The host's own transform against a plain DFT in double precision: every mix of radices, and
// lengths that need a convolution.

#include <cmath>
#include <complex>
#include <numbers>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/device/fft_length.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/fft_plan.h"
#include "gpu/spectral/spectral_design.h"
#include "tests/gpu/vector_targets.h"

namespace octavo::inline gpu::host {
namespace {

// Largest error of an output, relative to the norm of the input, which bounds every output. Each
// pass rounds once. A convolution runs two transforms of at least twice the length.
constexpr double kPassesTolerance = 5e-7, kConvolutionTolerance = 2e-6;

// Largest error over `bins` of some lanes.
double WorstError(int64_t n, const std::vector<int64_t>& bins) {
  const int64_t lanes = TileLanes();
  const FftPlan plan = MakeFftPlan(n);
  EXPECT_EQ(plan.convolution, !IsFastLength(n));
  EXPECT_TRUE(IsFastLength(plan.rows));
  const auto count = static_cast<size_t>(n * lanes);
  auto* memory = static_cast<float*>(std::aligned_alloc(
      64,
      (2 * count + static_cast<size_t>(FftScratchRows(plan) * lanes)) * sizeof(float) / 64 * 64 +
          64));
  float *re = memory, *im = memory + count;
  std::mt19937 random(static_cast<uint32_t>(n));
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < 2 * count; ++i) memory[i] = normal(random);
  const std::vector<float> in(memory, memory + 2 * count);
  InverseFft(plan, re, im, memory + 2 * count);
  std::vector<std::complex<double>> root(static_cast<size_t>(n));
  for (size_t k = 0; k < root.size(); ++k)
    root[k] =
        std::polar(1.0, 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n));
  double worst = 0;
  for (const int64_t lane : {int64_t{0}, lanes - 1}) {
    double norm = 0;
    for (int64_t j = 0; j < n; ++j) {
      norm += std::pow(in[static_cast<size_t>(j * lanes + lane)], 2) +
              std::pow(in[count + static_cast<size_t>(j * lanes + lane)], 2);
    }
    for (const int64_t k : bins) {
      std::complex<double> sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        sum += std::complex<double>(in[static_cast<size_t>(j * lanes + lane)],
                                    in[count + static_cast<size_t>(j * lanes + lane)]) *
               root[static_cast<size_t>(j * k % n)];
      }
      const std::complex<double> got(re[k * lanes + lane], im[k * lanes + lane]);
      worst = std::max(worst, std::abs(got - sum) / std::sqrt(norm));
    }
  }
  std::free(memory);
  return worst;
}

double Tolerance(int64_t n) { return IsFastLength(n) ? kPassesTolerance : kConvolutionTolerance; }

TEST(HostFftTest, EveryLengthUpTo300) {
  for (int64_t n = 1; n <= 300; ++n) {
    std::vector<int64_t> bins;
    for (int64_t k = 0; k < n; k += 1 + n / 64) bins.push_back(k);
    bins.push_back(n - 1);
    EXPECT_LT(WorstError(n, bins), Tolerance(n)) << n;
  }
}

// Powers of two, whose passes depend on the length, and mixes with each other radix.
TEST(HostFftTest, EveryTarget) {
  octavo::testing::OnEveryTarget([](int64_t target) {
    for (const int64_t n : {1,   2,   4,   8,    15,   16,   30,   32,   64,  96,  128,
                            256, 320, 512, 1024, 1536, 2048, 4096, 8192, 101, 1021}) {
      std::vector<int64_t> bins = {0, 1 % n, n / 2, n - 1};
      for (int64_t i = 1; i <= 30; ++i) bins.push_back(i * 7919 % n);
      EXPECT_LT(WorstError(n, bins), Tolerance(n)) << n << " with " << hwy::TargetName(target);
    }
  });
}

TEST(HostFftTest, LongLengths) {
  // Powers of one radix, mixes of all radices, pixel counts of spectrometers, primes, primes next
  // to fast lengths, the longest length.
  for (const int64_t n : {512,  1024, 2048, 4096, 8192, 65536, 131072, 729,    2187,  625,
                          3125, 1536, 1000, 2500, 1440, 4500,  3600,   2000,   1376,  688,
                          509,  997,  1023, 2047, 4093, 1364,  65537,  100003, 131071}) {
    std::vector<int64_t> bins = {0, 1, n / 2, n - 1};
    for (int64_t i = 1; i <= (n > 10000 ? 6 : 40); ++i) bins.push_back(i * 7919 % n);
    EXPECT_LT(WorstError(n, bins), Tolerance(n)) << n;
  }
}

// The use by a chain that stores fewer than half of the bins: some inputs, some outputs.
TEST(HostFftTest, PartOfAConvolution) {
  for (const auto [n, inputs, first, outputs] : std::vector<std::array<int64_t, 4>>{
           {509, 509, 0, 254}, {1376, 1300, 100, 50}, {1021, 16, 1000, 21}, {509, 400, 508, 1}}) {
    const FftPlan plan = MakeFftPlan(n, inputs, first, outputs);
    ASSERT_TRUE(plan.convolution);
    EXPECT_LE(plan.rows, NextFastLength(inputs + outputs - 1));
    EXPECT_EQ(static_cast<int64_t>(plan.chirp_in_re.size()), inputs);
    EXPECT_EQ(static_cast<int64_t>(plan.chirp_out_re.size()), outputs);
    // The model follows the equations, in double precision, with the plan's own tables.
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    const auto complex = [](const std::vector<float>& re, const std::vector<float>& im, int64_t i) {
      return std::complex<double>(re[static_cast<size_t>(i)], im[static_cast<size_t>(i)]);
    };
    const auto turn = [&](int64_t numerator, int64_t length) {
      return std::polar(1.0, 2 * std::numbers::pi * static_cast<double>(numerator % length) /
                                 static_cast<double>(length));
    };
    std::vector<std::complex<double>> x, a(static_cast<size_t>(plan.rows));
    for (int64_t j = 0; j < inputs; ++j) x.emplace_back(normal(random), normal(random));
    for (int64_t k = 0; k < plan.rows; ++k) {
      for (int64_t j = 0; j < inputs; ++j) {
        a[static_cast<size_t>(k)] += x[static_cast<size_t>(j)] *
                                     complex(plan.chirp_in_re, plan.chirp_in_im, j) *
                                     turn(j * k, plan.rows);
      }
      a[static_cast<size_t>(k)] *= complex(plan.filter_re, plan.filter_im, k);
    }
    for (const int64_t i : {int64_t{0}, outputs / 2, outputs - 1}) {
      std::complex<double> got = 0, wanted = 0;
      for (int64_t k = 0; k < plan.rows; ++k)
        got += a[static_cast<size_t>(k)] * std::conj(turn(i * k, plan.rows));
      got *= complex(plan.chirp_out_re, plan.chirp_out_im, i);
      for (int64_t j = 0; j < inputs; ++j)
        wanted += x[static_cast<size_t>(j)] * turn((first + i) * j, n);
      EXPECT_LT(std::abs(got - wanted), 1e-6 * static_cast<double>(n)) << n << " output " << i;
    }
  }
}

}  // namespace
}  // namespace octavo::inline gpu::host
