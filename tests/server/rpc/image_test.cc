#include "server/picture/image.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <malloc.h>
#include <memory>
#include <numeric>
#include <png.h>
#include <string>
#include <tuple>
#include <turbojpeg.h>
#include <vector>
#include <webp/decode.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/picture/picture_budget.h"
#include "server/picture/picture_cache.h"
#include "server/rpc/convert/convert.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::testing::ElementsAre;
using Contrast = ImageOptions::Contrast;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
engine::Frame FrameOf(DType dtype, int64_t rows, int64_t columns, const std::vector<T>& values) {
  auto bytes = std::make_shared<std::string>(values.size() * sizeof(T), '\0');
  std::memcpy(bytes->data(), values.data(), bytes->size());
  engine::Frame frame;
  frame.product = engine::Product::kBscan;
  frame.shape = {rows, columns};
  frame.axes = {"x", "z"};
  frame.spacing_um = {10, 4};
  frame.dtype = dtype;
  frame.display_lo = 0;
  frame.display_hi = 255;
  frame.payload = {
      .owner = bytes, .data = bytes->data(), .size = static_cast<int64_t>(bytes->size())};
  return frame;
}

// Decodes the file with the readers of libpng, libjpeg and libwebp.
Pixels Decoded(const engine::Bytes& file) {
  Pixels pixels;
  const auto* data = static_cast<const uint8_t*>(file.data);
  if (data[0] == 'R') {
    int rows = 0, columns = 0;
    uint8_t* const colours = WebPDecodeRGB(data, static_cast<size_t>(file.size), &columns, &rows);
    EXPECT_NE(colours, nullptr);
    if (colours == nullptr) return pixels;
    pixels = {.rows = rows, .columns = columns, .channels = 3, .data = {}};
    pixels.data.assign(colours, colours + 3 * rows * columns);
    WebPFree(colours);
    return pixels;
  }
  if (data[0] == 0x89) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    EXPECT_NE(png_image_begin_read_from_memory(&image, data, static_cast<size_t>(file.size)), 0)
        << image.message;
    pixels.channels = (image.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1;
    image.format = pixels.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    pixels.rows = image.height;
    pixels.columns = image.width;
    pixels.data.resize(PNG_IMAGE_SIZE(image));
    EXPECT_NE(png_image_finish_read(&image, nullptr, pixels.data.data(), 0, nullptr), 0)
        << image.message;
    return pixels;
  }
  tjhandle reader = tjInitDecompress();
  int width = 0, height = 0, sampling = 0, space = 0;
  EXPECT_EQ(tjDecompressHeader3(reader, data, static_cast<size_t>(file.size), &width, &height,
                                &sampling, &space),
            0)
      << tjGetErrorStr2(reader);
  pixels.channels = space == TJCS_GRAY ? 1 : 3;
  pixels.rows = height;
  pixels.columns = width;
  pixels.data.resize(static_cast<size_t>(width * height * pixels.channels));
  EXPECT_EQ(tjDecompress2(reader, data, static_cast<size_t>(file.size), pixels.data.data(), width,
                          0, height, pixels.channels == 1 ? TJPF_GRAY : TJPF_RGB, 0),
            0);
  tjDestroy(reader);
  return pixels;
}

Picture Made(const engine::Frame& frame, const ImageOptions& options) {
  auto picture = MakePicture(frame, options);
  EXPECT_THAT(picture, IsOk());
  return picture.ok() ? *std::move(picture) : Picture{};
}
std::vector<uint8_t> Shown(const engine::Frame& frame, const ImageOptions& options) {
  return Decoded(Made(frame, options).data).data;
}

Rgb At(const Pixels& pixels, int64_t row, int64_t column) {
  const uint8_t* p = &pixels.data[static_cast<size_t>((row * pixels.columns + column) * 3)];
  return {p[0], p[1], p[2]};
}

int Apart(Rgb a, Rgb b) {
  return std::max(
      {std::abs(a.red - b.red), std::abs(a.green - b.green), std::abs(a.blue - b.blue)});
}

TEST(ImageTest, EveryTypeOfSampleShowsTheSame) {
  const std::vector<uint8_t> expected = {0, 64, 128, 255};
  const auto check = [&](const engine::Frame& frame) {
    EXPECT_EQ(Shown(frame, {}), expected) << Info(frame.dtype).name;
  };
  check(FrameOf<uint8_t>(DType::kU8, 2, 2, {0, 64, 128, 255}));
  check(FrameOf<uint16_t>(DType::kU16, 2, 2, {0, 64, 128, 60000}));
  check(FrameOf<int16_t>(DType::kI16, 2, 2, {-5, 64, 128, 3000}));
  check(FrameOf<uint16_t>(DType::kF16, 2, 2,
                          {0x8400, 0x5400, 0x5800, 0x7C00}));  // -tiny, 64, 128, infinity
  check(FrameOf<float>(DType::kF32, 2, 2, {kNan, 64, 128, 1e30f}));
  check(FrameOf<double>(DType::kF64, 2, 2, {-1, 64, 128, 255}));
  check(FrameOf<std::complex<float>>(DType::kC64, 2, 2, {{0, 0}, {0, -64}, {128, 0}, {153, 204}}));
  EXPECT_EQ(Shown(FrameOf<int8_t>(DType::kI8, 1, 3, {-128, 0, 127}),
                  {.contrast = Contrast::kLevels, .lo = -128, .hi = 127}),
            (std::vector<uint8_t>{0, 128, 255}));
}

TEST(ImageTest, LevelsStretchTheContrast) {
  const auto frame = FrameOf<float>(DType::kF32, 1, 5, {-2, -1, 0, 1, 7});
  EXPECT_EQ(Shown(frame, {.contrast = Contrast::kLevels, .lo = -1, .hi = 1}),
            (std::vector<uint8_t>{0, 0, 128, 255, 255}));
  const Picture picture = Made(frame, {.contrast = Contrast::kLevels, .lo = -1, .hi = 1});
  EXPECT_EQ(picture.display_lo, -1);
  EXPECT_EQ(picture.display_hi, 1);
  EXPECT_TRUE(picture.warnings.empty());
}

TEST(ImageTest, LevelsAreInValueUnits) {
  auto frame = FrameOf<uint8_t>(DType::kU8, 1, 5, {0, 100, 128, 200, 255});
  frame.scale = {.offset = -20, .step = 0.5, .unit = "dB"};
  const Picture picture = Made(frame, {.contrast = Contrast::kLevels, .lo = 30, .hi = 80});
  EXPECT_EQ(picture.display_lo, 100);
  EXPECT_EQ(picture.display_hi, 200);
  EXPECT_TRUE(picture.warnings.empty());
  // Levels of another unit: all is black or white, and the picture says so.
  for (const auto& [lo, hi, words] : std::vector<std::tuple<float, float, const char*>>{
           {1000, 2000, "nearly all pixels lie below"},
           {-900, -500, "nearly all pixels lie above"}}) {
    const Picture lost = Made(frame, {.contrast = Contrast::kLevels, .lo = lo, .hi = hi});
    ASSERT_EQ(lost.warnings.size(), 1u);
    EXPECT_THAT(lost.warnings[0], ::testing::HasSubstr(words));
    EXPECT_THAT(lost.warnings[0], ::testing::HasSubstr("their values are -20 to 107.5 dB"));
  }
}

// A bar of a length that nobody measured would be believed.
TEST(ImageTest, NoScaleBarWhereTheSpacingIsAssumed) {
  auto frame = FrameOf<uint8_t>(DType::kU8, 80, 100, std::vector<uint8_t>(8000, 7));
  frame.axes = {"x", "z"};
  frame.spacing_um = {2, 3};
  for (const bool turned : {false, true}) {
    const ImageOptions options{.depth_down = turned, .scale_bar = true};
    frame.row_spacing_assumed = frame.column_spacing_assumed = false;
    EXPECT_GT(Made(frame, options).scale_bar_um, 0);
    EXPECT_TRUE(Made(frame, options).warnings.empty());
    frame.column_spacing_assumed = !turned;
    frame.row_spacing_assumed = turned;
    EXPECT_EQ(Made(frame, options).scale_bar_um, 0);
    ASSERT_EQ(Made(frame, options).warnings.size(), 1u);
    EXPECT_THAT(Made(frame, options).warnings[0],
                ::testing::HasSubstr(turned ? "along x" : "along z"));
  }
}

TEST(ImageTest, PercentilesIgnoreWhatIsNotFinite) {
  std::vector<float> values(201);
  std::iota(values.begin(), values.end(), 0.f);
  std::reverse(values.begin(), values.end());
  values.push_back(kNan);
  values.push_back(std::numeric_limits<float>::infinity());
  const auto frame = FrameOf<float>(DType::kF32, 7, 29, values);
  const Picture picture = Made(frame, {.contrast = Contrast::kPercentiles, .lo = 1, .hi = 99.25});
  EXPECT_NEAR(picture.display_lo, 2, 1e-5);      // of 0 ... 200: position 0.01 * 200
  EXPECT_NEAR(picture.display_hi, 198.5, 1e-3);  // between 198 and 199
  const Picture all = Made(frame, {.contrast = Contrast::kPercentiles, .lo = 0, .hi = 100});
  EXPECT_EQ(all.display_lo, 0);
  EXPECT_EQ(all.display_hi, 200);
  // Constant values and no values at all: a dark picture, no division by zero.
  EXPECT_EQ(Shown(FrameOf<float>(DType::kF32, 1, 3, {7, 7, 7}),
                  {.contrast = Contrast::kPercentiles, .lo = 1, .hi = 99}),
            (std::vector<uint8_t>{0, 0, 0}));
  EXPECT_EQ(Shown(FrameOf<float>(DType::kF32, 1, 2, {kNan, kNan}),
                  {.contrast = Contrast::kPercentiles, .lo = 1, .hi = 99}),
            (std::vector<uint8_t>{0, 0}));
}

TEST(ImageTest, ColourMapsAreThePublishedOnes) {
  std::vector<uint8_t> ramp(256);
  std::iota(ramp.begin(), ramp.end(), uint8_t{0});
  const auto frame = FrameOf<uint8_t>(DType::kU8, 1, 256, ramp);
  // Values of matplotlib's tables; colour_map.cc contains none of these places except the ends.
  const struct {
    ColourMap map;
    std::vector<std::pair<int, Rgb>> colours;
  } published[] = {{ColourMap::kViridis,
                    {{0, {68, 1, 84}},
                     {64, {59, 82, 139}},
                     {128, {33, 145, 140}},
                     {191, {92, 200, 99}},
                     {255, {253, 231, 37}}}},
                   {ColourMap::kMagma,
                    {{0, {0, 0, 4}},
                     {64, {81, 18, 124}},
                     {128, {183, 55, 121}},
                     {191, {251, 135, 97}},
                     {255, {252, 253, 191}}}},
                   {ColourMap::kInferno,
                    {{0, {0, 0, 4}},
                     {64, {87, 16, 110}},
                     {128, {188, 55, 84}},
                     {191, {249, 140, 10}},
                     {255, {252, 255, 164}}}},
                   {ColourMap::kPlasma,
                    {{0, {13, 8, 135}},
                     {64, {126, 3, 168}},
                     {128, {204, 71, 120}},
                     {191, {248, 148, 65}},
                     {255, {240, 249, 33}}}},
                   {ColourMap::kHot,
                    {{0, {11, 0, 0}},
                     {64, {179, 0, 0}},
                     {128, {255, 92, 0}},
                     {191, {255, 255, 3}},
                     {255, {255, 255, 255}}}}};
  for (const auto& [map, colours] : published) {
    const Pixels pixels = Decoded(Made(frame, {.colour_map = map}).data);
    ASSERT_EQ(pixels.channels, 3);
    for (const auto& [level, colour] : colours) {
      const Rgb got = At(pixels, 0, level);
      EXPECT_LE(Apart(got, colour), 2) << "map " << static_cast<int>(map) << " at " << level << ": "
                                       << +got.red << " " << +got.green << " " << +got.blue;
    }
  }
  // The uniform maps become steadily brighter.
  for (const ColourMap map :
       {ColourMap::kViridis, ColourMap::kMagma, ColourMap::kInferno, ColourMap::kPlasma}) {
    const auto brightness = [&](size_t i) {
      const Rgb c = ColourTable(map)[i];
      return 0.2126 * std::pow(c.red / 255.0, 2.2) + 0.7152 * std::pow(c.green / 255.0, 2.2) +
             0.0722 * std::pow(c.blue / 255.0, 2.2);
    };
    for (size_t i = 5; i < 256; i += 5)
      EXPECT_GT(brightness(i), brightness(i - 5)) << static_cast<int>(map) << " at " << i;
  }
  EXPECT_EQ(Shown(frame, {.colour_map = ColourMap::kGray}), ramp);
  std::vector<uint8_t> inverted(ramp.rbegin(), ramp.rend());
  EXPECT_EQ(Shown(frame, {.colour_map = ColourMap::kGrayInverted}), inverted);
}

TEST(ImageTest, JpegShowsWhatPngShows) {
  std::vector<uint8_t> values(64 * 96);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<uint8_t>(127.5 + 90 * std::sin(static_cast<double>(i / 96) * 0.15) *
                                                 std::cos(static_cast<double>(i % 96) * 0.1));
  }
  const auto frame = FrameOf<uint8_t>(DType::kU8, 64, 96, values);
  int64_t last = 0;
  for (const ColourMap map : {ColourMap::kGray, ColourMap::kInferno}) {
    const Pixels exact = Decoded(Made(frame, {.colour_map = map}).data);
    const Picture picture =
        Made(frame, {.encoding = ImageOptions::Encoding::kJpeg, .colour_map = map, .quality = 95});
    const Pixels close = Decoded(picture.data);
    ASSERT_EQ(close.channels, exact.channels);
    ASSERT_EQ(close.rows, 64);
    ASSERT_EQ(close.columns, 96);
    double total = 0;
    for (size_t i = 0; i < exact.data.size(); ++i) total += std::abs(exact.data[i] - close.data[i]);
    EXPECT_LT(total / static_cast<double>(exact.data.size()), 2.0);
    EXPECT_EQ(picture.shape, (std::vector<int64_t>{64, 96}));
    last = picture.data.size;
  }
  EXPECT_LT(Made(frame, {.encoding = ImageOptions::Encoding::kJpeg,
                         .colour_map = ColourMap::kInferno,
                         .quality = 10})
                .data.size,
            last);
}

TEST(ImageTest, WebpShowsWhatPngShows) {
  std::vector<uint8_t> values(64 * 96);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<uint8_t>(127.5 + 90 * std::sin(static_cast<double>(i / 96) * 0.15) *
                                                 std::cos(static_cast<double>(i % 96) * 0.1));
  }
  const auto frame = FrameOf<uint8_t>(DType::kU8, 64, 96, values);
  const auto webp = [&](ColourMap map, int quality) {
    return Made(frame,
                {.encoding = ImageOptions::Encoding::kWebp, .colour_map = map, .quality = quality});
  };
  for (const ColourMap map : {ColourMap::kGray, ColourMap::kInferno}) {
    const Pixels png = Decoded(Made(frame, {.colour_map = map}).data);
    std::vector<uint8_t> wanted;  // WebP has three channels always
    for (size_t i = 0; i < png.data.size(); ++i)
      wanted.insert(wanted.end(), png.channels == 1 ? 3 : 1, png.data[i]);
    const Pixels exact = Decoded(webp(map, 100).data);
    EXPECT_EQ(exact.rows, 64);
    EXPECT_EQ(exact.columns, 96);
    EXPECT_EQ(exact.data, wanted);
    const Pixels close = Decoded(webp(map, 95).data);
    ASSERT_EQ(close.data.size(), wanted.size());
    double total = 0;
    for (size_t i = 0; i < wanted.size(); ++i) total += std::abs(wanted[i] - close.data[i]);
    EXPECT_LT(total / static_cast<double>(wanted.size()), 3.0);
    EXPECT_NE(close.data, wanted);
    EXPECT_LT(webp(map, 10).data.size, webp(map, 95).data.size);
    EXPECT_EQ(webp(map, 10).shape, (std::vector<int64_t>{64, 96}));
  }
  // The format's largest side; PNG and JPEG have more.
  const auto wide = FrameOf<uint8_t>(DType::kU8, 1, 20000, std::vector<uint8_t>(20000, 7));
  EXPECT_EQ(Made(wide, {.encoding = ImageOptions::Encoding::kWebp}).shape,
            (std::vector<int64_t>{1, 16383}));
  EXPECT_EQ(Made(wide, {}).shape, (std::vector<int64_t>{1, 20000}));
}

TEST(ImageTest, TheColourBarHasTheColoursAndNumbers) {
  for (const ColourMap map : {ColourMap::kGray, ColourMap::kViridis}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{120, 90}, {700, 1100}}) {
      auto frame = FrameOf<uint8_t>(DType::kU8, rows, columns,
                                    std::vector<uint8_t>(static_cast<size_t>(rows * columns), 100));
      frame.scale = {.offset = -20, .step = 0.5, .unit = "dB"};
      const ImageOptions plain{
          .colour_map = map, .contrast = Contrast::kLevels, .lo = 0, .hi = 200};
      ImageOptions options = plain;
      options.colour_bar = true;
      const Picture picture = Made(frame, options);
      const Pixels pixels = Decoded(picture.data), without = Decoded(Made(frame, plain).data);
      ASSERT_GT(picture.colour_bar_columns, 20);
      ASSERT_LE(picture.colour_bar_columns, kMostColourBarColumns);
      EXPECT_EQ(picture.shape, (std::vector<int64_t>{rows, columns + picture.colour_bar_columns}));
      EXPECT_EQ(pixels.columns, columns + picture.colour_bar_columns);
      const auto pixel = [&](const Pixels& of, int64_t row, int64_t column) {
        const auto at = static_cast<size_t>((row * of.columns + column) * of.channels);
        return of.channels == 3 ? Rgb{of.data[at], of.data[at + 1], of.data[at + 2]}
                                : Rgb{of.data[at], of.data[at], of.data[at]};
      };
      // The picture itself is as without the bar.
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(pixel(pixels, r, c), pixel(without, r, c)) << r << " " << c;
      }
      // Down its middle, the colours from bright to dark without a gap.
      const int64_t size = columns / 256 > 0 ? std::min(columns / 256, rows / 96) : 1;
      const int64_t middle = columns + 9 * size;  // between the letters of the unit above
      const auto& table = ColourTable(map);
      std::vector<size_t> levels;
      for (int64_t r = 0; r < rows; ++r) {
        const Rgb colour = pixel(pixels, r, middle);
        const auto found = std::find(table.begin(), table.end(), colour);
        if (found == table.end() || (levels.empty() && colour != table[255])) continue;
        levels.push_back(static_cast<size_t>(found - table.begin()));
      }
      ASSERT_GT(levels.size(), static_cast<size_t>(rows / 2));
      EXPECT_EQ(levels.front(), 255u);
      // Below the bar is the black of the margin, which is the darkest grey, too.
      EXPECT_TRUE(std::is_sorted(levels.rbegin(), levels.rend()));
      EXPECT_EQ(*std::min_element(levels.begin(), levels.end()), 0u);
      // Marks at the numbers within it; between it and the numbers nothing that looks like a sign.
      int64_t marks = 0;
      for (int64_t r = 0; r < rows; ++r) {
        if (r < 16 * size) continue;  // the unit stands above the bar
        const Rgb edge = pixel(pixels, r, columns + (4 + 8) * size - 1);
        marks += edge != pixel(pixels, r, middle) && (edge == Rgb{} || edge == Rgb{255, 255, 255});
        for (int64_t c = columns + (4 + 8) * size; c < columns + (4 + 8 + 3) * size; ++c)
          ASSERT_EQ(pixel(pixels, r, c), Rgb{}) << r << " " << c;
      }
      EXPECT_GE(marks, 2);
      // White numbers beside it: several of them, with dark rows between.
      int64_t texts = 0;
      bool inked = false;
      for (int64_t r = 0; r < rows; ++r) {
        bool ink = false;
        for (int64_t c = columns + (4 + 8 + 3) * size; c < pixels.columns; ++c)
          ink |= pixel(pixels, r, c) == Rgb{255, 255, 255};
        texts += ink && !inked;
        inked = ink;
      }
      EXPECT_GE(texts, 3) << rows;
    }
  }
  // The numbers are values: another offset gives another text, the same colours.
  auto frame = FrameOf<uint8_t>(DType::kU8, 100, 60, std::vector<uint8_t>(6000, 9));
  const ImageOptions options{.contrast = Contrast::kLevels, .lo = 0, .hi = 200, .colour_bar = true};
  frame.scale = {.offset = 0, .step = 1, .unit = ""};
  const std::vector<uint8_t> stored = Shown(frame, options);
  frame.scale = {.offset = -20, .step = 0.5, .unit = "dB"};
  EXPECT_NE(Shown(frame, options), stored);
  // No room: the picture stays as it is, and says so.
  const auto low = FrameOf<uint8_t>(DType::kU8, 12, 60, std::vector<uint8_t>(720, 9));
  EXPECT_EQ(Made(low, options).colour_bar_columns, 0);
  ASSERT_EQ(Made(low, options).warnings.size(), 1u);
  EXPECT_THAT(Made(low, options).warnings[0],
              ::testing::HasSubstr("the picture of 60 x 12 pixels is too small for one"));
  EXPECT_EQ(Made(low, options).shape, (std::vector<int64_t>{12, 60}));
}

TEST(ImageTest, DisplayLevelsThatShowOneColourAreDoubted) {
  auto frame = FrameOf<uint8_t>(DType::kU8, 10, 10, std::vector<uint8_t>(100, 9));
  frame.scale = {.offset = -20, .step = 0.5, .unit = "dB"};
  frame.display_lo = 60;
  frame.display_hi = 160;
  const ImageOptions options{.contrast = Contrast::kDisplay};
  ASSERT_EQ(Made(frame, options).warnings.size(), 1u);
  EXPECT_EQ(
      Made(frame, options).warnings[0],
      "The display levels (image.display_levels) are 10 to 60 dB; nearly all pixels lie below "
      "them: their values are -15.5 to -15.5 dB");
  frame.display_lo = 0;
  EXPECT_TRUE(Made(frame, options).warnings.empty());
}

TEST(ImageTest, PixelsAreNotMadeSquareByASpacingThatNobodyGave) {
  auto frame = FrameOf<uint8_t>(DType::kU8, 10, 10, std::vector<uint8_t>(100, 9));
  frame.axes = {"y", "z"};
  frame.spacing_um = {1, 4};
  const ImageOptions options{.contrast = Contrast::kPercentiles,
                             .lo = 0,
                             .hi = 100,
                             .square_pixels = true,
                             .depth_down = true};
  EXPECT_EQ(Made(frame, options).shape, (std::vector<int64_t>{10, 3}));
  frame.row_spacing_assumed = true;
  EXPECT_EQ(Made(frame, options).shape, (std::vector<int64_t>{10, 10}));
  EXPECT_EQ(Made(frame, options).warnings,
            std::vector<std::string>{"no square pixels: the sample spacing along y is unknown"});
}

// Between two numbers that are a few steps of float arithmetic apart, no round number stands.
TEST(ImageTest, AColourBarOfAlmostOneValueEnds) {
  for (const int ulps : {1, 2, 5, 40}) {
    for (const float lo : {0.f, 1.f, 1e30f, -3e-30f}) {
      float hi = lo;
      for (int i = 0; i < ulps; ++i) hi = std::nextafter(hi, std::numeric_limits<float>::max());
      for (const double offset : {0.0, -300.0, 1e300}) {
        auto frame = FrameOf<uint8_t>(DType::kU8, 100, 60, std::vector<uint8_t>(6000, 9));
        frame.scale = {.offset = offset, .step = 6, .unit = "dB"};
        EXPECT_GT(
            Made(frame, {.contrast = Contrast::kLevels, .lo = lo, .hi = hi, .colour_bar = true})
                .colour_bar_columns,
            0);
      }
    }
  }
  // One step of the values that are shown, which the levels differ by much less than.
  auto frame = FrameOf<uint8_t>(DType::kU8, 400, 60, std::vector<uint8_t>(24000, 9));
  frame.scale = {.offset = -300, .step = 6, .unit = "dB"};
  EXPECT_GT(Made(frame, {.contrast = Contrast::kLevels,
                         .lo = 0,
                         .hi = 9.478965534460695e-12f,
                         .colour_bar = true})
                .colour_bar_columns,
            0);
}

TEST(ImageTest, APictureKeepsNoMoreMemoryThanItsBytes) {
  const auto frame = FrameOf<uint8_t>(DType::kU8, 1000, 1000, std::vector<uint8_t>(1000000, 9));
  for (const auto encoding : {ImageOptions::Encoding::kPng, ImageOptions::Encoding::kWebp}) {
    const Picture picture = Made(frame, {.encoding = encoding, .colour_map = ColourMap::kViridis});
    EXPECT_LT(picture.data.size, 100'000);
    EXPECT_LT(malloc_usable_size(const_cast<void*>(picture.data.data)), 200'000u)
        << static_cast<int>(encoding);
  }
}

// However many ways to look at frames that live on clients find, the cache keeps a few.
TEST(PictureCacheTest, HoldsTheLastUsedWithinItsBytes) {
  std::vector<model::FramePtr> frames;
  for (uint8_t i = 0; i < 4; ++i) {
    frames.push_back(std::make_shared<const model::Frame>(
        FrameOf<uint8_t>(DType::kU8, 64, 64, std::vector<uint8_t>(4096, i))));
  }
  const auto raw = [](int64_t width) {  // width * 64 bytes
    return ImageOptions{.encoding = ImageOptions::Encoding::kRaw, .max_width = width};
  };
  picture::PictureCache cache(10'000);
  const auto first = cache.Get(frames[0], raw(64)).value(),
             second = cache.Get(frames[1], raw(64)).value();
  EXPECT_EQ(cache.bytes(), 2 * 4096);
  EXPECT_EQ(cache.Get(frames[0], raw(64)).value(), first) << "made once";
  const auto third = cache.Get(frames[2], raw(64)).value();
  EXPECT_EQ(cache.bytes(), 2 * 4096);
  EXPECT_EQ(cache.Get(frames[0], raw(64)).value(), first) << "used after the second";
  EXPECT_NE(cache.Get(frames[1], raw(64)).value(), second);
  for (int64_t height = 1; height < 64; ++height) {
    ImageOptions options = raw(64);
    options.max_height = height;
    ASSERT_THAT(cache.Get(frames[3], options), IsOk());
    ASSERT_LE(cache.bytes(), 10'000);
  }
  // Pictures of frames that are gone go with the next call; one beyond the bound is not kept.
  frames.resize(1);
  const auto large = std::make_shared<const model::Frame>(
      FrameOf<uint8_t>(DType::kU8, 200, 64, std::vector<uint8_t>(12800, 1)));
  ASSERT_THAT(cache.Get(large, raw(64)), IsOk());
  EXPECT_LE(cache.bytes(), 4096);
}

// Shares count until they are given back; one picture at a time may be larger than the budget.
TEST(PictureBudgetTest, BoundsWhatIsMadeAndSent) {
  const auto is_busy = [](const auto& refused) {
    return !refused.ok() && InfoOf(refused.status()).reason == Reason::kBusy;
  };
  picture::PictureBudget budget(1000);
  auto huge = budget.Take(5000).value();
  EXPECT_TRUE(is_busy(budget.Take(1))) << "it has everything";
  huge->Made(600);  // and is being sent
  auto other = budget.Take(300).value();
  EXPECT_EQ(budget.bytes(), 900);
  EXPECT_TRUE(is_busy(budget.Take(200))) << "another one is being made";
  EXPECT_EQ(budget.bytes(), 900) << "a refusal changes nothing";
  other->Made(300);
  auto third = budget.Take(200).value();
  third->Made(150);
  EXPECT_TRUE(is_busy(budget.Take(1))) << "slow readers have everything";
  huge = nullptr;
  EXPECT_EQ(budget.bytes(), 450);
  ASSERT_THAT(budget.Take(500), IsOk());
  other = third = nullptr;
  EXPECT_EQ(budget.bytes(), 0);
}

// Whoever waited for it has gone, at whichever step: no other step follows.
TEST(ImageTest, APictureThatNobodyWantsIsNotMade) {
  std::vector<uint8_t> values(300 * 300);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * i >> 3);
  const auto frame = FrameOf<uint8_t>(DType::kU8, 300, 300, values);
  for (const auto encoding : {ImageOptions::Encoding::kRaw, ImageOptions::Encoding::kPng,
                              ImageOptions::Encoding::kJpeg, ImageOptions::Encoding::kWebp}) {
    int steps = 0;
    const ImageOptions options{.encoding = encoding, .quality = 100};
    ASSERT_THAT(MakePicture(frame, options, [&] { return ++steps, false; }), IsOk());
    EXPECT_GE(steps, encoding == ImageOptions::Encoding::kRaw    ? 3
                     : encoding == ImageOptions::Encoding::kWebp ? 8
                                                                 : 5);
    for (int last = 1; last <= steps; ++last) {
      int asked = 0;
      EXPECT_THAT(MakePicture(frame, options, [&] { return ++asked >= last; }),
                  IsError(absl::StatusCode::kCancelled, "no client waits"));
      EXPECT_LE(asked, last + 1) << static_cast<int>(encoding);
    }
  }
}

TEST(ImageTest, ShrinkingAveragesAreas) {
  const auto frame =
      FrameOf<float>(DType::kF32, 2, 6, {0, 10, 20, 30, kNan, kNan, 20, 30, 40, 50, kNan, 70});
  const Picture half = Made(frame, {.max_width = 3});
  EXPECT_EQ(half.shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(Decoded(half.data).data, (std::vector<uint8_t>{15, 35, 70}));  // NaN is ignored
  EXPECT_THAT(half.spacing_um, ElementsAre(20, 8));
  // 6 columns become 4: each new one covers one and a half.
  const auto line = FrameOf<float>(DType::kF32, 1, 6, {0, 30, 60, 90, 120, 150});
  EXPECT_EQ(Shown(line, {.max_width = 4}), (std::vector<uint8_t>{10, 50, 100, 140}));
  // A picture is never enlarged and never empty.
  EXPECT_EQ(Made(line, {.max_width = 600, .max_height = 600}).shape, (std::vector<int64_t>{1, 6}));
  EXPECT_EQ(Made(line, {.max_width = 1}).shape, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(
      Made(FrameOf<uint8_t>(DType::kU8, 30, 4, std::vector<uint8_t>(120, 9)), {.max_height = 15})
          .shape,
      (std::vector<int64_t>{15, 2}));
  // Both limits apply, independently of each other.
  const auto wide = Made(FrameOf<uint8_t>(DType::kU8, 50, 101, std::vector<uint8_t>(5050, 9)),
                         {.max_width = 40, .max_height = 11})
                        .shape;
  EXPECT_LE(wide[0], 11);
  EXPECT_LE(wide[1], 40);
}

TEST(ImageTest, DepthRunsDownAndPixelsAreSquare) {
  std::vector<uint8_t> values(4 * 10);
  std::iota(values.begin(), values.end(), uint8_t{0});
  auto frame = FrameOf<uint8_t>(DType::kU8, 4, 10, values);  // [x, z], 10 um by 4 um
  const Picture turned = Made(frame, {.depth_down = true});
  EXPECT_EQ(turned.shape, (std::vector<int64_t>{10, 4}));
  EXPECT_THAT(turned.axes, ElementsAre("z", "x"));
  EXPECT_THAT(turned.spacing_um, ElementsAre(4, 10));
  EXPECT_EQ(Decoded(turned.data).data[1 * 4 + 3], values[3 * 10 + 1]);
  const Picture square = Made(frame, {.square_pixels = true, .depth_down = true});
  EXPECT_EQ(square.shape, (std::vector<int64_t>{4, 4}));
  EXPECT_THAT(square.spacing_um, ElementsAre(10, 10));
  frame.axes = {"y", "x"};  // an en face image stays as it is
  EXPECT_EQ(Made(frame, {.depth_down = true}).shape, (std::vector<int64_t>{4, 10}));
}

TEST(ImageTest, RawIsTurnedAndShrunkOnly) {
  const ImageOptions options{
      .encoding = ImageOptions::Encoding::kRaw, .max_width = 1, .depth_down = true};
  const auto check = [&]<class T>(DType dtype, DType expected_dtype, auto values,
                                  const std::vector<T>& expected) {
    const Picture picture = Made(FrameOf(dtype, 2, 2, values), options);  // [x, z] to [z, 1]
    EXPECT_EQ(picture.shape, (std::vector<int64_t>{1, 1})) << Info(dtype).name;
    EXPECT_EQ(picture.dtype, expected_dtype) << Info(dtype).name;
    ASSERT_EQ(picture.data.size, static_cast<int64_t>(sizeof(T)));
    EXPECT_EQ(*static_cast<const T*>(picture.data.data), expected[0]) << Info(dtype).name;
    EXPECT_EQ(picture.display_hi, 255);
  };
  check(DType::kU8, DType::kU8, std::vector<uint8_t>{255, 254, 255, 254},
        std::vector<uint8_t>{255});  // 254.5
  check(DType::kI8, DType::kI8, std::vector<int8_t>{-128, -127, -128, -127},
        std::vector<int8_t>{-128});
  check(DType::kU16, DType::kU16, std::vector<uint16_t>{65535, 65533, 65535, 65533},
        std::vector<uint16_t>{65534});
  check(DType::kI16, DType::kI16, std::vector<int16_t>{-32768, 1, 2, 3},
        std::vector<int16_t>{-8191});  // -8190.5
  check(DType::kF32, DType::kF32, std::vector<float>{1, kNan, 2, 4.5}, std::vector<float>{2.5});
  check(DType::kF64, DType::kF32, std::vector<double>{1, 2, 3, 4}, std::vector<float>{2.5});
  check(DType::kC64, DType::kF32,
        std::vector<std::complex<float>>{{3, 4}, {0, 5}, {-5, 0}, {0, -1}}, std::vector<float>{4});
  std::vector<uint8_t> values(6);
  std::iota(values.begin(), values.end(), uint8_t{0});
  const Picture turned = Made(FrameOf<uint8_t>(DType::kU8, 2, 3, values),
                              {.encoding = ImageOptions::Encoding::kRaw, .depth_down = true});
  EXPECT_EQ(std::string(static_cast<const char*>(turned.data.data), 6),
            std::string({0, 3, 1, 4, 2, 5}));
}

TEST(ImageTest, TheScaleBarIsAsLongAsItSays) {
  for (const double um : {0.03, 0.7, 1.0, 3.7, 12.0, 900.0}) {
    Pixels pixels{
        .rows = 300, .columns = 600, .channels = 1, .data = std::vector<uint8_t>(300 * 600, 90)};
    const double length_um = DrawScaleBar(um, &pixels);
    ASSERT_GT(length_um, 0);
    EXPECT_LE(length_um / um, 200);
    EXPECT_GT(length_um / um, 200 / 2.51);
    const double digits = length_um / std::pow(10, std::floor(std::log10(length_um) + 1e-9));
    EXPECT_TRUE(std::abs(digits - 1) < 1e-6 || std::abs(digits - 2) < 1e-6 ||
                std::abs(digits - 5) < 1e-6)
        << length_um;
    // The bar is the longest white run, near the lower right corner. Rows above and below it are
    // dark; the label stands above it.
    int64_t longest = 0, bar_row = 0;
    for (int64_t r = 0; r < 300; ++r) {
      int64_t run = 0;
      for (int64_t c = 0; c < 600; ++c) {
        run = pixels.data[static_cast<size_t>(r * 600 + c)] == 255 ? run + 1 : 0;
        if (run > longest) std::tie(longest, bar_row) = std::pair(run, r);
      }
    }
    EXPECT_EQ(longest, std::llround(length_um / um));
    EXPECT_GT(bar_row, 270);
    EXPECT_EQ(std::count(pixels.data.begin(), pixels.data.begin() + 250 * 600, 90), 250 * 600);
    EXPECT_GT(
        std::count(pixels.data.begin() + 250 * 600, pixels.data.begin() + (bar_row - 4) * 600, 255),
        30);
    EXPECT_EQ(std::count(pixels.data.end() - 600, pixels.data.end(), 90), 600);
  }
  Pixels small{
      .rows = 6, .columns = 600, .channels = 3, .data = std::vector<uint8_t>(6 * 600 * 3, 90)};
  const Pixels before = small;
  EXPECT_EQ(DrawScaleBar(1, &small), 0);
  EXPECT_EQ(small.data, before.data);
  Pixels narrow{.rows = 100, .columns = 12, .channels = 1, .data = std::vector<uint8_t>(1200, 90)};
  EXPECT_EQ(DrawScaleBar(1, &narrow), 0);
  EXPECT_EQ(DrawScaleBar(0, &narrow), 0);
  EXPECT_EQ(DrawScaleBar(static_cast<double>(kNan), &narrow), 0);
}

TEST(ImageTest, OnlyImagesBecomePictures) {
  auto frame = FrameOf<uint8_t>(DType::kU8, 2, 2, {1, 2, 3, 4});
  frame.shape = {1, 2, 2};
  EXPECT_THAT(MakePicture(frame, {}), IsError(absl::StatusCode::kInvalidArgument, "2 axes"));
  frame.shape = {0, 2};
  EXPECT_THAT(MakePicture(frame, {}), IsError(absl::StatusCode::kInvalidArgument, "empty"));
  frame.shape = {1 << 20, 1 << 20};
  EXPECT_THAT(MakePicture(frame, {}),
              IsError(absl::StatusCode::kResourceExhausted, "at most 268435456"));
  frame.shape = {3, 2};  // more than the payload holds
  EXPECT_THAT(MakePicture(frame, {}), IsError(absl::StatusCode::kInvalidArgument, "empty"));
}

// A subscription without a contrast gets pictures stretched by percentiles; Frame.display_levels
// serves clients that compare pictures.
TEST(ImageTest, PicturesAreStretchedUnlessToldOtherwise) {
  v1::SubscribeRequest request;
  for (const v1::Encoding encoding : {v1::ENCODING_PNG, v1::ENCODING_JPEG, v1::ENCODING_WEBP}) {
    request.set_encoding(encoding);
    request.clear_image();
    for (const bool empty : {false, true}) {
      if (empty) request.mutable_image();
      const auto decoded = DecodeSubscribe(request);
      ASSERT_THAT(decoded, IsOk());
      EXPECT_EQ(decoded->image->contrast, Contrast::kPercentiles);
      EXPECT_EQ(decoded->image->lo, 1);
      EXPECT_EQ(decoded->image->hi, 99.8f);
    }
    request.mutable_image()->set_display_levels(true);
    const auto fixed = DecodeSubscribe(request);
    ASSERT_THAT(fixed, IsOk());
    EXPECT_EQ(fixed->image->contrast, Contrast::kDisplay);
  }
}

// In a live preview, most of the volume has no records yet: those pixels must not determine the
// dark end.
TEST(ImageTest, PreviewsAreStretchedByWhatCame) {
  for (const DType dtype : {DType::kU16, DType::kF32}) {
    std::vector<uint16_t> integers(1000, 0);
    std::vector<float> floats(1000, kNan);
    for (size_t i = 0; i < 200; ++i)
      integers[i] = static_cast<uint16_t>(30000 + i), floats[i] = static_cast<float>(integers[i]);
    auto frame = dtype == DType::kU16 ? FrameOf<uint16_t>(dtype, 10, 100, integers)
                                      : FrameOf<float>(dtype, 10, 100, floats);
    frame.complete = false;
    const ImageOptions options{.contrast = Contrast::kPercentiles, .lo = 1, .hi = 99};
    EXPECT_NEAR(Made(frame, options).display_lo, 30001.99, 1e-2);
    EXPECT_NEAR(Made(frame, options).display_hi, 30197.01, 1e-2);
    frame.complete = true;
    EXPECT_EQ(Made(frame, options).display_lo == 0, dtype == DType::kU16)
        << "of a complete volume zeros are values";
  }
}

TEST(ImageTest, WrongOptionsNameTheField) {
  const auto check = [](const char* field,
                        const std::function<void(v1::SubscribeRequest*)>& change) {
    v1::SubscribeRequest request;
    request.set_encoding(v1::ENCODING_JPEG);
    change(&request);
    const auto decoded = DecodeSubscribe(request);
    EXPECT_THAT(decoded, IsError(absl::StatusCode::kInvalidArgument, field));
    EXPECT_EQ(InfoOf(decoded.status()).field, field);
  };
  check("image.colour_map",
        [](auto* r) { r->mutable_image()->set_colour_map(static_cast<v1::ColourMap>(99)); });
  check("image.levels", [](auto* r) { r->mutable_image()->mutable_levels(); });
  check("image.levels", [](auto* r) {
    r->mutable_image()->mutable_levels()->set_hi(1);
    r->mutable_image()->mutable_percentiles()->set_hi(1);
  });
  check("image.levels.lo", [](auto* r) { r->mutable_image()->mutable_levels()->set_lo(kNan); });
  check("image.levels.hi", [](auto* r) {
    r->mutable_image()->mutable_levels()->set_hi(std::numeric_limits<float>::infinity());
  });
  for (const auto& [lo, hi] :
       std::vector<std::pair<float, float>>{{-1, 5}, {5, 5}, {1, 101}, {kNan, 5}, {1, kNan}}) {
    check("image.percentiles", [lo = lo, hi = hi](auto* r) {
      r->mutable_image()->mutable_percentiles()->set_lo(lo);
      r->mutable_image()->mutable_percentiles()->set_hi(hi);
    });
  }
  check("image.display_levels", [](auto* r) {
    r->mutable_image()->set_display_levels(true);
    r->mutable_image()->mutable_percentiles()->set_hi(1);
  });
  check("image.display_levels", [](auto* r) {
    r->mutable_image()->set_display_levels(true);
    r->mutable_image()->mutable_levels()->set_hi(1);
  });
  check("image.max_width", [](auto* r) { r->mutable_image()->set_max_width(65501); });
  check("image.max_height", [](auto* r) { r->mutable_image()->set_max_height(0xFFFFFFFF); });
  check("image.quality", [](auto* r) { r->mutable_image()->set_quality(101); });
  check("image.quality", [](auto* r) {
    r->set_encoding(v1::ENCODING_PNG);
    r->mutable_image()->set_quality(50);
  });
  check("image", [](auto* r) {
    r->set_encoding(v1::ENCODING_RAW);
    r->add_products(v1::PRODUCT_VOLUME);
    r->mutable_image();
  });
  const auto raw = [&](const char* field, const std::function<void(v1::ImageOptions*)>& change) {
    check(field, [&](auto* r) {
      r->set_encoding(v1::ENCODING_RAW);
      change(r->mutable_image());
    });
  };
  raw("image.colour_map", [](auto* i) { i->set_colour_map(v1::COLOUR_MAP_HOT); });
  raw("image.levels", [](auto* i) { i->mutable_levels()->set_hi(3); });
  raw("image.percentiles", [](auto* i) { i->mutable_percentiles()->set_hi(3); });
  raw("image.display_levels", [](auto* i) { i->set_display_levels(true); });
  raw("image.scale_bar", [](auto* i) { i->set_scale_bar(true); });
  raw("image.colour_bar", [](auto* i) { i->set_colour_bar(true); });
  raw("image.quality", [](auto* i) { i->set_quality(3); });
  check("encoding", [](auto* r) { r->set_encoding(static_cast<v1::Encoding>(77)); });
  check("encoding", [](auto* r) { r->add_products(v1::PRODUCT_VOLUME); });
  check("max_rate_hz", [](auto* r) {
    r->set_delivery(v1::DELIVERY_LOSSLESS);
    r->set_max_rate_hz(3);
  });
  check("max_rate_hz", [](auto* r) {
    r->clear_encoding();
    r->add_products(v1::PRODUCT_VOLUME);
    r->add_products(v1::PRODUCT_EVENT);
    r->set_max_rate_hz(3);
  });
  check("labels", [](auto* r) {
    r->set_parent("scans/a");
    (*r->mutable_labels())["eye"] = "left";
  });

  v1::SubscribeRequest request;
  request.set_encoding(v1::ENCODING_JPEG);
  request.mutable_image()->mutable_percentiles()->set_lo(0.5);
  request.mutable_image()->mutable_percentiles()->set_hi(100);
  request.mutable_image()->set_colour_map(v1::COLOUR_MAP_HOT);
  const auto fine = DecodeSubscribe(request);
  ASSERT_THAT(fine, IsOk());
  EXPECT_EQ(*fine->image, (ImageOptions{.encoding = ImageOptions::Encoding::kJpeg,
                                        .colour_map = ColourMap::kHot,
                                        .contrast = Contrast::kPercentiles,
                                        .lo = 0.5,
                                        .hi = 100}));
}

}  // namespace
}  // namespace octavo::rpc
