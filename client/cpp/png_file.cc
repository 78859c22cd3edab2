#include "client/cpp/png_file.h"

#include <png.h>

namespace octavo::cli {

std::string WritePng(const std::string& path, const Grey& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.columns);
  png.height = static_cast<png_uint_32>(image.rows);
  png.format = PNG_FORMAT_GRAY;
  if (png_image_write_to_file(&png, path.c_str(), 0, image.pixels.data(), 0, nullptr) == 0) return path + ": " + png.message;
  return "";
}

}  // namespace octavo::cli
