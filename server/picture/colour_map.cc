#include "server/picture/colour_map.h"

#include <algorithm>
#include <cmath>

namespace octavo::picture {
namespace {

// Every fifth colour, 0 to 255, as 0xRRGGBB, of the maps by Stefan van der Walt and Nathaniel Smith
// (matplotlib, CC0), which are smooth: linear interpolation between these is within 2 levels of the
// published table.
constexpr uint32_t kViridis[52] = {
    0x440154, 0x46085c, 0x471063, 0x481769, 0x481d6f, 0x482475, 0x472a7a, 0x46307e, 0x453781,
    0x433d84, 0x414287, 0x3f4889, 0x3d4e8a, 0x3a538b, 0x38598c, 0x355e8d, 0x33638d, 0x31688e,
    0x2e6d8e, 0x2c718e, 0x2a768e, 0x297b8e, 0x27808e, 0x25848e, 0x23898e, 0x218e8d, 0x20928c,
    0x1f978b, 0x1e9c89, 0x1fa188, 0x21a585, 0x24aa83, 0x28ae80, 0x2eb37c, 0x35b779, 0x3dbc74,
    0x46c06f, 0x50c46a, 0x5ac864, 0x65cb5e, 0x70cf57, 0x7cd250, 0x89d548, 0x95d840, 0xa2da37,
    0xb0dd2f, 0xbddf26, 0xcae11f, 0xd8e219, 0xe5e419, 0xf1e51d, 0xfde725};
constexpr uint32_t kMagma[52] = {
    0x000004, 0x02020b, 0x050416, 0x090720, 0x0e0b2b, 0x140e36, 0x1a1042, 0x21114e, 0x29115a,
    0x311165, 0x390f6e, 0x420f75, 0x4a1079, 0x52137c, 0x5a167e, 0x621980, 0x6a1c81, 0x721f81,
    0x792282, 0x812581, 0x892881, 0x912b81, 0x992d80, 0xa1307e, 0xaa337d, 0xb2357b, 0xba3878,
    0xc23b75, 0xca3e72, 0xd2426f, 0xd9466b, 0xe04c67, 0xe75263, 0xec5860, 0xf1605d, 0xf4695c,
    0xf7725c, 0xf97b5d, 0xfb8560, 0xfc8e64, 0xfd9869, 0xfea16e, 0xfeaa74, 0xfeb47b, 0xfebd82,
    0xfec68a, 0xfecf92, 0xfed89a, 0xfde2a3, 0xfdebac, 0xfcf4b6, 0xfcfdbf};
constexpr uint32_t kInferno[52] = {
    0x000004, 0x02020c, 0x050417, 0x0a0722, 0x10092d, 0x160b39, 0x1e0c45, 0x260c51, 0x2f0a5b,
    0x380962, 0x400a67, 0x490b6a, 0x510e6c, 0x59106e, 0x61136e, 0x69166e, 0x71196e, 0x781c6d,
    0x801f6c, 0x88226a, 0x902568, 0x982766, 0xa02a63, 0xa82e5f, 0xb0315b, 0xb73557, 0xbf3952,
    0xc63d4d, 0xcc4248, 0xd34743, 0xd94d3d, 0xdf5337, 0xe45a31, 0xe9612b, 0xed6925, 0xf1711f,
    0xf47918, 0xf78212, 0xf98b0b, 0xfa9407, 0xfb9d07, 0xfca60c, 0xfcb014, 0xfbba1f, 0xfac42a,
    0xf8cd37, 0xf6d746, 0xf4e156, 0xf2ea69, 0xf2f27d, 0xf5f992, 0xfcffa4};
constexpr uint32_t kPlasma[52] = {
    0x0d0887, 0x1b068d, 0x260591, 0x2f0596, 0x38049a, 0x41049d, 0x4903a0, 0x5102a3, 0x5901a5,
    0x6100a7, 0x6900a8, 0x7100a8, 0x7801a8, 0x8004a8, 0x8707a6, 0x8e0ca4, 0x9511a1, 0x9c179e,
    0xa21d9a, 0xa82296, 0xae2892, 0xb42e8d, 0xba3388, 0xbf3984, 0xc43e7f, 0xc9447a, 0xcd4a76,
    0xd24f71, 0xd6556d, 0xda5b69, 0xde6164, 0xe26660, 0xe66c5c, 0xe97257, 0xed7953, 0xf07f4f,
    0xf3854b, 0xf58c46, 0xf79342, 0xf99a3e, 0xfba139, 0xfca835, 0xfdaf31, 0xfeb72d, 0xfebe2a,
    0xfdc627, 0xfcce25, 0xfbd724, 0xf8df25, 0xf6e826, 0xf3f027, 0xf0f921};

using Table = std::array<Rgb, 256>;

Table Between(const uint32_t (&anchors)[52]) {
  Table table{};
  for (int i = 0; i < 256; ++i) {
    const int left = std::min(i / 5, 50), part = i - 5 * left;
    const auto channel = [&](int shift) {
      const int a = static_cast<int>(anchors[left] >> shift & 0xFF),
                b = static_cast<int>(anchors[left + 1] >> shift & 0xFF);
      return static_cast<uint8_t>((a * (5 - part) + b * part + 2) / 5);
    };
    table[static_cast<size_t>(i)] = {channel(16), channel(8), channel(0)};
  }
  return table;
}

Table Grey(bool inverted) {
  Table table{};
  for (int i = 0; i < 256; ++i) {
    const auto level = static_cast<uint8_t>(inverted ? 255 - i : i);
    table[static_cast<size_t>(i)] = {level, level, level};
  }
  return table;
}

// Black, red, yellow, white: each channel rises in turn, with the breakpoints of matplotlib's table
// of that name.
Table Hot() {
  Table table{};
  const auto rise = [](double x, double from, double to, double start) {
    const double level = x <= from ? start
                         : x >= to ? 1.0
                                   : start + (1 - start) * (x - from) / (to - from);
    return static_cast<uint8_t>(std::lround(255 * level));
  };
  for (int i = 0; i < 256; ++i) {
    const double x = i / 255.0;
    table[static_cast<size_t>(i)] = {rise(x, 0, 0.365079, 0.0416), rise(x, 0.365079, 0.746032, 0),
                                     rise(x, 0.746032, 1, 0)};
  }
  return table;
}

}  // namespace

const std::array<Rgb, 256>& ColourTable(ColourMap map) {
  static const Table gray = Grey(false), inverted = Grey(true), viridis = Between(kViridis),
                     magma = Between(kMagma), inferno = Between(kInferno),
                     plasma = Between(kPlasma), hot = Hot();
  switch (map) {
    case ColourMap::kGrayInverted: return inverted;
    case ColourMap::kViridis: return viridis;
    case ColourMap::kMagma: return magma;
    case ColourMap::kInferno: return inferno;
    case ColourMap::kPlasma: return plasma;
    case ColourMap::kHot: return hot;
    case ColourMap::kGray: break;
  }
  return gray;
}

}  // namespace octavo::picture
