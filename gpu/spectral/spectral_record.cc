#include "gpu/spectral/spectral_record.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/math/spectral.h"
#include "gpu/spectral/spectral_tables.h"

namespace octavo::inline gpu {
namespace {

template <typename T>
double ElementAt(const uint8_t* record, int64_t i) {
  T value;
  std::memcpy(&value, record + i * static_cast<int64_t>(sizeof value), sizeof value);
  return static_cast<double>(value);
}

int64_t RawRowBytes(const SpectralConfig& c) { return RecordBytes(c) / c.record_average; }

}  // namespace

double RawSampleAt(const SpectralConfig& c, const uint8_t* record, int64_t i) {
  if (c.packing != math::Packing::kNone) return math::ReadPacked12(c.packing, record, i);
  switch (c.raw_type) {
    case DType::kU8: return ElementAt<uint8_t>(record, i);
    case DType::kI16: return ElementAt<int16_t>(record, i);
    case DType::kF32: return ElementAt<float>(record, i);
    default: return ElementAt<uint16_t>(record, i);
  }
}

std::vector<float> LoadRecord(const SpectralConfig& c, const uint8_t* record,
                              const std::vector<float>& background) {
  std::vector<float> samples(static_cast<size_t>(c.samples_per_record));
  const float share = 1.0f / static_cast<float>(c.record_average);
  for (size_t j = 0; j < samples.size(); ++j) {
    const int64_t i = static_cast<int64_t>(j) * c.channels + c.channel;
    auto value = static_cast<float>(RawSampleAt(c, record, i));
    for (int64_t a = 1; a < c.record_average; ++a)
      value = static_cast<float>(RawSampleAt(c, record + a * RawRowBytes(c), i)) + value;
    if (c.record_average == 1) {
      samples[j] = background.empty() ? value : value - background[j];
    } else {
      samples[j] = background.empty() ? value * share : std::fma(value, share, -background[j]);
    }
  }
  return samples;
}

std::vector<float> CorrectRecord(const SpectralConfig& c, const std::vector<float>& samples) {
  const int taps = math::Taps(c.interpolation), before = math::TapsBefore(c.interpolation);
  const int64_t last = c.samples_per_record - 1;
  std::vector<float> corrected(c.window.size());
  for (size_t j = 0; j < corrected.size(); ++j) {
    float value = 0;
    if (c.interpolation == math::Interpolation::kNone) {
      value = samples[j];
    } else {
      const double at = std::clamp(c.k_index[j], 0.0, static_cast<double>(last)),
                   left = std::floor(at);
      float weights[8];
      math::WeightsOf(c.interpolation, at - left, weights);
      for (int i = 0; i < taps; ++i) {
        const auto k = static_cast<size_t>(
            std::clamp<int64_t>(static_cast<int64_t>(left) + i - before, 0, last));
        value = i == 0 ? samples[k] * weights[i] : std::fma(samples[k], weights[i], value);
      }
    }
    corrected[j] = value * c.window[j];
  }
  return corrected;
}

RecordMean::RecordMean(const SpectralConfig& config)
    : config_(config),
      sum_(static_cast<size_t>(config.samples_per_record)),
      row_(static_cast<size_t>(config.samples_per_record)) {}

void RecordMean::Add(const uint8_t* record) {
  std::fill(row_.begin(), row_.end(), 0.0);
  bool finite = true;
  for (int64_t a = 0; a < config_.record_average; ++a, record += RawRowBytes(config_)) {
    for (size_t j = 0; j < row_.size(); ++j) {
      const double value = RawSampleAt(
          config_, record, static_cast<int64_t>(j) * config_.channels + config_.channel);
      finite = finite && std::isfinite(value);
      row_[j] += value;
    }
  }
  if (!finite) return;
  for (size_t j = 0; j < row_.size(); ++j) sum_[j] += row_[j];
  ++count_;
}

std::vector<float> RecordMean::Mean() const {
  std::vector<float> mean;
  mean.reserve(sum_.size());
  for (const double sum : sum_)
    mean.push_back(math::MeanOfRecords(sum, count_, config_.record_average));
  return mean;
}

}  // namespace octavo::inline gpu
