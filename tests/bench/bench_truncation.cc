// The errors of iterative reconstructions of objects wider than the detector, with the usual
// support and with wider ones, and the frequency of wrong decisions by FindTruncation: one line for
// all random phantoms of a kind.
//   bench_truncation [--backend host|cuda] [--count N] [--seed N] [--whole N] [--iterations N]
//   [--widths 0|1]
// Errors are root mean squares within 0.9 of the field of view's radius, the rim is the mean error
// of its outermost twentieth, both in parts of the object's own attenuation. Ends with 1 if an
// object inside of the detector is taken for a wider one, or one that is wider by a tenth is not,
// or if a wider support does not lower the rim in the mean.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "gpu/tomography/truncation.h"
#include "tests/bench/bench_basics.h"
#include "tests/gpu/tomography/wide_phantoms.h"

namespace octavo {
namespace {

using bench::Die;
using bench::Ok;
using bench::ReadOptions;
using bench::Take;

struct Sums {
  double error = 0, rim = 0, seconds = 0;
  int64_t count = 0;
};

int Main(int argc, char** argv) {
  std::string backend = "host";
  int64_t count = 12, whole = 200, iterations = 50;
  uint64_t seed = 0;
  bool widths = false;
  ReadOptions(argc, argv,
              {{"--backend", &backend},
               {"--count", &count},
               {"--seed", &seed},
               {"--whole", &whole},
               {"--iterations", &iterations},
               {"--widths", &widths}});
  if (seed == 0) seed = std::random_device{}();
  OpenedDevices opened = Take(OpenDevices(backend));
  Device& device = *opened.devices[0];
  Stream stream = Take(device.NewStream(StreamPriority::kNormal));
  std::mt19937 random(static_cast<uint32_t>(seed));
  int64_t missed = 0, alarms = 0;
  std::map<std::pair<int, double>, Sums> sums;
  // Parts of the estimated width; 0 = without.
  const std::vector<double> supports =
      widths ? std::vector<double>{0, 0.9, 1, 1.1, 1.2} : std::vector<double>{0, 1};
  static constexpr TomographyAlgorithm kAlgorithms[] = {
      TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem, TomographyAlgorithm::kCgls};
  static constexpr const char* kNames[] = {"sirt", "mlem", "cgls"};
  for (int64_t i = 0; i < count; ++i) {
    const auto phantom_seed = static_cast<uint32_t>(random());
    const testing::WidePhantom phantom = testing::DrawWide(
        phantom_seed,
        1.1 + 0.5 * static_cast<double>(i) / static_cast<double>(std::max<int64_t>(count - 1, 1)));
    const Truncation truncation = testing::TruncationOf(phantom);
    if (widths)
      std::printf("{\"kind\": \"%s\", \"found\": %.3f}\n", phantom.Text().c_str(),
                  truncation.width);
    if (!truncation.found) {
      ++missed;
      std::printf("{\"missed\": %u, \"kind\": \"%s\"}\n", phantom_seed, phantom.Text().c_str());
    }
    const DeviceBuffer data =
        Take(device.Allocate(static_cast<int64_t>(phantom.sinogram.size()) * 4));
    const DeviceBuffer image = Take(device.Allocate(phantom.detectors * phantom.detectors * 4));
    Ok(device.CopyToDevice(stream.ref(), data.data(), phantom.sinogram.data(), data.bytes()));
    Ok(stream.ref().Synchronize());
    std::vector<float> got(static_cast<size_t>(phantom.detectors * phantom.detectors));
    for (int a = 0; a < 3; ++a) {
      for (const double support : supports) {
        TomographyConfig config = phantom.Config(kAlgorithms[a]);
        config.iterations = kAlgorithms[a] == TomographyAlgorithm::kCgls
                                ? std::max<int64_t>(1, iterations / 5)
                                : iterations;
        config.support = std::max(1.0, support * truncation.width);
        const auto begin = bench::Clock::now();
        const auto reconstructor = Take(Reconstructor::Create(config, device));
        Take(reconstructor->Run(stream.ref(),
                                {.data = data.span<float>(), .angle_first = false, .slices = 1},
                                nullptr, image.span<float>(), nullptr));
        Sums& sum = sums[{a, support}];
        sum.seconds += bench::SecondsSince(begin);
        Ok(device.CopyToHost(stream.ref(), got.data(), image.data(), image.bytes()));
        Ok(stream.ref().Synchronize());
        const testing::WideErrors errors = phantom.ErrorsOf(got);
        sum.error += errors.rms;
        sum.rim += errors.rim;
        ++sum.count;
      }
    }
  }
  int64_t touching = 0;
  for (int64_t i = 0; i < whole; ++i) {
    const auto phantom_seed = static_cast<uint32_t>(random());
    const double width =
        i % 4 == 0 ? 1.0 : 0.98 - 0.5 * std::uniform_real_distribution<double>(0, 1)(random);
    const testing::WidePhantom phantom = testing::DrawWide(phantom_seed, width);
    if (!testing::TruncationOf(phantom).found) continue;
    ++(width == 1.0 ? touching : alarms);
    std::printf("{\"false_alarm\": %u, \"width\": %.3f, \"kind\": \"%s\"}\n", phantom_seed, width,
                phantom.Text().c_str());
  }
  bool better = true;
  for (const auto& [key, sum] : sums) {
    const auto n = static_cast<double>(sum.count);
    std::printf(
        "{\"bench\": \"truncation\", \"backend\": \"%s\", \"algorithm\": \"%s\", \"support\": "
        "%.2f, \"rms\": %.4f, \"rim\": %.4f, \"s\": %.3f}\n",
        backend.c_str(), kNames[key.first], key.second, sum.error / n, sum.rim / n,
        sum.seconds / n);
    if (key.second > 0) better = better && std::abs(sum.rim) < std::abs(sums[{key.first, 0.0}].rim);
  }
  std::printf(
      "{\"bench\": \"truncation\", \"seed\": %llu, \"wide\": %lld, \"missed\": %lld, \"whole\": "
      "%lld, \"false_alarms\": %lld, \"touching_alarms\": "
      "%lld}\n",
      static_cast<unsigned long long>(seed), static_cast<long long>(count),
      static_cast<long long>(missed), static_cast<long long>(whole), static_cast<long long>(alarms),
      static_cast<long long>(touching));
  return missed > 0 || alarms > 0 || !better ? 1 : 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }
