#include "server/source/camera_pixels.h"

#include <cstring>
#include <limits>

namespace octavo::source {
namespace {

void CopyBytes(const uint8_t* from, void* to, int64_t pixels) {
  std::memcpy(to, from, static_cast<size_t>(pixels));
}
void CopyWords(const uint8_t* from, void* to, int64_t pixels) {
  std::memcpy(to, from, static_cast<size_t>(pixels) * 2);
}

// GigE Vision: the high eight bits of both pixels around the low four of each.
void UnpackMono12Packed(const uint8_t* from, void* to, int64_t pixels) {
  auto* out = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i + 1 < pixels; i += 2, from += 3, out += 2) {
    out[0] = static_cast<uint16_t>(from[0] << 4 | (from[1] & 15));
    out[1] = static_cast<uint16_t>(from[2] << 4 | from[1] >> 4);
  }
}

// Pixel Format Naming Convention: 12 bits after 12 bits, lowest first.
void UnpackMono12p(const uint8_t* from, void* to, int64_t pixels) {
  auto* out = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i + 1 < pixels; i += 2, from += 3, out += 2) {
    out[0] = static_cast<uint16_t>(from[0] | (from[1] & 15) << 8);
    out[1] = static_cast<uint16_t>(from[1] >> 4 | from[2] << 4);
  }
}

constexpr PixelFormat kFormats[] = {
    {.name = "Mono8",
     .bits = 8,
     .packed = false,
     .stored = DType::kU8,
     .adc_bits = 8,
     .copy = CopyBytes},
    {.name = "Mono12",
     .bits = 16,
     .packed = false,
     .stored = DType::kU16,
     .adc_bits = 12,
     .copy = CopyWords},
    {.name = "Mono16",
     .bits = 16,
     .packed = false,
     .stored = DType::kU16,
     .adc_bits = 16,
     .copy = CopyWords},
    {.name = "Mono12Packed",
     .bits = 12,
     .packed = true,
     .stored = DType::kU16,
     .adc_bits = 12,
     .copy = UnpackMono12Packed},
    {.name = "Mono12p",
     .bits = 12,
     .packed = true,
     .stored = DType::kU16,
     .adc_bits = 12,
     .copy = UnpackMono12p},
};

}  // namespace

const PixelFormat* FindPixelFormat(const std::string& name) {
  for (const PixelFormat& format : kFormats) {
    if (name == format.name) return &format;
  }
  return nullptr;
}

std::optional<int64_t> FrameNumbers::Number(uint64_t id) {
  zero_seen_ |= id == 0;
  if (!begun_) {
    begun_ = true;
    last_id_ = id;
    return last_number_ = 0;
  }
  uint64_t ahead = 0;
  if (id > last_id_) {
    ahead = id - last_id_;
    if (wrapped_ && id <= 0xFFFF && ahead > 0x7FFF)
      return std::nullopt;  // from before the wrap: it had to wait for its packets
  } else if (last_id_ <= 0xFFFF && last_id_ - id > 0x7FFF) {  // wrapped
    ahead = id + (zero_seen_ ? 0x10000 : 0xFFFF) - last_id_;
    wrapped_ = true;
  } else {
    return std::nullopt;
  }
  // No camera counts so far: an id that leads beyond all numbers is damaged.
  if (ahead > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - last_number_))
    return std::nullopt;
  last_id_ = id;
  return last_number_ += static_cast<int64_t>(ahead);
}

}  // namespace octavo::source
