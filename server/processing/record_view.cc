#include "server/processing/record_view.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "gpu/math/half.h"
#include "gpu/spectral/spectral_record.h"
#include "gpu/spectral/spectral_span.h"

namespace octavo::processing {
namespace {

int64_t RowBytes(const SpectralConfig& c) { return RecordBytes(c) / c.record_average; }

}  // namespace

RawRecordView ViewRecord(const model::ResolvedScan& scan, const uint8_t* record) {
  const SpectralConfig& c = scan.chain;
  RawRecordView view;
  view.dtype = c.raw_type;
  const auto add = [&](const char* axis, int64_t extent) {
    view.axes.emplace_back(axis);
    view.shape.push_back(extent);
  };
  if (c.record_average > 1) add("record", c.record_average);
  add("sample", c.samples_per_record);
  if (c.channels > 1) add("channel", c.channels);
  const int64_t row = c.samples_per_record * c.channels;
  if (c.packing == math::Packing::kNone) {
    view.bytes.assign(record, record + RecordBytes(c));
    return view;
  }
  view.bytes.resize(static_cast<size_t>(c.record_average * row * SizeOf(DType::kU16)));
  for (int64_t a = 0; a < c.record_average; ++a) {
    for (int64_t i = 0; i < row; ++i) {
      const auto sample =
          static_cast<uint16_t>(math::ReadPacked12(c.packing, record + a * RowBytes(c), i));
      std::memcpy(view.bytes.data() + (a * row + i) * SizeOf(DType::kU16), &sample, sizeof sample);
    }
  }
  return view;
}

void FindSaturated(const model::ResolvedScan& scan, const uint8_t* record, bool whole,
                   model::RecordInfo* info) {
  const SpectralConfig& c = scan.chain;
  const int64_t bits = scan.spec.acquisition.adc_bits;
  if (c.raw_type == DType::kF32 && bits == 0) return;
  const SampleRange range = RangeOf(c.raw_type, c.packing, bits);
  info->saturation_high = range.hi;
  // 0 of unsigned samples is a dark pixel.
  if (range.lo < 0) info->saturation_low = range.lo;
  const auto saturated = [&](double value) {
    return value >= range.hi || (range.lo < 0 && value <= range.lo);
  };
  const int64_t row = c.samples_per_record * c.channels;
  for (int64_t a = 0; a < c.record_average; ++a) {
    const uint8_t* const from = record + a * RowBytes(c);
    const int64_t step = whole ? 1 : c.channels;
    for (int64_t i = whole ? 0 : c.channel; i < row; i += step) {
      if (saturated(RawSampleAt(c, from, i)))
        info->saturated.push_back(static_cast<uint32_t>(whole ? a * row + i : i / c.channels));
    }
  }
  if (whole) return;
  std::sort(info->saturated.begin(), info->saturated.end());
  info->saturated.erase(std::unique(info->saturated.begin(), info->saturated.end()),
                        info->saturated.end());
}

void FindRange(DType dtype, const uint8_t* data, int64_t bytes, model::RecordInfo* info) {
  const auto look = [&](auto element, const auto& number_of) {
    constexpr auto kSize = static_cast<int64_t>(sizeof element);
    for (int64_t at = 0; at + kSize <= bytes; at += kSize) {
      std::memcpy(&element, data + at, sizeof element);
      const double value = number_of(element);
      if (std::isnan(value)) continue;
      info->minimum = std::min(info->minimum.value_or(value), value);
      info->maximum = std::max(info->maximum.value_or(value), value);
    }
  };
  const auto number = [](auto element) { return static_cast<double>(element); };
  switch (dtype) {
    case DType::kU8: return look(uint8_t{}, number);
    case DType::kI8: return look(int8_t{}, number);
    case DType::kU16: return look(uint16_t{}, number);
    case DType::kI16: return look(int16_t{}, number);
    case DType::kF16:
      return look(uint16_t{},
                  [](uint16_t bits) { return static_cast<double>(math::HalfToFloat(bits)); });
    case DType::kF32: return look(float{}, number);
    case DType::kF64: return look(double{}, number);
    case DType::kC64:
      return look(std::complex<float>{},
                  [](std::complex<float> z) { return static_cast<double>(std::abs(z)); });
  }
}

}  // namespace octavo::processing
