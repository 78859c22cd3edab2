// Filtered back projection and Fourier reconstruction of the same scan in one run: milliseconds a
// slice of each, filter included, PSNR against the exact phantom, and what AUTO would take. The
// slices of a batch are multiples of the first, against which they are checked, in memory that was
// poisoned before.
//   bench_fourier [--backend host|cuda] [--size N] [--angles N] [--slices N] [--repeats N]
//                 [--off COLUMNS] [--accuracy A] [--fbp 0|1] [--stages 0|1]
// --off: the axis from the middle. --stages 1: also the milliseconds of the stages of a chunk of
// slices (samples; gathering in eight parts; transform along x; transform along y), one by one.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "gpu/tomography/gridding.h"
#include "gpu/tomography/reconstruct.h"
#include "tests/bench/bench_basics.h"
#include "tests/gpu/tomography/fourier_phantoms.h"
#include "tests/gpu/tomography/reconstruct_model.h"

namespace octavo {
namespace {

using bench::Clock;
using bench::Die;
using bench::Ok;
using bench::Take;

float Factor(int64_t slice) { return 1 + 0.125f * static_cast<float>(slice % 8); }

struct Timed {
  double ms_per_slice = 0, plan_seconds = 0, psnr = 0, gigabytes = 0;
};

struct Bench {
  Device& device;
  const TomographyConfig& base;
  const std::vector<float>& one;
  const std::vector<double>& truth;
  int64_t repeats;

  Timed Time(TomographyAlgorithm algorithm) const {
    TomographyConfig c = base;
    c.algorithm = algorithm;
    if (algorithm != TomographyAlgorithm::kFourier)
      c.fourier_accuracy = TomographyConfig::kUsualAccuracy;
    const auto rays = static_cast<int64_t>(one.size());
    const int64_t n = c.detectors, pixels = n * n;
    Timed timed;
    timed.gigabytes = 1e-9 * static_cast<double>(Take(Reconstructor::DeviceBytes(c, device)));
    Stream stream = Take(device.NewStream(StreamPriority::kNormal));
    const DeviceBuffer in = Take(device.Allocate(c.slices * rays * 4)),
                       out = Take(device.Allocate(c.slices * pixels * 4));
    PinnedBuffer staging = Take(device.AllocatePinned(std::max(rays, pixels) * 4));
    for (int64_t s = 0; s < c.slices; ++s) {
      for (int64_t i = 0; i < rays; ++i)
        staging.as<float>()[i] = Factor(s) * one[static_cast<size_t>(i)];
      Ok(device.CopyToDevice(stream.ref(), in.as<float>() + s * rays, staging.data(), rays * 4));
      Ok(stream.ref().Synchronize());
    }
    const auto begin = Clock::now();
    auto made = Take(Reconstructor::Create(c, device));
    timed.plan_seconds = bench::SecondsSince(begin);
    std::vector<double> seconds;
    for (int64_t i = 0; i <= repeats; ++i) {
      Ok(device.Fill(stream.ref(), out.data(), out.bytes(), 0xA5A5A5A5u));
      Ok(stream.ref().Synchronize());
      const auto start = Clock::now();
      (void)Take(made->Run(stream.ref(),
                           {.data = in.span<float>(), .angle_first = false, .slices = c.slices},
                           nullptr, out.span<float>(), {}));
      if (i > 0 || repeats == 1) seconds.push_back(bench::SecondsSince(start));
      if (repeats == 1) break;
    }
    std::sort(seconds.begin(), seconds.end());
    timed.ms_per_slice = 1e3 * seconds[seconds.size() / 2] / static_cast<double>(c.slices);
    std::vector<float> first;
    for (int64_t s = 0; s < c.slices; ++s) {
      Ok(device.CopyToHost(stream.ref(), staging.data(), out.as<float>() + s * pixels, pixels * 4));
      Ok(stream.ref().Synchronize());
      const std::vector<float> image(staging.as<float>(), staging.as<float>() + pixels);
      if (s == 0) first = image;
      for (size_t i = 0; i < image.size(); ++i) {
        if (!(std::abs(image[i] / Factor(s) - first[i]) < 1e-4f * 4))
          Die("slice " + std::to_string(s) + ": pixel " + std::to_string(i) + " is " +
              std::to_string(image[i]));
      }
    }
    timed.psnr =
        testing::CirclePsnr(first, truth, n, 0.5 * static_cast<double>(n) - std::abs(Off()) - 1);
    return timed;
  }
  // The callback comes before each stage but the first one of a run.
  void PrintStages() const {
    TomographyConfig c = base;
    c.algorithm = TomographyAlgorithm::kFourier;
    c.piece_samples = 1;
    Stream stream = Take(device.NewStream(StreamPriority::kNormal));
    const int64_t rays = c.slices * static_cast<int64_t>(one.size());
    const DeviceBuffer in = Take(device.Allocate(rays * 4)),
                       out = Take(device.Allocate(c.slices * c.detectors * c.detectors * 4));
    Ok(device.Fill(stream.ref(), in.data(), in.bytes(), 0));
    auto made = Take(Reconstructor::Create(c, device));
    for (const bool warm : {false, true}) {
      auto last = Clock::now();
      const auto tell = [&] {
        if (warm) std::printf(" %.3f", 1e3 * bench::SecondsSince(last));
        last = Clock::now();
      };
      if (warm) std::printf("stages, ms:");
      (void)Take(made->Run(stream.ref(),
                           {.data = in.span<float>(), .angle_first = false, .slices = c.slices},
                           nullptr, out.span<float>(), [&](const IterationReport&) {
                             tell();
                             return true;
                           }));
      tell();
    }
    std::printf("\n");
  }
  double Off() const { return base.centers[0] - 0.5 * static_cast<double>(base.detectors - 1); }
};

int Run(int argc, char** argv) {
  std::string backend = "auto";
  int64_t size = 0, angles = 0, slices = 0, repeats = 5;
  double off = 0, accuracy = TomographyConfig::kUsualAccuracy;
  bool fbp = true, stages = false;
  bench::ReadOptions(argc, argv,
                     {{"--backend", &backend},
                      {"--size", &size},
                      {"--angles", &angles},
                      {"--slices", &slices},
                      {"--repeats", &repeats},
                      {"--off", &off},
                      {"--accuracy", &accuracy},
                      {"--fbp", &fbp},
                      {"--stages", &stages}});
  auto opened = Take(OpenDevices(backend, 1));
  Device& device = *opened.devices[0];
  const bool cuda = device.info().backend == "cuda";
  TomographyConfig c;
  c.detectors = size != 0 ? size : cuda ? 2048 : 256;
  c.angles_rad = testing::HalfTurn(angles != 0 ? angles : cuda ? 1501 : 180);
  c.slices = slices != 0 ? slices : 16;
  c.fourier_accuracy = accuracy;
  c.centers = {0.5 * static_cast<double>(c.detectors - 1) + off};
  std::mt19937 random(7);
  const auto ellipses =
      testing::RandomEllipses(random, 0.45 * static_cast<double>(c.detectors) - std::abs(off));
  const auto one =
      testing::Floats(testing::ProjectEllipses(ellipses, c.angles_rad, c.detectors, c.centers[0]));
  const auto truth = testing::DrawEllipses(ellipses, c.detectors);
  const Bench bench{device, c, one, truth, std::max<int64_t>(1, repeats)};
  if (stages) bench.PrintStages();
  const Timed fourier = bench.Time(TomographyAlgorithm::kFourier);
  const Timed back = fbp ? bench.Time(TomographyAlgorithm::kFbp) : Timed{};
  if (fbp && fourier.psnr < back.psnr - 0.1)
    Die("PSNR is " + std::to_string(fourier.psnr) + " dB, FBP's " + std::to_string(back.psnr));
  TomographyConfig chosen = c;
  chosen.algorithm = TomographyAlgorithm::kAuto;
  chosen.fourier_accuracy = TomographyConfig::kUsualAccuracy;
  std::printf(
      "{\"name\": \"fourier\", \"backend\": \"%s\", \"device\": \"%s\", \"size\": %lld, "
      "\"angles\": "
      "%zu, \"slices\": %lld, \"off\": %g, \"accuracy\": %g, \"fourier_ms\": %.4f, \"fbp_ms\": "
      "%.4f, \"ratio\": %.2f, \"fourier_psnr\": %.3f, \"fbp_psnr\": %.3f, \"fourier_gb\": %.3f, "
      "\"fbp_gb\": %.3f, \"fourier_plan_s\": %.3f, \"auto\": \"%s\"}\n",
      device.info().backend.c_str(), device.info().model.c_str(),
      static_cast<long long>(c.detectors), c.angles_rad.size(), static_cast<long long>(c.slices),
      off, accuracy, fourier.ms_per_slice, back.ms_per_slice,
      back.ms_per_slice / fourier.ms_per_slice, fourier.psnr, back.psnr, fourier.gigabytes,
      back.gigabytes, fourier.plan_seconds,
      ChooseAlgorithm(chosen, device) == TomographyAlgorithm::kFourier ? "FOURIER" : "FBP");
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Run(argc, argv); }
