#pragma once

#include <array>
#include <cstdint>

namespace octavo::picture {

/// As octavo.v1.ColourMap.
enum class ColourMap : uint8_t {
  kGray = 1,
  kGrayInverted = 2,
  kViridis = 3,
  kMagma = 4,
  kInferno = 5,
  kPlasma = 6,
  kHot = 7
};

struct Rgb {
  uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Rgb&) const = default;
};

/// 256 colours from dark to bright. Any thread; made once.
const std::array<Rgb, 256>& ColourTable(ColourMap map);

}  // namespace octavo::picture
