// A-scans per second of the spectral chain on each backend: resident (raw records already on the
// device) and streamed (every block uploaded from page-locked memory, overlapped), beside the copy
// ceilings of the same run. Clipped voxels are counted, as scans do.
//   bench_chain [--backend host|cuda] [--samples N] [--records N] [--seconds S] [--output u8|u16]
//   [--resident 1]
// u8: levels of -20 to 60 dB, or those of --lo and --hi; u16: -300 to 91 dB, which clip nothing.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "gpu/device/device.h"
#include "gpu/device/fft_length.h"
#include "gpu/spectral/spectral.h"
#include "gpu/spectral/spectral_design.h"
#include "tests/bench/bench_basics.h"
#include "tests/gpu/spectral/spectral_model.h"

namespace octavo {
namespace {

using bench::Die;
using bench::MedianSeconds;
using bench::Ok;
using bench::Take;

constexpr int64_t kGroup = 512;  // records of a B-scan, which have one rolling background

SpectralConfig Config(int64_t samples, int64_t records, bool dispersion, bool cubic,
                      math::Background background) {
  SpectralConfig c;
  c.samples_per_record = samples;
  c.max_records_per_block = records;
  c.interpolation = cubic ? math::Interpolation::kCubic : math::Interpolation::kLinear;
  for (int64_t j = 0; j < samples; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(samples - 1);
    c.k_index.push_back(std::min(u + 0.05 * u * (1 - u), 1.0) * static_cast<double>(samples - 1));
  }
  c.window = MakeWindow(WindowKind::kHann, samples);
  if (dispersion) c.phase_rad = MakeDispersionPhase(2e-5, 0, samples);
  c.fft_length = NextFastLength(samples);
  c.depth = c.fft_length / 2;
  c.background = background;
  c.background_group_records = std::min(kGroup, records);
  c.volume_records = records;
  if (background == math::Background::kStatic)
    c.background_spectrum.assign(static_cast<size_t>(samples), 2000.0f);
  c.has_levels = true;
  c.level_lo = -20;
  c.level_hi = 60;
  return c;
}

struct Bench {
  Device& device;
  int64_t samples, records;
  double seconds;
  DType output = DType::kU8;
  double lo = -20, hi = 60;
  bool resident_only = false;

  void Line(const char* name, const SpectralConfig& c, bool mip, double clipped,
            double round_seconds, int64_t ascans, double ceiling_gbs) {
    const double rate = static_cast<double>(ascans) / round_seconds;
    const double gbs = rate * static_cast<double>(RecordBytes(c)) * 1e-9;
    std::printf(
        "{\"name\": \"%s\", \"backend\": \"%s\", \"device\": \"%s\", \"samples\": %lld, "
        "\"records\": %lld, \"k\": \"%s\", \"dispersion\": %s, "
        "\"background\": \"%s\", \"raw\": \"%s\", \"output\": \"%s\", \"clipped\": %.4f, \"mip\": "
        "%s, \"ns_per_ascan\": %.3f, \"ascans_per_s\": "
        "%.4g, "
        "\"raw_gb_per_s\": %.3f",
        name, device.info().backend.c_str(), device.info().model.c_str(),
        static_cast<long long>(samples), static_cast<long long>(records),
        c.interpolation == math::Interpolation::kCubic ? "cubic" : "linear",
        c.phase_rad.empty() ? "false" : "true",
        c.background != math::Background::kRolling ? "static"
        : c.background_window_records > 0          ? "rolling, long"
                                                   : "rolling",
        c.packing == math::Packing::kNone ? "u16" : "12-bit", Info(c.output).name, clipped,
        mip ? "true" : "false", 1e9 / rate, rate, gbs);
    if (ceiling_gbs > 0) std::printf(", \"of_ceiling\": %.3f", gbs / ceiling_gbs);
    std::printf(", \"checked\": true}\n");
    std::fflush(stdout);
  }

  // Compares a few A-scans of the timed output with the double-precision model. Returns the share
  // of voxels that one pass clips. The counts of `counted` passes must be that many times the
  // counts of one pass.
  double Check(const SpectralConfig& c, const std::vector<uint16_t>& raw, StreamRef stream,
               const DeviceBuffer& volume, const DeviceBuffer& clipped,
               const std::function<void()>& pass) {
    const int64_t voxel = SizeOf(c.output);
    std::vector<uint8_t> got(static_cast<size_t>(records * c.depth * voxel));
    std::vector<uint64_t> counts(2), again(2);
    Ok(device.CopyToHost(stream, got.data(), volume.data(), static_cast<int64_t>(got.size())));
    Ok(device.CopyToHost(stream, counts.data(), clipped.data(), 16));
    pass();
    Ok(device.CopyToHost(stream, again.data(), clipped.data(), 16));
    Ok(stream.Synchronize());
    std::vector<double> background(static_cast<size_t>(samples), 2000.0);
    for (const int64_t r : {int64_t{0}, records / 3, records - 1}) {
      if (c.background ==
          math::Background::kRolling) {  // a window as long as a volume contains each record once
        const bool all = c.background_window_records > 0;
        const int64_t begin = all ? 0 : r / kGroup * kGroup,
                      end = all ? records : std::min(records, begin + kGroup);
        std::fill(background.begin(), background.end(), 0.0);
        for (int64_t i = begin; i < end; ++i) {
          for (size_t j = 0; j < background.size(); ++j)
            background[j] +=
                raw[static_cast<size_t>(i * samples) + j] / static_cast<double>(end - begin);
        }
      }
      const std::vector<double> record(raw.begin() + r * samples, raw.begin() + (r + 1) * samples);
      const auto model = testing::ModelDepth(c, record, background);
      for (int64_t z = 0; z < c.depth; ++z) {
        const double wanted =
            testing::ModelInteger(c, testing::ModelValue(c, model[static_cast<size_t>(z)]));
        double value = got[static_cast<size_t>((r * c.depth + z) * voxel)];
        if (voxel == 2) value += 256.0 * got[static_cast<size_t>((r * c.depth + z) * voxel + 1)];
        if (std::abs(value - wanted) > 1) {
          Die("record " + std::to_string(r) + " depth " + std::to_string(z) + " is " +
              std::to_string(value) + ", the model says " + std::to_string(wanted));
        }
      }
    }
    const uint64_t below = again[0] - counts[0], above = again[1] - counts[1];
    // A rolling background continues from pass to pass, which changes the clipped voxels.
    const bool same =
        (below == 0 || counts[0] % below == 0) && (above == 0 || counts[1] % above == 0);
    if (c.background == math::Background::kStatic && !same)
      Die("two passes do not clip the same number of voxels");
    return static_cast<double>(below + above) / static_cast<double>(records * c.depth);
  }

  void Run() {
    std::mt19937 random(1);
    std::vector<uint16_t> raw(static_cast<size_t>(records * samples));
    for (auto& v : raw) v = static_cast<uint16_t>(random() % 4096);
    const int64_t bytes = records * samples * 2;
    std::vector<uint8_t> packed(
        static_cast<size_t>(records * math::PackedBytes(math::Packing::kLowFirst12, samples, 2)));
    for (int64_t r = 0; r < records; ++r) {
      uint8_t* record =
          packed.data() + r * math::PackedBytes(math::Packing::kLowFirst12, samples, 2);
      for (int64_t j = 0; j < samples; ++j)
        math::WritePacked12(math::Packing::kLowFirst12, record, j,
                            raw[static_cast<size_t>(r * samples + j)]);
    }
    Stream upload = Take(device.NewStream(StreamPriority::kNormal)),
           compute = Take(device.NewStream(StreamPriority::kHigh));
    PinnedBuffer pinned[2] = {Take(device.AllocatePinned(bytes)),
                              Take(device.AllocatePinned(bytes))};
    DeviceBuffer on_device[2] = {Take(device.Allocate(bytes)), Take(device.Allocate(bytes))};
    for (auto& p : pinned) std::memcpy(p.data(), raw.data(), static_cast<size_t>(bytes));
    for (auto& d : on_device)
      Ok(device.CopyToDevice(upload.ref(), d.data(), pinned[0].data(), bytes));
    Ok(upload.ref().Synchronize());

    // Ceilings of this run.
    constexpr int kCopies = 8;
    const double up = MedianSeconds(seconds / 2, [&] {
      for (int i = 0; i < kCopies; ++i)
        Ok(device.CopyToDevice(upload.ref(), on_device[i % 2].data(), pinned[i % 2].data(), bytes));
      Ok(upload.ref().Synchronize());
    });
    const double on = MedianSeconds(seconds / 2, [&] {
      for (int i = 0; i < kCopies; ++i)
        Ok(device.CopyOnDevice(upload.ref(), on_device[1].data(), on_device[0].data(), bytes));
      Ok(upload.ref().Synchronize());
    });
    const double up_gbs = kCopies * static_cast<double>(bytes) / up * 1e-9,
                 on_gbs = 2 * kCopies * static_cast<double>(bytes) / on * 1e-9;
    std::printf(
        "{\"name\": \"ceilings\", \"backend\": \"%s\", \"piece_bytes\": %lld, \"upload_gb_per_s\": "
        "%.2f, \"device_copy_gb_per_s\": %.1f}\n",
        device.info().backend.c_str(), static_cast<long long>(bytes), up_gbs, on_gbs);

    struct Variant {
      bool dispersion, cubic, mip;
      math::Background background;
      math::Packing packing = math::Packing::kNone;
      bool long_window = false;
    };
    for (const Variant& v :
         {Variant{true, true, false, math::Background::kStatic},
          Variant{true, true, true, math::Background::kStatic},
          Variant{true, true, true, math::Background::kRolling},
          Variant{true, true, true, math::Background::kRolling, math::Packing::kNone, true},
          Variant{false, true, false, math::Background::kStatic},
          Variant{false, false, false, math::Background::kStatic},
          Variant{true, true, false, math::Background::kStatic, math::Packing::kLowFirst12}}) {
      SpectralConfig c = Config(samples, records, v.dispersion, v.cubic, v.background);
      c.packing = v.packing;
      if (v.long_window) c.background_window_records = records;
      c.output = output;
      c.level_lo = static_cast<float>(lo);
      c.level_hi = static_cast<float>(hi);
      const int64_t block_bytes = records * RecordBytes(c);
      for (auto& p : pinned) {
        std::memcpy(p.data(),
                    v.packing == math::Packing::kNone ? static_cast<const void*>(raw.data())
                                                      : packed.data(),
                    static_cast<size_t>(block_bytes));
      }
      for (auto& d : on_device)
        Ok(device.CopyToDevice(upload.ref(), d.data(), pinned[0].data(), block_bytes));
      Ok(upload.ref().Synchronize());
      auto processor = Take(SpectralProcessor::Create(c, device));
      const int64_t volume_bytes = records * c.depth * SizeOf(c.output);
      const DeviceBuffer volume = Take(device.Allocate(volume_bytes)),
                         mip = Take(device.Allocate(records * SizeOf(c.output)));
      const DeviceBuffer clipped = Take(device.Allocate(16));
      const SpectralTarget target{.volume = volume.data(),
                                  .volume_ascans = records,
                                  .mip = v.mip ? mip.data() : nullptr,
                                  .aip = nullptr,
                                  .clipped = clipped.as<uint64_t>()};
      RecordPlacement placement{.raster = {.ascans_per_bscan = records,
                                           .bscans_per_volume = 1,
                                           .flyback_records = 0,
                                           .bidirectional = false}};
      const int blocks = device.info().backend == "cuda" ? 16 : 1;
      const auto pass = [&] {
        Ok(processor->Process(compute.ref(), on_device[0].data(), records, placement, target));
        ++placement.volume;
      };
      pass();  // from the second volume on, a long window is full
      Ok(device.Fill(compute.ref(), volume.data(), volume_bytes, 0xA5A5A5A5u));
      Ok(device.Fill(compute.ref(), clipped.data(), 16, 0));
      const double resident = MedianSeconds(seconds, [&] {
        for (int i = 0; i < blocks; ++i) pass();
        Ok(compute.ref().Synchronize());
      });
      const double share = Check(c, raw, compute.ref(), volume, clipped, pass);
      Line("resident", c, v.mip, share, resident, blocks * records, 0);
      if (resident_only) continue;

      Event uploaded[2] = {Take(device.NewEvent()), Take(device.NewEvent())},
            used[2] = {Take(device.NewEvent()), Take(device.NewEvent())};
      Ok(device.Fill(compute.ref(), volume.data(), volume_bytes, 0xA5A5A5A5u));
      Ok(device.Fill(compute.ref(), clipped.data(), 16, 0));
      const double streamed = MedianSeconds(seconds, [&] {
        for (int i = 0; i < 2 * blocks; ++i) {
          const int b = i % 2;
          Ok(used[b].EnqueueWait(upload.ref()));
          Ok(device.CopyToDevice(upload.ref(), on_device[b].data(), pinned[b].data(), block_bytes));
          Ok(uploaded[b].Record(upload.ref()));
          Ok(uploaded[b].EnqueueWait(compute.ref()));
          Ok(processor->Process(compute.ref(), on_device[b].data(), records, placement, target));
          ++placement.volume;
          Ok(used[b].Record(compute.ref()));
        }
        Ok(compute.ref().Synchronize());
      });
      Line("streamed", c, v.mip, Check(c, raw, compute.ref(), volume, clipped, pass), streamed,
           2 * blocks * records, up_gbs);
    }
  }
};

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  std::string backend = "auto", output = "u8";
  int64_t samples = 0, records = 0, resident = 0;
  double seconds = 1, lo = 0, hi = 0;
  octavo::bench::ReadOptions(argc, argv,
                             {{"--backend", &backend},
                              {"--samples", &samples},
                              {"--records", &records},
                              {"--seconds", &seconds},
                              {"--output", &output},
                              {"--lo", &lo},
                              {"--hi", &hi},
                              {"--resident", &resident}});
  if (output != "u8" && output != "u16") octavo::Die("--output is " + output + "; allowed u8, u16");
  const bool wide = output == "u16";
  if (lo == hi) lo = wide ? -300 : -20, hi = wide ? 91 : 60;
  auto opened = octavo::Take(octavo::OpenDevices(backend));
  octavo::Device& device = *opened.devices[0];
  if (records == 0) records = device.info().backend == "cuda" ? 16384 : 4096;
  for (const int64_t length :
       samples != 0 ? std::vector<int64_t>{samples} : std::vector<int64_t>{1024, 2048}) {
    octavo::Bench{.device = device,
                  .samples = length,
                  .records = records,
                  .seconds = seconds,
                  .output = wide ? octavo::DType::kU16 : octavo::DType::kU8,
                  .lo = lo,
                  .hi = hi,
                  .resident_only = resident != 0}
        .Run();
  }
  return 0;
}
