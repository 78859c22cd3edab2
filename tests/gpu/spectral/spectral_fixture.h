#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/math/half.h"
#include "gpu/spectral/spectral.h"
#include "gpu/spectral/spectral_design.h"
#include "tests/gpu/spectral/spectral_model.h"
#include "tests/support/device/backend_param.h"

namespace octavo::testing {

// Tolerances of the acceptance rules: linear values relative to full scale, dB for values above
// -100 dB of full scale, and counts.
constexpr double kLinearTolerance = 5e-6, kDbTolerance = 0.05;
// The additional error of rounding to half precision, relative to the value.
constexpr double kHalfRounding = 1.0 / 2048;

using Spectrum = std::vector<std::complex<double>>;

/// Hann window, no k-linearisation, magnitudes as F32, half of the transform.
inline SpectralConfig BaseConfig(int64_t samples) {
  SpectralConfig c;
  c.samples_per_record = samples;
  c.max_records_per_block = 256;
  c.window = MakeWindow(WindowKind::kHann, samples);
  c.fft_length = samples;
  c.depth = c.fft_length / 2;
  c.value = math::Value::kMagnitude;
  c.output = DType::kF32;
  return c;
}

inline void Warp(SpectralConfig& c, math::Interpolation kind) {
  c.interpolation = kind;
  const int64_t s = c.samples_per_record;
  c.k_index.clear();
  for (int64_t j = 0; j < s; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(s - 1);
    c.k_index.push_back((u + 0.08 * u * (1 - u)) * static_cast<double>(s - 1));
  }
  c.k_index.back() = static_cast<double>(s - 1);
}

class SpectralTest : public BackendTest {
 protected:
  // Makes random raw records, as bytes and as the numbers that the chain sees: the selected
  // channel, averaged over record_average records. Records [quiet_begin, quiet_end) of every `line`
  // vary 32 times less.
  void MakeRecords(const SpectralConfig& c, int64_t records, uint32_t seed, int64_t line = 1,
                   int64_t quiet_begin = 0, int64_t quiet_end = 0) {
    std::mt19937 random(seed);
    const int64_t per_raw = c.samples_per_record * c.channels,
                  raw_records = records * c.record_average;
    const int64_t raw_bytes = math::PackedBytes(c.packing, per_raw, SizeOf(c.raw_type));
    values_.assign(static_cast<size_t>(records * c.samples_per_record), 0.0);
    bytes_.assign(static_cast<size_t>(raw_records * raw_bytes), 0);
    for (int64_t r = 0; r < raw_records; ++r) {
      uint8_t* out = bytes_.data() + r * raw_bytes;
      const int64_t x = r / c.record_average % line;
      const uint32_t quiet = x >= quiet_begin && x < quiet_end ? 32 : 1;
      for (int64_t i = 0; i < per_raw; ++i) {
        double number = 0;
        const auto put = [&](auto v) {
          std::memcpy(out + i * static_cast<int64_t>(sizeof v), &v, sizeof v);
          number = static_cast<double>(v);
        };
        if (c.packing != math::Packing::kNone) {
          const auto v = static_cast<uint16_t>(random() % 4096 / quiet);
          // Two samples in three bytes: each has half of the middle byte.
          uint8_t* pair = out + i / 2 * 3;
          const bool low = c.packing == math::Packing::kLowFirst12;
          if (i % 2 == 0) {
            pair[0] = static_cast<uint8_t>(low ? v & 255 : v >> 4);
            pair[1] = static_cast<uint8_t>(low ? v >> 8 : v & 15);
          } else {
            pair[1] = static_cast<uint8_t>(pair[1] | (v & 15) << 4);
            pair[2] = static_cast<uint8_t>(v >> 4);
          }
          number = v;
        } else if (c.raw_type == DType::kU8) {
          put(static_cast<uint8_t>(random() % 256 / quiet));
        } else if (c.raw_type == DType::kI16) {
          put(static_cast<int16_t>(static_cast<int32_t>(random() % 65536) - 32768));
        } else if (c.raw_type == DType::kF32) {
          put(static_cast<float>(random() % 65536) / 7.0f / static_cast<float>(quiet));
        } else {
          put(static_cast<uint16_t>(random() % 4096 / quiet));
        }
        if (i % c.channels == c.channel) {
          values_[static_cast<size_t>(r / c.record_average * c.samples_per_record +
                                      i / c.channels)] +=
              number / static_cast<double>(c.record_average);
        }
      }
    }
  }
  static double FullScale(const SpectralConfig& c) {
    return c.raw_type == DType::kU8 ? 256 : c.raw_type == DType::kU16 ? 4096 : 65536;
  }
  std::vector<double> Record(const SpectralConfig& c, int64_t r) const {
    const auto begin = values_.begin() + r * c.samples_per_record;
    return {begin, begin + c.samples_per_record};
  }
  // Mean of records [begin, end).
  std::vector<double> Mean(const SpectralConfig& c, int64_t begin, int64_t end) const {
    std::vector<double> mean(static_cast<size_t>(c.samples_per_record), 0.0);
    for (int64_t r = begin; r < end; ++r) {
      for (size_t j = 0; j < mean.size(); ++j) {
        mean[j] += values_[static_cast<size_t>(r * c.samples_per_record) + j] /
                   static_cast<double>(end - begin);
      }
    }
    return mean;
  }

  // Element i of an array of a type, as a number.
  static double NumberAt(DType dtype, const uint8_t* memory, size_t i) {
    const auto read = [&](auto v) {
      std::memcpy(&v, memory + i * sizeof v, sizeof v);
      return v;
    };
    switch (dtype) {
      case DType::kU8: return memory[i];
      case DType::kI8: return read(int8_t{});
      case DType::kU16: return read(uint16_t{});
      case DType::kF16: return static_cast<double>(math::HalfToFloat(read(uint16_t{})));
      default: return static_cast<double>(read(float{}));
    }
  }
  // A stored depth sample; the magnitude if it is complex.
  static double Stored(const SpectralConfig& c, const std::vector<uint8_t>& volume, size_t i) {
    if (c.output != DType::kC64) return NumberAt(c.output, volume.data(), i);
    return std::hypot(NumberAt(DType::kF32, volume.data(), 2 * i),
                      NumberAt(DType::kF32, volume.data(), 2 * i + 1));
  }

  // Compares an A-scan of the volume with complex depth samples, or with their mean power.
  void Compare(const SpectralConfig& c, const std::vector<uint8_t>& volume, int64_t ascan,
               const Spectrum& model) {
    const double full_scale = FullScale(c);
    for (int64_t z = 0; z < c.depth; ++z) {
      const auto wanted = model[static_cast<size_t>(z)];
      const auto at = static_cast<size_t>(ascan * c.depth + z);
      if (c.output == DType::kC64) {
        ASSERT_NEAR(NumberAt(DType::kF32, volume.data(), 2 * at), wanted.real(),
                    kLinearTolerance * full_scale)
            << "A-scan " << ascan << " z " << z;
        ASSERT_NEAR(NumberAt(DType::kF32, volume.data(), 2 * at + 1), wanted.imag(),
                    kLinearTolerance * full_scale)
            << "A-scan " << ascan << " z " << z;
        continue;
      }
      CompareValue(c, volume, at, ModelValue(c, wanted), std::abs(wanted));
    }
  }
  void Compare(const SpectralConfig& c, const std::vector<uint8_t>& volume, int64_t ascan,
               const std::vector<double>& power) {
    for (int64_t z = 0; z < c.depth; ++z) {
      const double p = power[static_cast<size_t>(z)];
      CompareValue(c, volume, static_cast<size_t>(ascan * c.depth + z), ModelValueOfPower(c, p),
                   std::sqrt(p));
    }
  }

  std::vector<double> values_;
  std::vector<uint8_t> bytes_;

 private:
  void CompareValue(const SpectralConfig& c, const std::vector<uint8_t>& volume, size_t at,
                    double value, double magnitude) {
    const double full_scale = FullScale(c), got = Stored(c, volume, at);
    double wanted = value, tolerance = 0;
    if (IsInteger(c.output)) {
      wanted = ModelInteger(c, value);
      tolerance = 1;
    } else {
      if (c.value == math::Value::kDb) {
        if (20 * std::log10(magnitude / full_scale) < -100) return;
        tolerance = kDbTolerance;
      } else {
        tolerance = kLinearTolerance *
                    (c.value == math::Value::kPower ? full_scale * full_scale : full_scale);
      }
      if (c.has_levels) {
        wanted = (value - c.level_lo) / (static_cast<double>(c.level_hi) - c.level_lo);
        tolerance /= c.level_hi - c.level_lo;
      }
      if (c.output == DType::kF16) tolerance += kHalfRounding * std::abs(wanted);
    }
    ASSERT_NEAR(got, wanted, tolerance) << "A-scan " << at / static_cast<size_t>(c.depth) << " z "
                                        << at % static_cast<size_t>(c.depth);
  }
};

}  // namespace octavo::testing
