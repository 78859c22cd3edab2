#include "server/processing/first_records.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace octavo::processing {
namespace {

using Complex = std::complex<double>;

// In place; a power of two.
void Transform(std::vector<Complex>& data) {
  const size_t n = data.size();
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; (j & bit) != 0; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(data[i], data[j]);
  }
  for (size_t length = 2; length <= n; length *= 2) {
    const Complex step = std::polar(1.0, 2 * std::numbers::pi / static_cast<double>(length));
    Complex turn = 1;
    for (size_t k = 0; k < length / 2; ++k, turn *= step) {
      for (size_t first = k; first < n; first += length) {
        const Complex odd = turn * data[first + length / 2];
        data[first + length / 2] = data[first] - odd;
        data[first] += odd;
      }
    }
  }
}

// The transform of the samples at the positions of the k-linearisation, after a Hann window.
std::vector<Complex> SpectrumOf(const SpectralConfig& c, const std::vector<double>& samples) {
  const size_t n = c.k_index.empty() ? samples.size() : c.k_index.size();
  size_t length = 1;
  while (length < n) length *= 2;
  std::vector<Complex> spectrum(length);
  for (size_t j = 0; j < n; ++j) {
    double value = 0;
    if (c.k_index.empty()) {
      value = samples[j];
    } else {
      const double at = c.k_index[j],
                   below = std::min(std::floor(at), static_cast<double>(samples.size() - 2));
      const auto i = static_cast<size_t>(below);
      value = samples[i] + (at - below) * (samples[i + 1] - samples[i]);
    }
    const double window = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(j) /
                                               static_cast<double>(n - 1));
    spectrum[j] = window * value;
  }
  Transform(spectrum);
  return spectrum;
}

int64_t GroupOf(const SpectralConfig& c) {
  const int64_t group = c.background == math::Background::kRolling ? c.background_group_records
                        : c.background == math::Background::kBscan ? c.bscan_records
                                                                   : 64;
  return c.volume_records > 0 ? std::min(group, c.volume_records) : group;
}

bool SubtractsMean(const SpectralConfig& c) {
  return c.background == math::Background::kRolling || c.background == math::Background::kBscan;
}

constexpr const char* kCure =
    "If that is the sample (a mirror, a layer without tilt), give processing.background NONE, or "
    "STATIC with a spectrum.";

}  // namespace

std::vector<double> SamplesOf(const SpectralConfig& c, const uint8_t* record) {
  std::vector<double> samples(static_cast<size_t>(c.samples_per_record), 0.0);
  const int64_t row_bytes = RecordBytes(c) / c.record_average;
  for (int64_t a = 0; a < c.record_average; ++a, record += row_bytes) {
    for (int64_t j = 0; j < c.samples_per_record; ++j) {
      const int64_t i = j * c.channels + c.channel;
      double value = 0;
      const auto take = [&](auto element) {
        std::memcpy(&element, record + i * static_cast<int64_t>(sizeof element), sizeof element);
        value = static_cast<double>(element);
      };
      if (c.packing != math::Packing::kNone) {
        value = math::ReadPacked12(c.packing, record, i);
      } else if (c.raw_type == DType::kU8) {
        take(uint8_t{});
      } else if (c.raw_type == DType::kI16) {
        take(int16_t{});
      } else if (c.raw_type == DType::kF32) {
        take(float{});
      } else {
        take(uint16_t{});
      }
      samples[static_cast<size_t>(j)] += value / static_cast<double>(c.record_average);
    }
  }
  return samples;
}

FirstRecords::FirstRecords(const SpectralConfig& chain)
    : chain_(chain),
      record_bytes_(RecordBytes(chain)),
      group_(kMost * record_bytes_ <= kMostBytes && chain.samples_per_record <= kMostSamples
                 ? GroupOf(chain)
                 : 0),
      stride_((group_ + kMost - 1) / kMost),
      records_(static_cast<size_t>(group_ > 0 ? kMost * record_bytes_ : 0)) {}

void FirstRecords::Take(const uint8_t* raw, int64_t first_record, int64_t records) {
  if (next_ >= group_ || first_record + records <= next_) return;
  next_ = std::max(next_, (std::max<int64_t>(first_record, 0) + stride_ - 1) / stride_ * stride_);
  for (; next_ < std::min(group_, first_record + records) && kept_ < kMost; next_ += stride_) {
    std::memcpy(records_.data() + kept_++ * record_bytes_,
                raw + (next_ - first_record) * record_bytes_, static_cast<size_t>(record_bytes_));
  }
}

bool FirstRecords::AreAllZero() const {
  return std::all_of(records_.begin(), records_.begin() + kept_ * record_bytes_,
                     [](uint8_t byte) { return byte == 0; });
}

bool FirstRecords::AreAllEqual() const {
  for (int64_t i = 1; i < kept_; ++i) {
    if (std::memcmp(records_.data(), records_.data() + i * record_bytes_,
                    static_cast<size_t>(record_bytes_)) != 0)
      return false;
  }
  return true;
}

std::string FirstRecords::Doubt() const {
  if (kept_ < 2) return "";
  if (!SubtractsMean(chain_) || AreAllZero())
    return "";  // the check of the file or of the pushed records reports zeros
  if (AreAllEqual()) {
    return absl::StrCat("The first ", group_,
                        " records are the same, sample for sample: the background is their mean "
                        "and leaves nothing of them. ",
                        kCure);
  }
  return DoubtFringes();
}

// Detects a strong fringe in the mean of the records when the differences from the mean are only
// noise.
std::string FirstRecords::DoubtFringes() const {
  constexpr int64_t kLeast = 8;                         // records needed to estimate noise
  constexpr double kStrong = 0.05;                      // fringe contrast
  constexpr double kAboveNoise = 1000, kNoiseOnly = 6;  // power, as a multiple of the median noise
  constexpr double kLeft = 1e-3;                        // as a fraction of the fringe's own power
  if (kept_ < kLeast) return "";
  std::vector<Complex> mean;
  std::vector<double> power;
  const double n = static_cast<double>(kept_);
  for (int64_t i = 0; i < kept_; ++i) {
    const std::vector<Complex> spectrum =
        SpectrumOf(chain_, SamplesOf(chain_, records_.data() + i * record_bytes_));
    mean.resize(spectrum.size());
    power.resize(spectrum.size());
    for (size_t k = 0; k < spectrum.size(); ++k) {
      mean[k] += spectrum[k] / n;
      power[k] += std::norm(spectrum[k]) / n;
    }
  }
  // The spectrum of the light source lies below this bin.
  const size_t half = mean.size() / 2, first = std::max<size_t>(8, mean.size() / 64);
  if (first + 32 > half) return "";
  const auto strength = [&](size_t k) { return std::norm(mean[k]); };
  size_t peak = first;
  for (size_t k = first; k < half; ++k) {
    if (strength(k) > strength(peak)) peak = k;
  }
  if (!std::isfinite(strength(peak)) || 2 * std::abs(mean[peak]) < kStrong * std::abs(mean[0]))
    return "";
  // Balanced detection removes the reference light, so there is no fringe contrast to compare with:
  // a line may belong to the detection itself.
  if (std::abs(mean[peak]) > std::abs(mean[0])) return "";
  const auto left = [&](size_t k) { return std::max(power[k] - strength(k), 0.0) * n / (n - 1); };
  std::vector<double> noise;
  for (size_t k = first; k < half; ++k) noise.push_back(left(k));
  std::nth_element(noise.begin(), noise.begin() + std::ssize(noise) / 2, noise.end());
  const double median = noise[noise.size() / 2];
  if (strength(peak) < kAboveNoise * median) return "";
  constexpr size_t kWidth = 8;
  for (size_t k = first; k < half; ++k) {
    const bool of_peak = k + kWidth >= peak && k <= peak + kWidth;
    if (left(k) > kNoiseOnly * median && !(of_peak && left(k) <= kLeft * strength(peak))) return "";
  }
  const auto bin = static_cast<int64_t>(
      std::llround(static_cast<double>(peak * static_cast<size_t>(chain_.fft_length)) /
                   static_cast<double>(mean.size())));
  return absl::StrCat(
      "The fringes of the first ", group_,
      " records are the same in all of them (a reflector at bin ", bin,
      "): the background, the mean of the records, takes them away and leaves noise. ", kCure);
}

}  // namespace octavo::processing
