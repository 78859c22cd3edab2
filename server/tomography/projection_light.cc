#include "server/tomography/projection_light.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kRows = 4, kColumns = 64;  // that are sampled, of a batch
constexpr double kDark = 0.01;               // the mean transmission of no light, noise included
constexpr double kLit = 0.1, kFewLit = 0.02, kUsualLight = 0.03;
constexpr double kTooBright = 10;  // times the open beam
// Values of a batch that are looked at for being too bright, in all projections or in every so
// many: more would take as long as reading them.
constexpr int64_t kMostBrightLooks = 1 << 23;
constexpr size_t kNamed = 5;  // indices in a warning

// Evenly spaced in [begin, begin + count).
std::vector<int64_t> Places(int64_t begin, int64_t count, int64_t most) {
  std::vector<int64_t> places;
  const int64_t taken = std::min(count, most);
  for (int64_t i = 0; i < taken; ++i) places.push_back(begin + (2 * i + 1) * count / (2 * taken));
  return places;
}

// Finite values above `limit`, which is positive. Without branches and with whole numbers, as which
// positive floats sort, so that many are looked at side by side.
template <class T>
int64_t CountAbove(const char* row, int64_t columns, float limit) {
  int32_t above = 0, most = std::numeric_limits<int32_t>::max();
  if constexpr (std::is_same_v<T, float>) {
    constexpr float kMost = std::numeric_limits<float>::max();
    std::memcpy(&above, &limit, sizeof above);
    std::memcpy(&most, &kMost, sizeof most);
  } else {
    above = static_cast<int32_t>(limit);
  }
  using Number = std::conditional_t<std::is_same_v<T, float>, int32_t, T>;
  int32_t count = 0;
  for (int64_t i = 0; i < columns; ++i) {
    Number value;
    std::memcpy(&value, row + i * static_cast<int64_t>(sizeof value), sizeof value);
    const int32_t number = value;
    count += static_cast<int32_t>(number > above) & static_cast<int32_t>(number <= most);
  }
  return count;
}

// The largest value of the type; packed counts are not looked at, because they are 4095 at most.
double LargestOf(DType type) {
  switch (type) {
    case DType::kU8: return 255;
    case DType::kU16: return 65535;
    case DType::kI16: return 32767;
    default: return std::numeric_limits<double>::infinity();
  }
}

}  // namespace

void ProjectionLight::Begin(const TomographyLayout& layout, const BatchRows& rows) {
  const PrepareConfig config = layout.PrepareFor(rows, false);
  rows_ = rows;
  dtype_ = layout.dtype();
  packing_ = config.packing;
  columns_ = layout.columns();
  row_bytes_ = layout.raw_row_bytes();
  flats_ = layout.flats();
  darks_ = layout.darks();
  fields_ = flats_ > 0;
  looks_ = (config.minus_log || fields_) && rows.crop_rows > 0;
  counts_bright_ = looks_ && config.minus_log && packing_ == math::Packing::kNone &&
                   config.outliers.window == 0 && !config.has_cutoff;
  const int64_t values = layout.frames() * rows.crop_rows * columns_;
  every_ = std::max<int64_t>(1, (values + kMostBrightLooks - 1) / kMostBrightLooks);
  fields_known_ = false;
  sampled_rows_ = Places(rows.crop, rows.crop_rows, kRows);
  sampled_columns_ = Places(0, columns_, kColumns);
  const size_t pixels = sampled_rows_.size() * sampled_columns_.size();
  flat_.assign(pixels, 0);
  dark_.assign(pixels, 0);
  first_flat_.clear();
}

double ProjectionLight::ValueAt(const char* row, int64_t column) const {
  if (packing_ != math::Packing::kNone)
    return math::ReadPacked12(packing_, reinterpret_cast<const uint8_t*>(row), column);
  const auto read = [&]<typename T>(T value) {
    std::memcpy(&value, row + column * static_cast<int64_t>(sizeof value), sizeof value);
    return static_cast<double>(value);
  };
  switch (dtype_) {
    case DType::kU8: return read(uint8_t{});
    case DType::kU16: return read(uint16_t{});
    case DType::kI16: return read(int16_t{});
    default: return read(float{});
  }
}

void ProjectionLight::Add(storage::FrameKind kind, int64_t first, int64_t frames,
                          const char* data) {
  if (!looks_) return;
  const int64_t frame_bytes = rows_.count * row_bytes_;
  if (kind == storage::FrameKind::kProjection && !fields_known_) UseFields();
  for (int64_t i = 0; i < frames; ++i, data += frame_bytes) {
    if (kind == storage::FrameKind::kProjection) {
      Sample(first + i, data);
      if (counts_bright_ && (first + i) % every_ == 0) CountBright(data);
      continue;
    }
    const bool flat = kind == storage::FrameKind::kFlat;
    if (flat && first_flat_.empty() && counts_bright_) {
      for (int64_t row = rows_.crop; row < rows_.crop + rows_.crop_rows; ++row) {
        for (int64_t column = 0; column < columns_; ++column)
          first_flat_.push_back(static_cast<float>(ValueAt(data + row * row_bytes_, column)));
      }
    }
    std::vector<double>& field = flat ? flat_ : dark_;
    size_t pixel = 0;
    for (const int64_t row : sampled_rows_) {
      for (const int64_t column : sampled_columns_)
        field[pixel++] +=
            ValueAt(data + row * row_bytes_, column) / static_cast<double>(flat ? flats_ : darks_);
    }
  }
}

void ProjectionLight::UseFields() {
  fields_known_ = true;
  double most = fields_ ? 0 : 1, dark = 0;
  light_.assign(flat_.size(), fields_ ? 0 : 1);
  for (size_t i = 0; i < flat_.size() && fields_; ++i) {
    if (!std::isfinite(flat_[i]) || !std::isfinite(dark_[i])) continue;
    light_[i] = flat_[i] - dark_[i];
    most = std::max(most, light_[i]);
    dark = std::max(dark, dark_[i]);
  }
  for (double& light : light_) light = light > 0.1 * most ? light : 0;  // beside the beam: 0
  if (!fields_) std::fill(dark_.begin(), dark_.end(), 0.0);
  const double bright = dark + kTooBright * most;
  counts_bright_ = counts_bright_ && most > 0 && bright < LargestOf(dtype_);
  bright_ = static_cast<float>(bright);
}

void ProjectionLight::Sample(int64_t projection, const char* frame) {
  if (std::ssize(projections_) <= projection)
    projections_.resize(static_cast<size_t>(projection) + 1);
  Light& light = projections_[static_cast<size_t>(projection)];
  size_t pixel = 0;
  for (const int64_t row : sampled_rows_) {
    for (const int64_t column : sampled_columns_) {
      const size_t i = pixel++;
      if (light_[i] == 0) continue;
      const double transmission =
          (ValueAt(frame + row * row_bytes_, column) - dark_[i]) / light_[i];
      if (!std::isfinite(transmission)) continue;
      light.sum += std::clamp(transmission, -1.0, 1.0);  // one hot pixel is no light
      light.samples += 1;
      light.lit += transmission > kLit ? 1 : 0;
    }
  }
}

void ProjectionLight::CountBright(const char* frame) {
  for (int64_t row = rows_.crop; row < rows_.crop + rows_.crop_rows; ++row) {
    const char* const values = frame + row * row_bytes_;
    const int64_t found = dtype_ == DType::kU8    ? CountAbove<uint8_t>(values, columns_, bright_)
                          : dtype_ == DType::kU16 ? CountAbove<uint16_t>(values, columns_, bright_)
                          : dtype_ == DType::kI16 ? CountAbove<int16_t>(values, columns_, bright_)
                                                  : CountAbove<float>(values, columns_, bright_);
    looked_at_ += columns_;
    for (int64_t column = 0; column < columns_ && found > 0; ++column) {
      const double value = ValueAt(values, column);
      if (!std::isfinite(value) || value <= static_cast<double>(bright_)) continue;
      // Pixels that are bright in every frame are that in the flat fields, too.
      if (fields_ &&
          value < 4 * static_cast<double>(
                          first_flat_[static_cast<size_t>((row - rows_.crop) * columns_ + column)]))
        continue;
      ++bright_values_;
      brightest_ = std::max(brightest_, kTooBright * value / static_cast<double>(bright_));
    }
  }
}

std::string ProjectionLight::WithoutLight() const {
  std::vector<double> means;
  for (const Light& light : projections_) {
    if (light.samples > 0) means.push_back(light.sum / light.samples);
  }
  if (means.size() < 3) return "";
  const auto middle = means.begin() + static_cast<std::ptrdiff_t>(means.size() / 2);
  std::nth_element(means.begin(), middle, means.end());
  const double usual = *middle;
  if (usual < kUsualLight) return "";
  std::vector<size_t> dark;
  for (size_t i = 0; i < projections_.size(); ++i) {
    const Light& light = projections_[i];
    if (light.samples > 0 && light.sum < std::min(kDark, 0.1 * usual) * light.samples &&
        light.lit <= kFewLit * light.samples)
      dark.push_back(i);
  }
  if (dark.empty()) return "";
  const std::vector<size_t> named(
      dark.begin(), dark.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, dark.size())));
  const bool one = dark.size() == 1;
  return absl::StrCat(
      one ? "Projection " : "Projections ", absl::StrJoin(named, ", "),
      dark.size() > named.size() ? absl::StrCat(" and ", dark.size() - named.size(), " more") : "",
      " of ", means.size(), one ? " has" : " have",
      " no light in nearly all pixels, where the usual mean transmission is ",
      absl::StrFormat("%.2g", usual),
      one ? ": a frame that was lost, or a shut shutter? It counts as an object that lets nothing "
            "through, and makes streaks. Give the projections without it, with their angles."
          : ": frames that were lost, or a shut shutter? They count as an object that lets nothing "
            "through, and make streaks. Give the projections without them, with their angles.");
}

std::vector<std::string> ProjectionLight::Doubts() const {
  std::vector<std::string> out;
  if (std::string none = WithoutLight(); !none.empty()) out.push_back(std::move(none));
  // Counts that are taken as transmissions are told by their median.
  if (bright_values_ > 0 && (fields_ || 2 * bright_values_ < looked_at_)) {
    out.push_back(absl::StrFormat(
        "%d %s of the projections%s %s a transmission far above 1, up to %.3g: hot pixels, "
        "zingers or damaged values? preparation.outliers puts medians in place of bright "
        "spots.",
        bright_values_, bright_values_ == 1 ? "value" : "values",
        every_ == 1 ? "" : absl::StrCat(" (one in ", every_, " was looked at)"),
        bright_values_ == 1 ? "has" : "have", brightest_));
  }
  return out;
}

}  // namespace octavo::tomography
