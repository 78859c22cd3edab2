#include "server/tomography/tile_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "gpu/base/status.h"

namespace octavo::tomography {
namespace {

using storage::FrameKind;
using storage::ProjectionBox;
using storage::ProjectionInput;

constexpr int64_t kFields = 8;  // of a kind that are read of a tile

absl::StatusOr<Picture> ReadFrame(ProjectionInput& input, FrameKind kind, int64_t frame,
                                  const TilePart& part) {
  const ProjectionBox box = {.kind = kind,
                             .first_frame = frame,
                             .frames = 1,
                             .first_row = part.row,
                             .rows = part.rows,
                             .first_column = part.column,
                             .columns = part.columns};
  const DType dtype = input.info().dtype;
  std::vector<char> raw(static_cast<size_t>(box.elements() * SizeOf(dtype)));
  OCTAVO_RETURN_IF_ERROR(input.Read(box, raw.data()));
  Picture picture{.rows = part.rows, .columns = part.columns, .pixels = {}};
  picture.pixels.resize(static_cast<size_t>(box.elements()));
  const auto convert = [&]<typename T>(T) {
    T value{};
    for (size_t i = 0; i < picture.pixels.size(); ++i) {
      std::memcpy(&value, raw.data() + i * sizeof value, sizeof value);
      picture.pixels[i] = static_cast<float>(value);
    }
  };
  switch (dtype) {
    case DType::kU8: convert(uint8_t{}); break;
    case DType::kU16: convert(uint16_t{}); break;
    case DType::kI16: convert(int16_t{}); break;
    default: convert(float{}); break;
  }
  return picture;
}

/// The mean of some frames of a kind, evenly spaced; zeros without any.
absl::StatusOr<Picture> MeanOf(ProjectionInput& input, FrameKind kind, const TilePart& part) {
  Picture mean{.rows = part.rows, .columns = part.columns, .pixels = {}};
  mean.pixels.assign(static_cast<size_t>(part.rows * part.columns), 0.0F);
  const int64_t frames = input.info().frames(kind), count = std::min(frames, kFields);
  for (int64_t i = 0; i < count; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(const Picture frame, ReadFrame(input, kind, i * frames / count, part));
    for (size_t p = 0; p < mean.pixels.size(); ++p)
      mean.pixels[p] += frame.pixels[p] / static_cast<float>(count);
  }
  return mean;
}

}  // namespace

std::vector<int64_t> EvenlySpaced(int64_t count, int64_t most) {
  std::vector<int64_t> out;
  most = std::min(count, most);
  for (int64_t i = 0; i < most; ++i) out.push_back((2 * i + 1) * count / (2 * most));
  return out;
}

absl::StatusOr<std::vector<Picture>> TransmissionsOf(ProjectionInput& input, const TilePart& part,
                                                     const std::vector<int64_t>& projections,
                                                     bool divide) {
  Picture dark, light;
  divide = divide && input.info().flats > 0;
  if (divide) {
    OCTAVO_ASSIGN_OR_RETURN(dark, MeanOf(input, FrameKind::kDark, part));
    OCTAVO_ASSIGN_OR_RETURN(light, MeanOf(input, FrameKind::kFlat, part));
  }
  std::vector<Picture> out;
  for (const int64_t frame : projections) {
    OCTAVO_ASSIGN_OR_RETURN(Picture picture, ReadFrame(input, FrameKind::kProjection, frame, part));
    for (size_t p = 0; divide && p < picture.pixels.size(); ++p) {
      const float open = light.pixels[p] - dark.pixels[p];
      picture.pixels[p] = open > 0 ? (picture.pixels[p] - dark.pixels[p]) / open
                                   : std::numeric_limits<float>::quiet_NaN();
    }
    out.push_back(std::move(picture));
  }
  return out;
}

void TakeLogarithm(Picture& picture, float most) {
  for (int64_t r = 0; r < picture.rows; ++r) {
    float* const row = picture.row(r);
    const auto good = [](float value) { return value > 0 && value - value == 0.0F; };
    const float* const first = std::find_if(row, row + picture.columns, good);
    float last = first == row + picture.columns ? 0.0F : std::min(-std::log(*first), most);
    for (int64_t c = 0; c < picture.columns; ++c) {
      if (good(row[c])) last = std::min(-std::log(row[c]), most);
      row[c] = last;
    }
  }
}

}  // namespace octavo::tomography
