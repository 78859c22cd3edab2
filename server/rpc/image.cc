#include "server/rpc/image.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace octavo::rpc {

absl::StatusOr<engine::Bytes> EncodePng(const engine::Frame& frame) {
  if (frame.shape.size() != 2) return absl::InvalidArgumentError("only two-dimensional frames can be PNG");
  const auto rows = static_cast<size_t>(frame.shape[0]), columns = static_cast<size_t>(frame.shape[1]);
  std::vector<uint8_t> grey(rows * columns);
  const double scale = 255.0 / std::max(frame.display_hi - frame.display_lo, 1e-30);
  const auto* bytes = static_cast<const char*>(frame.payload.data);
  const auto convert = [&](auto sample) {
    for (size_t i = 0; i < grey.size(); ++i) {
      std::memcpy(&sample, bytes + i * sizeof sample, sizeof sample);
      const double v = (static_cast<double>(sample) - frame.display_lo) * scale;
      grey[i] = v > 0 ? static_cast<uint8_t>(std::min(v + 0.5, 255.0)) : 0;
    }
  };
  switch (frame.dtype) {
    case DType::kU8: convert(uint8_t{}); break;
    case DType::kU16: convert(uint16_t{}); break;
    default: convert(float{}); break;
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(columns);
  image.height = static_cast<png_uint_32>(rows);
  image.format = PNG_FORMAT_GRAY;
  image.flags = PNG_IMAGE_FLAG_FAST;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  auto out = std::make_shared<std::string>(size, '\0');
  if (png_image_write_to_memory(&image, out->data(), &size, 0, grey.data(), 0, nullptr) == 0) {
    return absl::InternalError(std::string("PNG: ") + image.message);
  }
  return engine::Bytes{.owner = out, .data = out->data(), .size = static_cast<int64_t>(size)};
}

}  // namespace octavo::rpc
