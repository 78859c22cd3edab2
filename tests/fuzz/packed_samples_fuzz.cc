// Packed samples of 12 bits, of records of any size and place: the reader of one sample, the
// vectors of the host chain and the cameras' own copies against a plain walk over the bits. And any
// ids of frames.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/device/host/fft.h"
#include "gpu/device/host/fft_plan.h"
#include "gpu/math/raw.h"
#include "gpu/spectral/host/spectral_kernels.h"
#include "server/source/camera_pixels.h"
#include "tests/fuzz/fuzz_input.h"

namespace octavo {
namespace {

using fuzz::Require;
using math::Packing;

// Sample `i`, bit by bit. In both packings an odd sample is the upper twelve bits of its pair; they
// differ in where the even one has its lowest four.
uint32_t Plain(Packing packing, const std::vector<uint8_t>& record, int64_t i) {
  const auto bit = [&](int64_t pair, int at) -> uint32_t {
    return record[static_cast<size_t>(pair * 3 + at / 8)] >> at % 8 & 1u;
  };
  uint32_t value = 0;
  for (int b = 0; b < 12; ++b) {
    int at = b + (i % 2 == 1 ? 12 : 0);
    if (packing == Packing::kHighFirst12 && i % 2 == 0) at = b < 4 ? 8 + b : b - 4;
    value |= bit(i / 2, at) << b;
  }
  return value;
}

std::vector<uint8_t> RecordOf(absl::string_view bytes, Packing packing, int64_t samples) {
  // Memory of just the record's size, so that reads behind it are found.
  std::vector<uint8_t> record(static_cast<size_t>(math::PackedBytes(packing, samples, 2)), 0x5A);
  if (!bytes.empty()) {
    for (size_t i = 0; i < record.size(); ++i)
      record[i] =
          static_cast<uint8_t>(bytes[i % bytes.size()] + static_cast<char>(i / bytes.size()));
  }
  return record;
}

void CheckReader(Packing packing, int64_t samples, absl::string_view bytes) {
  const std::vector<uint8_t> record = RecordOf(bytes, packing, samples);
  std::vector<uint8_t> written(record.size(), 0);
  for (int64_t i = 0; i < samples; ++i) {
    const uint32_t value = math::ReadPacked12(packing, record.data(), i);
    Require(value == Plain(packing, record, i));
    math::WritePacked12(packing, written.data(), i, value);
  }
  for (int64_t i = 0; i < samples; ++i)
    Require(math::ReadPacked12(packing, written.data(), i) == Plain(packing, record, i));
}

// Cameras pack whole pairs; the copy leaves a last single pixel out.
void CheckCamera(Packing packing, int64_t samples, absl::string_view bytes) {
  const int64_t even = samples / 2 * 2;
  const std::vector<uint8_t> record = RecordOf(bytes, packing, even);
  std::vector<uint16_t> out(static_cast<size_t>(even), 0xFFFF);
  const source::PixelFormat* format =
      source::FindPixelFormat(packing == Packing::kLowFirst12 ? "Mono12p" : "Mono12Packed");
  Require(format != nullptr && format->packed);
  format->copy(record.data(), out.data(), even);
  for (int64_t i = 0; i < even; ++i)
    Require(out[static_cast<size_t>(i)] == Plain(packing, record, i));
}

// The host chain reads records in lanes. A window that lets just one sample through makes the first
// row of the transform that sample.
void CheckVectors(Packing packing, int64_t samples, int64_t channels, int64_t channel,
                  int64_t average, int64_t chosen, int64_t records, absl::string_view bytes) {
  const int64_t lanes = host::TileLanes(), in_record = samples * channels;
  const std::vector<uint8_t> record = RecordOf(bytes, packing, in_record);
  std::vector<uint8_t> raw;  // of just its size
  records = std::min(records, lanes);
  raw.reserve(record.size() * static_cast<size_t>(records * average));
  for (int64_t r = 0; r < records * average; ++r) {
    for (const uint8_t byte : record) raw.push_back(static_cast<uint8_t>(byte ^ (r * 37)));
  }
  int64_t length = 2;
  while (length < samples) length *= 2;
  host::TileTables tables{.samples = samples,
                          .raw_type = DType::kU16,
                          .packing = packing,
                          .channels = channels,
                          .channel = channel,
                          .average = average,
                          .n = samples,
                          .depth = 1};
  tables.h_re.assign(static_cast<size_t>(samples), 0);
  tables.h_re[static_cast<size_t>(chosen)] = 1;
  tables.fft = host::MakeFftPlan(length, samples, 0, 1);
  const auto floats = [](int64_t count) {  // 64-byte aligned
    return std::unique_ptr<float, void (*)(void*)>(
        static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>((count + 15) / 16 * 64))),
        std::free);
  };
  const auto scratch = floats(host::TileScratchFloats(tables)), spectra = floats(2 * lanes);
  host::TransformTile(tables, raw.data(), records, {}, spectra.get(), scratch.get());
  for (int64_t r = 0; r < records; ++r) {
    double sum = 0;
    for (int64_t a = 0; a < average; ++a) {
      std::vector<uint8_t> one(raw.begin() + (r * average + a) * std::ssize(record),
                               raw.begin() + (r * average + a + 1) * std::ssize(record));
      sum += Plain(packing, one, chosen * channels + channel);
    }
    Require(std::fabs(spectra.get()[r] - sum / static_cast<double>(average)) < 0.01);
  }
}

void CheckNumbers(fuzz::Input input) {
  source::FrameNumbers numbers;
  std::optional<int64_t> last;
  while (!input.empty()) {
    const bool wide = (input.Byte() & 1) != 0;
    const std::optional<int64_t> number =
        numbers.Number(wide ? input.Number<uint64_t>() : input.Number<uint16_t>());
    if (!number.has_value()) continue;
    Require(*number >= 0 && (!last.has_value() || *number > *last));
    last = number;
  }
}

void Run(fuzz::Input input) {
  const uint8_t kind = input.Byte();
  if (kind % 4 == 3) return CheckNumbers(input);
  const Packing packing = (kind & 0x80) != 0 ? Packing::kHighFirst12 : Packing::kLowFirst12;
  const int64_t samples = 1 + input.Number<uint16_t>() % 2100;
  if (kind % 4 == 0) return CheckReader(packing, samples, input.Rest());
  if (kind % 4 == 1) return CheckCamera(packing, samples, input.Rest());
  const uint8_t form = input.Byte();
  const int64_t channels = 1 + form % 4, channel = form / 4 % channels, average = 1 + form / 16 % 4;
  const int64_t records = 1 + input.Byte() % 16, few = 1 + samples % 300;
  const int64_t chosen = input.Number<uint16_t>() % few;
  CheckVectors(packing, few, channels, channel, average, chosen, records, input.Rest());
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::Run({data, size});
  return 0;
}
