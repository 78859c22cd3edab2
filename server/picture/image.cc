#include "server/picture/image.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <iterator>
#include <limits>
#include <png.h>
#include <tuple>
#include <turbojpeg.h>
#include <type_traits>
#include <utility>
#include <webp/encode.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"

namespace octavo::picture {
namespace {

// Pictures are for viewing, so their input is limited to 1 GiB.
constexpr int64_t kMostValues = int64_t{1} << 28;

// A frame's values while they are converted to pixels.
struct Values {
  int64_t rows = 0, columns = 0;
  std::vector<float> data;  // [row, column]; NaN = no value there
};

float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float magnitude = exponent == 31 ? (fraction == 0 ? std::numeric_limits<float>::infinity()
                                                          : std::numeric_limits<float>::quiet_NaN())
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

void ReadValues(const model::Frame& frame, std::vector<float>* out) {
  const auto* bytes = static_cast<const char*>(frame.payload.data);
  const auto read = [&](auto sample, auto&& value_of) {
    for (size_t i = 0; i < out->size(); ++i) {
      std::memcpy(&sample, bytes + i * sizeof sample, sizeof sample);
      (*out)[i] = value_of(sample);
    }
  };
  const auto plain = [](auto sample) { return static_cast<float>(sample); };
  switch (frame.dtype) {
    case DType::kU8: return read(uint8_t{}, plain);
    case DType::kI8: return read(int8_t{}, plain);
    case DType::kU16: return read(uint16_t{}, plain);
    case DType::kI16: return read(int16_t{}, plain);
    case DType::kF16: return read(uint16_t{}, HalfToFloat);
    case DType::kF32: return read(float{}, plain);
    case DType::kF64: return read(double{}, plain);
    case DType::kC64:
      return read(std::complex<float>{}, [](std::complex<float> z) { return std::abs(z); });
  }
}

Values Turned(const Values& in) {
  Values out{.rows = in.columns, .columns = in.rows, .data = std::vector<float>(in.data.size())};
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t c = 0; c < in.columns; ++c)
      out.data[static_cast<size_t>(c * in.rows + r)] =
          in.data[static_cast<size_t>(r * in.columns + c)];
  }
  return out;
}

// Resampling of one axis: the inputs of output i of `to`, and their weights.
struct Span {
  int64_t first = 0;
  std::vector<float> weights;
};
std::vector<Span> Spans(int64_t from, int64_t to) {
  std::vector<Span> spans(static_cast<size_t>(to));
  const double step = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t i = 0; i < to; ++i) {
    const double begin = static_cast<double>(i) * step,
                 end = std::min(begin + step, static_cast<double>(from));
    Span& span = spans[static_cast<size_t>(i)];
    span.first = static_cast<int64_t>(begin);
    for (int64_t j = span.first; j < from && static_cast<double>(j) < end; ++j) {
      span.weights.push_back(static_cast<float>(std::min(end, static_cast<double>(j + 1)) -
                                                std::max(begin, static_cast<double>(j))));
    }
  }
  return spans;
}

// Each new pixel is the mean of the finite values in the area that it covers.
Values Shrunk(const Values& in, int64_t rows, int64_t columns) {
  if (rows == in.rows && columns == in.columns) return in;
  Values out{.rows = rows,
             .columns = columns,
             .data = std::vector<float>(static_cast<size_t>(rows * columns))};
  const std::vector<Span> down = Spans(in.rows, rows), along = Spans(in.columns, columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const Span &y = down[static_cast<size_t>(r)], &x = along[static_cast<size_t>(c)];
      double sum = 0, weight = 0;
      for (size_t i = 0; i < y.weights.size(); ++i) {
        const float* line =
            in.data.data() + (y.first + static_cast<int64_t>(i)) * in.columns + x.first;
        for (size_t j = 0; j < x.weights.size(); ++j) {
          if (!std::isfinite(line[j])) continue;
          const double w = static_cast<double>(y.weights[i]) * static_cast<double>(x.weights[j]);
          sum += w * static_cast<double>(line[j]);
          weight += w;
        }
      }
      out.data[static_cast<size_t>(r * columns + c)] =
          weight > 0 ? static_cast<float>(sum / weight) : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return out;
}

// The most rows and columns of the shown values.
std::pair<int64_t, int64_t> MostOf(const ImageOptions& options) {
  const int64_t most = options.encoding == ImageOptions::Encoding::kWebp
                           ? ImageOptions::kMostWebpPixels
                           : ImageOptions::kMostPixels;
  return {std::min(options.max_height, most),
          std::min(options.max_width, most - (options.colour_bar ? kMostColourBarColumns : 0))};
}

// The size to which the options change rows x columns.
std::pair<int64_t, int64_t> SizeFor(const ImageOptions& options, int64_t rows, int64_t columns,
                                    const std::vector<double>& spacing_um) {
  double height = static_cast<double>(rows), width = static_cast<double>(columns);
  if (options.square_pixels && spacing_um.size() == 2 && spacing_um[0] > 0 && spacing_um[1] > 0) {
    const double coarse = std::max(spacing_um[0], spacing_um[1]);
    height *= spacing_um[0] / coarse;
    width *= spacing_um[1] / coarse;
  }
  const auto [most_rows, most_columns] = MostOf(options);
  const double scale = std::min(
      {1.0, static_cast<double>(most_columns) / width, static_cast<double>(most_rows) / height});
  const auto rounded = [&](double extent, int64_t most) {
    return std::clamp<int64_t>(std::llround(extent * scale), 1, most);
  };
  return {rounded(height, std::min(rows, most_rows)),
          rounded(width, std::min(columns, most_columns))};
}

// Leaves out `fill`, the value that marks missing data; NaN: no value marks them.
std::pair<double, double> Percentiles(const Values& values, float fill, double lo, double hi) {
  std::vector<float> finite;
  finite.reserve(values.data.size());
  std::copy_if(values.data.begin(), values.data.end(), std::back_inserter(finite),
               [&](float v) { return std::isfinite(v) && v != fill; });
  if (finite.empty()) return {0, 1};
  // Interpolates between two neighbours, like NumPy's percentile by default.
  const auto at = [&](double percent) {
    const double place = percent / 100 * static_cast<double>(finite.size() - 1);
    const auto below = static_cast<int64_t>(place);
    std::nth_element(finite.begin(), finite.begin() + below, finite.end());
    const double left = static_cast<double>(finite[static_cast<size_t>(below)]),
                 part = place - static_cast<double>(below);
    if (part == 0) return left;
    return left + part * (static_cast<double>(
                              *std::min_element(finite.begin() + below + 1, finite.end())) -
                          left);
  };
  return {at(lo), at(hi)};
}

Pixels Coloured(const Values& values, double lo, double hi, ColourMap map) {
  const bool grey = map == ColourMap::kGray || map == ColourMap::kGrayInverted;
  Pixels pixels{
      .rows = values.rows, .columns = values.columns, .channels = grey ? 1 : 3, .data = {}};
  pixels.data.resize(values.data.size() * static_cast<size_t>(pixels.channels));
  const auto& table = ColourTable(map);
  const double scale = 255.0 / std::max(hi - lo, 1e-30);
  uint8_t* out = pixels.data.data();
  for (const float value : values.data) {
    const double v = (static_cast<double>(value) - lo) * scale;
    const Rgb colour =
        table[v > 0 ? static_cast<size_t>(std::min(v + 0.5, 255.0)) : 0];  // NaN gives 0
    *out++ = colour.red;
    if (grey) continue;
    *out++ = colour.green;
    *out++ = colour.blue;
  }
  return pixels;
}

// The values as an array of `dtype`, or of F32 if that type cannot hold them exactly.
model::Bytes Raw(const Values& values, DType* dtype) {
  const auto write = [&](auto sample) {
    using Sample = decltype(sample);
    auto out = std::make_shared<std::vector<Sample>>();
    out->reserve(values.data.size());
    for (const float value : values.data) {
      if constexpr (std::is_integral_v<Sample>) {
        out->push_back(static_cast<Sample>(
            std::lround(value)));  // the mean of such values is finite and within their range
      } else {
        out->push_back(value);
      }
    }
    return model::Bytes{.owner = out,
                        .data = out->data(),
                        .size = static_cast<int64_t>(out->size() * sizeof(Sample))};
  };
  switch (*dtype) {
    case DType::kU8: return write(uint8_t{});
    case DType::kI8: return write(int8_t{});
    case DType::kU16: return write(uint16_t{});
    case DType::kI16: return write(int16_t{});
    case DType::kF16:
    case DType::kF32:
    case DType::kF64:
    case DType::kC64: break;
  }
  *dtype = DType::kF32;
  return write(float{});
}

absl::StatusOr<model::Bytes> Png(const Pixels& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(pixels.columns);
  image.height = static_cast<png_uint_32>(pixels.rows);
  image.format = pixels.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  auto out = std::make_shared<std::string>(size, '\0');
  if (png_image_write_to_memory(&image, out->data(), &size, 0, pixels.data.data(), 0, nullptr) ==
      0) {
    return absl::InternalError(absl::StrCat("PNG: ", image.message));
  }
  out->resize(size);
  out->shrink_to_fit();  // the most that it might have needed is more than the pixels
  return model::Bytes{.owner = out, .data = out->data(), .size = static_cast<int64_t>(size)};
}

absl::StatusOr<model::Bytes> Jpeg(const Pixels& pixels, int quality) {
  const std::shared_ptr<void> compressor(tjInitCompress(), [](tjhandle handle) {
    if (handle != nullptr) tjDestroy(handle);
  });
  if (compressor == nullptr)
    return absl::InternalError(absl::StrCat("JPEG: ", tjGetErrorStr2(nullptr)));
  unsigned char* data = nullptr;
  unsigned long size = 0;  // NOLINT: the library's type
  // Colour maps change hue from pixel to pixel: the colour channels keep their resolution.
  const int result =
      tjCompress2(compressor.get(), pixels.data.data(), static_cast<int>(pixels.columns), 0,
                  static_cast<int>(pixels.rows), pixels.channels == 1 ? TJPF_GRAY : TJPF_RGB, &data,
                  &size, pixels.channels == 1 ? TJSAMP_GRAY : TJSAMP_444, quality, 0);
  const std::shared_ptr<const void> owner(
      data, [](const void* p) { tjFree(static_cast<unsigned char*>(const_cast<void*>(p))); });
  if (result != 0)
    return absl::InternalError(absl::StrCat("JPEG: ", tjGetErrorStr2(compressor.get())));
  return model::Bytes{.owner = owner, .data = data, .size = static_cast<int64_t>(size)};
}

absl::Status CheckWanted(const std::function<bool()>& unwanted) {
  if (unwanted == nullptr || !unwanted()) return absl::OkStatus();
  return absl::CancelledError("no client waits for the picture any more");
}

// The bytes that WebP has written.
struct Memory {
  Memory() { WebPMemoryWriterInit(&writer); }
  ~Memory() { WebPMemoryWriterClear(&writer); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  WebPMemoryWriter writer;
};

// WebP has no grey pictures: grey is red, green and blue.
absl::StatusOr<model::Bytes> Webp(const Pixels& pixels, int quality,
                                  const std::function<bool()>& unwanted) {
  WebPConfig config;
  WebPPicture picture;
  if (WebPConfigInit(&config) == 0 || WebPPictureInit(&picture) == 0)
    return absl::InternalError("WebP: the library is of another version");
  config.quality = static_cast<float>(quality);
  config.method = 2;  // 4 is twice as slow, for files a few percent smaller
  if (quality == 100) {
    (void)WebPConfigLosslessPreset(&config, 1);
    picture.use_argb = 1;
  }
  std::vector<uint8_t> colours;
  const uint8_t* from = pixels.data.data();
  if (pixels.channels == 1) {
    colours.reserve(3 * pixels.data.size());
    for (const uint8_t level : pixels.data) colours.insert(colours.end(), 3, level);
    from = colours.data();
  }
  picture.width = static_cast<int>(pixels.columns);
  picture.height = static_cast<int>(pixels.rows);
  const auto writer = std::make_shared<Memory>();
  picture.writer = WebPMemoryWrite;
  picture.custom_ptr = &writer->writer;
  picture.user_data = const_cast<std::function<bool()>*>(&unwanted);
  picture.progress_hook = [](int, const WebPPicture* now) -> int {
    const auto& gone = *static_cast<const std::function<bool()>*>(now->user_data);
    return gone == nullptr || !gone() ? 1 : 0;
  };
  const bool made = WebPPictureImportRGB(&picture, from, 3 * picture.width) != 0 &&
                    WebPEncode(&config, &picture) != 0;
  const int error = picture.error_code;
  WebPPictureFree(&picture);
  if (!made) {
    OCTAVO_RETURN_IF_ERROR(CheckWanted(unwanted));
    return absl::InternalError(absl::StrCat("WebP: error ", error));
  }
  return model::Bytes{.owner = writer,
                      .data = writer->writer.mem,
                      .size = static_cast<int64_t>(writer->writer.size)};
}

absl::StatusOr<model::Bytes> Encoded(const Pixels& pixels, const ImageOptions& options,
                                     const std::function<bool()>& unwanted) {
  switch (options.encoding) {
    case ImageOptions::Encoding::kJpeg: return Jpeg(pixels, options.quality);
    case ImageOptions::Encoding::kWebp: return Webp(pixels, options.quality, unwanted);
    case ImageOptions::Encoding::kPng:
    case ImageOptions::Encoding::kRaw: break;
  }
  return Png(pixels);
}

// A client that gives levels in another unit, or of another volume, gets a picture of one colour;
// so does one that takes the display levels for values that lie elsewhere. `what`: the levels, in
// words.
void WarnOfLevels(const Values& values, const model::ValueScale& scale, const char* what, double lo,
                  double hi, Picture* picture) {
  constexpr double kNearlyAll = 0.995;
  size_t finite = 0, below = 0, above = 0;
  float least = std::numeric_limits<float>::infinity(), most = -least;
  for (const float value : values.data) {
    if (!std::isfinite(value)) continue;
    ++finite;
    below += static_cast<double>(value) <= picture->display_lo ? 1 : 0;
    above += static_cast<double>(value) >= picture->display_hi ? 1 : 0;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  const auto nearly_all = kNearlyAll * static_cast<double>(finite);
  const bool dark = static_cast<double>(below) > nearly_all;
  if (finite == 0 || (!dark && static_cast<double>(above) <= nearly_all)) return;
  const std::string unit = scale.unit.empty() ? "" : " " + scale.unit;
  picture->warnings.push_back(absl::StrFormat(
      "%s are %g to %g%s; nearly all pixels lie %s them: their values are %g to %g%s", what, lo, hi,
      unit, dark ? "below" : "above", scale.ValueOf(static_cast<double>(least)),
      scale.ValueOf(static_cast<double>(most)), unit));
}

std::string NoRoomFor(const char* bar, const Pixels& pixels) {
  return absl::StrCat("no ", bar, ": the picture of ", pixels.columns, " x ", pixels.rows,
                      " pixels is too small for one");
}

}  // namespace

int64_t PeakBytesOf(int64_t rows, int64_t columns, DType dtype, const ImageOptions& options) {
  const int64_t values = rows * columns,
                pixels = std::min(values, options.max_width * options.max_height),
                channels = options.colour_map == ColourMap::kGray ||
                                   options.colour_map == ColourMap::kGrayInverted
                               ? 1
                               : 3;
  int64_t of_pixel = channels * (options.colour_bar ? 2 : 1);
  switch (options.encoding) {
    case ImageOptions::Encoding::kRaw: of_pixel = 4; break;
    case ImageOptions::Encoding::kWebp: of_pixel += 16; break;  // red, green, blue; its own forms
    case ImageOptions::Encoding::kPng:
    case ImageOptions::Encoding::kJpeg: of_pixel += channels + 1; break;
  }
  // The payload, and its values as floats. Turning, shrinking or ordering needs a second copy of
  // the values.
  return values * (SizeOf(dtype) + 4) + std::max(4 * values, of_pixel * pixels);
}

absl::StatusOr<Picture> MakePicture(const model::Frame& frame, const ImageOptions& options,
                                    const std::function<bool()>& unwanted) {
  const auto check = [&] { return CheckWanted(unwanted); };
  if (frame.shape.size() != 2)
    return absl::InvalidArgumentError(absl::StrCat(
        "the frame has ", frame.shape.size(), " axes; a picture is made of a frame of 2 axes"));
  if (frame.shape[0] * frame.shape[1] > kMostValues) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the frame has ", frame.shape[0], " x ", frame.shape[1],
                     " values; a picture is made of at most ", kMostValues));
  }
  Values values{.rows = frame.shape[0],
                .columns = frame.shape[1],
                .data = std::vector<float>(static_cast<size_t>(frame.shape[0] * frame.shape[1]))};
  if (values.data.empty() ||
      frame.payload.size < static_cast<int64_t>(values.data.size()) * SizeOf(frame.dtype)) {
    return absl::InvalidArgumentError("the frame is empty");
  }
  OCTAVO_RETURN_IF_ERROR(check());
  ReadValues(frame, &values.data);
  Picture picture{.data = {},
                  .dtype = frame.dtype,
                  .shape = {},
                  .axes = frame.axes,
                  .spacing_um = frame.spacing_um};
  bool across_assumed = frame.column_spacing_assumed, down_assumed = frame.row_spacing_assumed;
  if (options.depth_down && frame.axes.size() == 2 && frame.axes[1] == "z") {
    values = Turned(values);
    std::reverse(picture.axes.begin(), picture.axes.end());
    std::reverse(picture.spacing_um.begin(), picture.spacing_um.end());
    std::swap(across_assumed, down_assumed);
  }
  const auto axis = [&](size_t i) {
    return picture.axes.size() == 2 ? picture.axes[i]
                                    : std::string(i == 0 ? "the rows" : "the columns");
  };
  ImageOptions sized = options;
  if (options.square_pixels && (down_assumed || across_assumed)) {
    sized.square_pixels = false;
    picture.warnings.push_back(absl::StrCat("no square pixels: the sample spacing along ",
                                            down_assumed ? axis(0) : "",
                                            down_assumed && across_assumed ? " and " : "",
                                            across_assumed ? axis(1) : "", " is unknown"));
  }
  const auto [rows, columns] = SizeFor(sized, values.rows, values.columns, picture.spacing_um);
  if (picture.spacing_um.size() == 2) {
    picture.spacing_um[0] *= static_cast<double>(values.rows) / static_cast<double>(rows);
    picture.spacing_um[1] *= static_cast<double>(values.columns) / static_cast<double>(columns);
  }
  OCTAVO_RETURN_IF_ERROR(check());
  values = Shrunk(values, rows, columns);
  OCTAVO_RETURN_IF_ERROR(check());
  picture.shape = {rows, columns};
  if (options.encoding == ImageOptions::Encoding::kRaw) {
    picture.data = Raw(values, &picture.dtype);
    std::tie(picture.display_lo, picture.display_hi) =
        std::pair(frame.display_lo, frame.display_hi);
    return picture;
  }
  switch (options.contrast) {
    case ImageOptions::Contrast::kDisplay:
      std::tie(picture.display_lo, picture.display_hi) =
          std::pair(frame.display_lo, frame.display_hi);
      if (frame.display_lo < frame.display_hi) {
        WarnOfLevels(values, frame.scale, "The display levels (image.display_levels)",
                     frame.scale.ValueOf(frame.display_lo), frame.scale.ValueOf(frame.display_hi),
                     &picture);
      }
      break;
    case ImageOptions::Contrast::kLevels:
      std::tie(picture.display_lo, picture.display_hi) =
          std::pair(frame.scale.StoredOf(static_cast<double>(options.lo)),
                    frame.scale.StoredOf(static_cast<double>(options.hi)));
      WarnOfLevels(values, frame.scale, "image.levels", static_cast<double>(options.lo),
                   static_cast<double>(options.hi), &picture);
      break;
    case ImageOptions::Contrast::kPercentiles:
      std::tie(picture.display_lo, picture.display_hi) = Percentiles(
          values,
          !frame.complete && IsInteger(frame.dtype) ? LowestOf(frame.dtype)
                                                    : std::numeric_limits<float>::quiet_NaN(),
          static_cast<double>(options.lo), static_cast<double>(options.hi));
      // A picture of one value is black, not noise.
      if (!(picture.display_hi > picture.display_lo))
        picture.display_hi =
            picture.display_lo + std::max(1.0, std::abs(picture.display_lo) * 1e-6);
      break;
  }
  OCTAVO_RETURN_IF_ERROR(check());
  Pixels pixels = Coloured(values, picture.display_lo, picture.display_hi, options.colour_map);
  if (options.scale_bar && picture.spacing_um.size() == 2) {
    if (across_assumed) {
      picture.warnings.push_back(
          absl::StrCat("no scale bar: the sample spacing along ", axis(1), " is unknown"));
    } else {
      picture.scale_bar_um = DrawScaleBar(picture.spacing_um[1], &pixels);
      if (picture.scale_bar_um == 0) picture.warnings.push_back(NoRoomFor("scale bar", pixels));
    }
  }
  if (options.colour_bar) {
    picture.colour_bar_columns =
        AddColourBar(options.colour_map, frame.scale.ValueOf(picture.display_lo),
                     frame.scale.ValueOf(picture.display_hi), frame.scale.unit, &pixels);
    if (picture.colour_bar_columns == 0)
      picture.warnings.push_back(NoRoomFor("colour bar", pixels));
    picture.shape[1] = pixels.columns;
  }
  OCTAVO_RETURN_IF_ERROR(check());
  OCTAVO_ASSIGN_OR_RETURN(picture.data, Encoded(pixels, options, unwanted));
  return picture;
}

}  // namespace octavo::picture
