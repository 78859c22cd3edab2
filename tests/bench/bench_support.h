#pragma once

// Shared by the benchmarks of streaming and of several devices: the standard chain and its check
// against the double-precision model.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/device/device.h"
#include "gpu/device/fft_length.h"
#include "gpu/spectral/spectral.h"
#include "gpu/spectral/spectral_design.h"
#include "tests/bench/bench_basics.h"
#include "tests/gpu/spectral/spectral_model.h"

namespace octavo::bench {

/// u16 in (or 12 bits packed), u8 out, half of the transform kept, static background, cubic
/// k-linearisation, window × dispersion, dB.
inline SpectralConfig StandardChain(int64_t samples, int64_t records,
                                    math::Packing packing = math::Packing::kNone) {
  SpectralConfig c;
  c.samples_per_record = samples;
  c.packing = packing;
  c.max_records_per_block = records;
  c.interpolation = math::Interpolation::kCubic;
  for (int64_t j = 0; j < samples; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(samples - 1);
    c.k_index.push_back(std::min(u + 0.05 * u * (1 - u), 1.0) * static_cast<double>(samples - 1));
  }
  c.window = MakeWindow(WindowKind::kHann, samples);
  c.phase_rad = MakeDispersionPhase(2e-5, 0, samples);
  c.fft_length = NextFastLength(samples);
  c.depth = c.fft_length / 2;
  c.background = math::Background::kStatic;
  c.background_spectrum.assign(static_cast<size_t>(samples), 2000.0f);
  c.output = DType::kU8;
  c.has_levels = true;
  c.level_lo = -20;
  c.level_hi = 60;
  return c;
}

/// Fresh random records, 12 bits each, as numbers and as the source would deliver them.
struct RandomRecords {
  std::vector<uint16_t> counts;
  std::vector<uint8_t> bytes;
};
inline RandomRecords MakeRecords(const SpectralConfig& c, int64_t records) {
  std::mt19937_64 random(std::random_device{}());
  RandomRecords out;
  out.counts.resize(static_cast<size_t>(records * c.samples_per_record));
  for (size_t i = 0; i < out.counts.size(); i += 4) {
    const uint64_t r = random();
    for (size_t k = 0; k < 4 && i + k < out.counts.size(); ++k)
      out.counts[i + k] = static_cast<uint16_t>(r >> (16 * k) & 4095);
  }
  out.bytes.resize(static_cast<size_t>(records * RecordBytes(c)));
  if (c.packing == math::Packing::kNone) {
    std::memcpy(out.bytes.data(), out.counts.data(), out.bytes.size());
  } else {
    for (int64_t r = 0; r < records; ++r) {
      for (int64_t j = 0; j < c.samples_per_record; ++j) {
        math::WritePacked12(c.packing, out.bytes.data() + r * RecordBytes(c), j,
                            out.counts[static_cast<size_t>(r * c.samples_per_record + j)]);
      }
    }
  }
  return out;
}

/// Compares a few A-scans of a u8 volume on the device with the double-precision model. Ends the
/// program if they differ by more than one step.
inline void CheckAgainstModel(const SpectralConfig& c, const RandomRecords& raw, int64_t records,
                              const std::vector<uint8_t>& volume) {
  const std::vector<double> background(static_cast<size_t>(c.samples_per_record), 2000.0);
  for (const int64_t r : {int64_t{0}, records / 3, records - 1}) {
    const auto begin = raw.counts.begin() + r * c.samples_per_record;
    const auto model = testing::ModelDepth(
        c, std::vector<double>(begin, begin + c.samples_per_record), background);
    for (int64_t z = 0; z < c.depth; ++z) {
      const double wanted =
          testing::ModelInteger(c, testing::ModelValue(c, model[static_cast<size_t>(z)]));
      const double value = volume[static_cast<size_t>(r * c.depth + z)];
      if (std::abs(value - wanted) > 1) {
        Die("record " + std::to_string(r) + " depth " + std::to_string(z) + " is " +
            std::to_string(value) + ", the model says " + std::to_string(wanted));
      }
    }
  }
}

inline std::vector<uint8_t> Download(Device& device, StreamRef stream, const void* from,
                                     int64_t bytes) {
  std::vector<uint8_t> got(static_cast<size_t>(bytes));
  Ok(device.CopyToHost(stream, got.data(), from, bytes));
  Ok(stream.Synchronize());
  return got;
}

}  // namespace octavo::bench
