// Milliseconds per slice of the preprocessing's stages, and of centre finding, on each backend.
// Flat-field correction is checked against the formula, the results of the other stages for being
// finite and close to their input.
//   bench_prepare [--backend host|cuda] [--size N] [--angles N] [--slices N] [--repeats N]

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "gpu/tomography/center.h"
#include "gpu/tomography/preprocess.h"
#include "tests/bench/bench_basics.h"

namespace octavo {
namespace {

using bench::Die;
using bench::Ok;
using bench::ReadOptions;
using bench::Take;
double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int Main(int argc, char** argv) {
  std::string backend = "host";
  int64_t size = 2048, angles = 1501, slices = 16, repeats = 3;
  ReadOptions(argc, argv,
              {{"--backend", &backend},
               {"--size", &size},
               {"--angles", &angles},
               {"--slices", &slices},
               {"--repeats", &repeats}});
  OpenedDevices opened = Take(OpenDevices(backend));
  Device& device = *opened.devices[0];
  Stream stream = Take(device.NewStream(StreamPriority::kNormal));
  constexpr int64_t kFields = 20;
  const int64_t frame = slices * size, count = angles * frame;
  std::mt19937 random(1);
  std::vector<uint16_t> raw(static_cast<size_t>(count)),
      flats(static_cast<size_t>(kFields * frame)), darks(flats.size());
  for (auto& v : raw) v = static_cast<uint16_t>(10000 + random() % 20000);
  for (auto& v : flats) v = static_cast<uint16_t>(40000 + random() % 1000);
  for (auto& v : darks) v = static_cast<uint16_t>(100 + random() % 10);
  const auto upload = [&](const std::vector<uint16_t>& values) {
    DeviceBuffer buffer = Take(device.Allocate(static_cast<int64_t>(values.size()) * 2));
    Ok(device.CopyToDevice(stream.ref(), buffer.data(), values.data(), buffer.bytes()));
    return buffer;
  };
  const DeviceBuffer in = upload(raw), flat = upload(flats), dark = upload(darks),
                     out = Take(device.Allocate(count * 4));
  std::vector<float> result(static_cast<size_t>(count)), corrected;
  Ok(stream.ref().Synchronize());

  PrepareConfig base;
  base.angles = angles;
  base.rows = slices;
  base.columns = size;
  base.flats = base.darks = kFields;
  const auto measure = [&](const char* what, const PrepareConfig& c) {
    auto preparer = Take(Preparer::Create(c, device));
    const PrepareInput input{.projections = in.data(), .flats = flat.data(), .darks = dark.data()};
    double best = 1e9;
    for (int64_t i = 0; i < repeats + 1; ++i) {
      const double begin = Seconds();
      Ok(preparer->Run(stream.ref(), input, out.span<float>()));
      Ok(stream.ref().Synchronize());
      if (i > 0 || repeats == 1) best = std::min(best, Seconds() - begin);
    }
    Ok(device.CopyToHost(stream.ref(), result.data(), out.data(), count * 4));
    Ok(stream.ref().Synchronize());
    for (const float v : result) {
      if (!(std::abs(v) < 5)) Die(std::string(what) + ": a result is not finite or far off");
    }
    // Memory traffic that no implementation avoids: reading the raw data once and writing the
    // results once.
    std::printf(
        "{\"bench\": \"prepare\", \"backend\": \"%s\", \"stage\": \"%s\", \"size\": %lld, "
        "\"angles\": %lld, \"slices\": %lld, \"ms_per_slice\": "
        "%.4f, "
        "\"gb_per_s_in_and_out\": %.1f, \"device_mib\": %lld}\n",
        backend.c_str(), what, static_cast<long long>(size), static_cast<long long>(angles),
        static_cast<long long>(slices), best * 1e3 / static_cast<double>(slices),
        static_cast<double>(count) * 6 / best / 1e9,
        static_cast<long long>(Take(Preparer::DeviceBytes(c, device)) >> 20));
    std::fflush(stdout);
  };
  measure("flat_dark_log", base);
  for (int64_t i = 0; i < count; i += count / 997 + 1) {
    const int64_t slice = i / (angles * size), a = i / size % angles, d = i % size;
    const auto pixel = static_cast<size_t>(slice * size + d);
    double f = 0, k = 0;
    for (size_t n = 0; n < kFields; ++n)
      f += flats[n * static_cast<size_t>(frame) + pixel],
          k += darks[n * static_cast<size_t>(frame) + pixel];
    const double want = -std::log((raw[static_cast<size_t>(a * frame) + pixel] - k / kFields) /
                                  (f / kFields - k / kFields));
    if (std::abs(static_cast<double>(result[static_cast<size_t>(i)]) - want) > 1e-4)
      Die("flat_dark_log: a pixel differs from the formula");
  }
  PrepareConfig c = base;
  c.outliers = {.window = 3, .difference = 1e6};
  measure("outliers_3", c);
  c = base;
  c.phase = {
      .enabled = true, .pixel_size_um = 1, .distance_mm = 50, .energy_kev = 25, .delta_beta = 100};
  measure("phase", c);
  const std::pair<const char*, RingRemoval> rings[] = {
      {"rings_sorting", {.method = RingMethod::kSorting}},
      {"rings_large", {.method = RingMethod::kLargeStripe}},
      {"rings_all", {.method = RingMethod::kAllStripe}},
      {"rings_fourier_wavelet", {.method = RingMethod::kFourierWavelet}}};
  for (const auto& [name, ring] : rings) {
    c = base;
    c.rings = {ring};
    measure(name, c);
  }
  CenterConfig center;
  for (int64_t a = 0; a < angles; ++a)
    center.angles_rad.push_back(3.14159265358979323846 * static_cast<double>(a) /
                                static_cast<double>(angles - 1));
  center.detectors = size;
  for (const auto& [name, method] :
       {std::pair{"vo", CenterMethod::kVo}, std::pair{"entropy", CenterMethod::kEntropy},
        std::pair{"phase_correlation", CenterMethod::kPhaseCorrelation}}) {
    center.method = method;
    const double begin = Seconds();
    const CenterResult found =
        Take(FindCenter(stream.ref(), center, {.data = out.span<float>()}, device));
    std::printf(
        "{\"bench\": \"center\", \"backend\": \"%s\", \"method\": \"%s\", \"size\": %lld, "
        "\"angles\": %lld, \"trials\": %zu, \"s\": %.3f}\n",
        backend.c_str(), name, static_cast<long long>(size), static_cast<long long>(angles),
        found.centers.size(), Seconds() - begin);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }
