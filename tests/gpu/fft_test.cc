// The host's batched transform by itself, against the DFT's definition in double precision.

#include <cmath>
#include <complex>
#include <numbers>
#include <random>

#include "gpu/host/spectral_kernels.h"
#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"

namespace octavo::host {
namespace {

class HostFft : public ::testing::TestWithParam<int64_t> {};

TEST_P(HostFft, EqualsTheDftOfEveryLane) {
  const int64_t n = GetParam(), lanes = TileLanes();
  std::mt19937 random(static_cast<uint32_t>(n) * 2654435761u + std::random_device{}());
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto count = static_cast<size_t>(n * lanes);
  auto re = hwy::AllocateAligned<float>(count), im = hwy::AllocateAligned<float>(count), scratch = hwy::AllocateAligned<float>(2 * count);
  std::vector<std::complex<double>> in(count), root(static_cast<size_t>(n));
  for (size_t i = 0; i < count; ++i) {
    re[i] = uniform(random), im[i] = uniform(random);
    in[i] = {static_cast<double>(re[i]), static_cast<double>(im[i])};
    scratch[i] = scratch[count + i] = NAN;
  }
  for (size_t k = 0; k < root.size(); ++k) root[k] = std::polar(1.0, 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n));
  InverseFft(MakeFftPlan(n), re.get(), im.get(), scratch.get());
  double worst = 0, power = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    // Every bin of short transforms, and of long ones a stretch that differs from lane to lane.
    const int64_t step = n <= 600 ? 1 : 7, begin = n <= 600 ? 0 : lane % 7;
    for (int64_t k = begin; k < n; k += step) {
      std::complex<double> sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += in[static_cast<size_t>(j * lanes + lane)] * root[static_cast<size_t>(j * k % n)];
      const auto at = static_cast<size_t>(k * lanes + lane);
      const double error = std::norm(sum - std::complex<double>(static_cast<double>(re[at]), static_cast<double>(im[at])));
      worst = std::max(worst, error);
      power = std::max(power, std::norm(sum));
    }
  }
  // Rounding grows with the number of passes: a few units of 6e-8 of the largest value.
  EXPECT_LT(std::sqrt(worst / power), 1e-6) << "n = " << n;
}

INSTANTIATE_TEST_SUITE_P(Lengths, HostFft, ::testing::Values(2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 20, 25, 27, 30, 32, 45, 60, 64, 75, 81, 90, 100, 125, 128,
                                                             135, 150, 225, 243, 256, 300, 360, 375, 405, 480, 500, 512, 540, 600, 625, 720, 768, 810,
                                                             960, 1000, 1024, 1125, 1215, 1250, 1280, 1500, 1536, 1600, 1875, 1920, 2000, 2025, 2048));

}  // namespace
}  // namespace octavo::host
