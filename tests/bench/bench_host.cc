// The host backend beside an FFTW-based equivalent of the same chain (fftw_chain.h), alternating in
// one run, on one core and on all: u16 → background, cubic k-linearisation, window × dispersion,
// transform, dB, levels, u8, MIP; blocks of 512 A-scans. CPU time is reported beside wall time,
// because it stays comparable on a busy machine. One JSON object a line.
//   bench_host [--samples N] [--records N] [--seconds S] [--vectors best|avx2]
// `--vectors avx2` measures both as on a processor without AVX-512.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hwy/highway.h"
#include "tbb/global_control.h"

#include "gpu/backend/open_devices.h"
#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"
#include "gpu/spectral/spectral_design.h"
#include "tests/bench/bench_support.h"
#include "tests/bench/fftw_chain.h"
#include "tests/gpu/spectral/spectral_model.h"

namespace octavo {
namespace {

constexpr double kVortexAscansPerSecond =
    37e3;  // published: 1024 samples, blocks of 512, its CPU processor

using bench::Die;
using bench::Ok;
using bench::StandardChain;
using bench::Take;

double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Times {
  std::vector<double> wall, cpu;
  template <class F>
  void Add(F f) {
    const double cpu_before = CpuSeconds();
    const auto before = std::chrono::steady_clock::now();
    f();
    wall.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
    cpu.push_back(CpuSeconds() - cpu_before);
  }
  static double Median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
    return values[values.size() / 2];
  }
};

// Forbids the host backend vectors wider than AVX2's.
void UseAvx2() {
  const int64_t targets = hwy::SupportedTargets();
  if ((targets & HWY_AVX2) == 0) Die("this processor has no AVX2");
  // Highway numbers better targets lower.
  hwy::SetSupportedTargetsForTest(targets & ~(int64_t{HWY_AVX2} - 1));
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

class Bench {
 public:
  Bench(int64_t samples, int64_t records, double seconds, bool avx2)
      : samples_(samples),
        records_(records),
        seconds_(seconds),
        avx2_(avx2),
        config_(StandardChain(samples, records)),
        opened_(Take(OpenDevices("host"))) {}

  void Run() {
    std::mt19937 random(std::random_device{}());
    std::vector<uint16_t> raw(static_cast<size_t>(records_ * samples_));
    for (auto& v : raw) v = static_cast<uint16_t>(random() % 4096);
    const auto fftw = avx2_ ? bench::MakeFftwChainAvx2(config_) : bench::MakeFftwChain(config_);
    const double one = Measure(1, raw, *fftw);
    const auto cores = static_cast<size_t>(std::thread::hardware_concurrency());
    if (cores > 1) {
      const double all = Measure(cores, raw, *fftw);
      std::printf("{\"name\": \"scaling\", \"cores\": %zu, \"times_one_core\": %.3f}\n", cores,
                  all / one);
    }
  }

 private:
  // A-scans per second of wall time on `cores` cores.
  double Measure(size_t cores, const std::vector<uint16_t>& raw, bench::FftwChain& fftw) {
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, cores);
    Device& device = *opened_.devices[0];
    Stream stream = Take(device.NewStream(StreamPriority::kHigh));
    const DeviceBuffer input = Take(device.Allocate(std::ssize(raw) * 2)),
                       volume = Take(device.Allocate(records_ * config_.depth)),
                       mip = Take(device.Allocate(records_));
    Ok(device.CopyToDevice(stream.ref(), input.data(), raw.data(), std::ssize(raw) * 2));
    auto processor = Take(SpectralProcessor::Create(config_, device));
    const SpectralTarget target{
        .volume = volume.data(), .volume_ascans = records_, .mip = mip.data()};
    const RecordPlacement placement{.raster = {.ascans_per_bscan = records_,
                                               .bscans_per_volume = 1,
                                               .flyback_records = 0,
                                               .bidirectional = false}};
    std::vector<uint8_t> fftw_volume(static_cast<size_t>(records_ * config_.depth), 0xA5),
        fftw_mip(static_cast<size_t>(records_), 0xA5);
    Ok(device.Fill(stream.ref(), volume.data(), records_ * config_.depth, 0xA5A5A5A5u));
    constexpr int kBlocks = 8;
    Times ours, theirs;
    const auto begin = std::chrono::steady_clock::now();
    while (ours.wall.size() < 7 ||
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
               seconds_) {
      ours.Add([&] {
        for (int i = 0; i < kBlocks; ++i) {
          Ok(processor->Process(stream.ref(), input.data(), records_, placement, target));
        }
        Ok(stream.ref().Synchronize());
      });
      theirs.Add([&] {
        for (int i = 0; i < kBlocks; ++i)
          fftw.Process(raw.data(), records_, fftw_volume.data(), fftw_mip.data());
      });
    }
    std::vector<uint8_t> our_volume(fftw_volume.size()), our_mip(fftw_mip.size());
    Ok(device.CopyToHost(stream.ref(), our_volume.data(), volume.data(), std::ssize(our_volume)));
    Ok(device.CopyToHost(stream.ref(), our_mip.data(), mip.data(), std::ssize(our_mip)));
    Ok(stream.ref().Synchronize());
    Check("Octavo", raw, our_volume, our_mip);
    Check("FFTW", raw, fftw_volume, fftw_mip);
    const double ascans = kBlocks * static_cast<double>(records_);
    const double rate = ascans / Times::Median(ours.wall),
                 fftw_rate = ascans / Times::Median(theirs.wall);
    const double cpu_us = Times::Median(ours.cpu) / ascans * 1e6,
                 fftw_cpu_us = Times::Median(theirs.cpu) / ascans * 1e6;
    std::printf(
        "{\"name\": \"host chain\", \"device\": \"%s\", \"samples\": %lld, \"records\": %lld, "
        "\"cores\": %zu, \"ascans_per_s\": %.4g, "
        "\"cpu_us_per_ascan\": %.3f, "
        "\"fftw_ascans_per_s\": %.4g, \"fftw_cpu_us_per_ascan\": %.3f, \"times_fftw\": %.3f, "
        "\"times_fftw_cpu\": %.3f",
        device.info().model.c_str(), static_cast<long long>(samples_),
        static_cast<long long>(records_), cores, rate, cpu_us, fftw_rate, fftw_cpu_us,
        rate / fftw_rate, fftw_cpu_us / cpu_us);
    if (samples_ == 1024)
      std::printf(", \"times_vortex_published\": %.1f", rate / kVortexAscansPerSecond);
    std::printf(", \"checked\": true}\n");
    std::fflush(stdout);
    return rate;
  }

  // Compares a few A-scans of the timed output, and every projection, with the double-precision
  // model.
  void Check(const std::string& who, const std::vector<uint16_t>& raw,
             const std::vector<uint8_t>& volume, const std::vector<uint8_t>& mip) const {
    const std::vector<double> background(config_.background_spectrum.begin(),
                                         config_.background_spectrum.end());
    for (const int64_t r : {int64_t{0}, records_ / 3, records_ - 1}) {
      const std::vector<double> record(raw.begin() + r * samples_,
                                       raw.begin() + (r + 1) * samples_);
      const auto model = testing::ModelDepth(config_, record, background);
      for (int64_t z = 0; z < config_.depth; ++z) {
        const double wanted = testing::ModelInteger(
            config_, testing::ModelValue(config_, model[static_cast<size_t>(z)]));
        const double value = volume[static_cast<size_t>(r * config_.depth + z)];
        if (std::abs(value - wanted) > 1) {
          Die(who + ": record " + std::to_string(r) + " depth " + std::to_string(z) + " is " +
              std::to_string(value) + ", the model says " + std::to_string(wanted));
        }
      }
    }
    for (int64_t r = 0; r < records_; ++r) {
      const auto* ascan = volume.data() + r * config_.depth;
      if (mip[static_cast<size_t>(r)] != *std::max_element(ascan, ascan + config_.depth))
        Die(who + ": the projection of record " + std::to_string(r));
    }
  }

  const int64_t samples_, records_;
  const double seconds_;
  const bool avx2_;
  const SpectralConfig config_;
  OpenedDevices opened_;
};

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  int64_t samples = 1024, records = 512;
  double seconds = 2;
  std::string vectors = "best";
  octavo::bench::ReadOptions(argc, argv,
                             {{"--samples", &samples},
                              {"--records", &records},
                              {"--seconds", &seconds},
                              {"--vectors", &vectors}});
  if (vectors != "best" && vectors != "avx2")
    octavo::bench::Die("--vectors is '" + vectors + "'; best and avx2 are allowed");
  if (vectors == "avx2") octavo::UseAvx2();
  octavo::Bench(samples, records, seconds, vectors == "avx2").Run();
  return 0;
}
