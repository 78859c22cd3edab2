#include "server/tomography/odd_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/device/dtype.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kRows = 2, kProjections = 16, kDarks = 4, kFlats = 16;
constexpr double kOddFlat = 0.2;                    // of the usual mean of a flat field
constexpr double kLeastAir = 0.8, kMostAir = 1.25;  // transmissions beside the object
// fraction of the range of the values: air is this even
constexpr double kPlateau = 0.04;
constexpr double kNoTransmission = 2;   // as the median of all values
constexpr double kLeastIntegral = 0.2;  // line integrals of an object that is worth a scan

using Frames = std::vector<std::vector<double>>;  // of each frame some rows, joined

/// The mean of the finite values; NaN if there is none, as beside slits, where there is no light.
double Quantile(std::vector<double> values, double part) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(
                                       std::lround(part * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}
double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

class Sampler {
 public:
  Sampler(const model::TomographySpec& spec, storage::ProjectionInput& input)
      : spec_(spec), input_(input), info_(input.info()) {
    const int64_t begin = spec.rows.begin,
                  end = spec.rows.end == 0 ? info_.rows : std::min(spec.rows.end, info_.rows);
    rows_ = std::clamp<int64_t>(end - begin, 1, kRows);
    first_row_ = std::clamp<int64_t>(begin + (end - begin - rows_) / 2, 0, info_.rows - rows_);
  }

  /// Reads some of the frames, evenly spaced; empty if they cannot be read.
  Frames Read(storage::FrameKind kind, int64_t most) {
    Frames out;
    const int64_t frames = info_.frames(kind), count = std::min(frames, most);
    std::vector<char> bytes(static_cast<size_t>(rows_ * info_.columns * SizeOf(info_.dtype)));
    for (int64_t i = 0; i < count; ++i) {
      const storage::ProjectionBox box = {.kind = kind,
                                          .first_frame = i * frames / count,
                                          .frames = 1,
                                          .first_row = first_row_,
                                          .rows = rows_,
                                          .first_column = 0,
                                          .columns = info_.columns};
      if (!input_.Read(box, bytes.data()).ok()) return {};
      std::vector<double>& frame = out.emplace_back();
      const auto add = [&]<typename T>(T value) {
        for (size_t at = 0; at < bytes.size(); at += sizeof value) {
          std::memcpy(&value, bytes.data() + at, sizeof value);
          frame.push_back(static_cast<double>(value));
        }
      };
      switch (info_.dtype) {
        case DType::kU8: add(uint8_t{}); break;
        case DType::kU16: add(uint16_t{}); break;
        case DType::kI16: add(int16_t{}); break;
        default: add(float{}); break;
      }
    }
    return out;
  }

  /// Columns [first, end) of all frames and rows; those that are not finite are left out.
  std::vector<double> Columns(const Frames& frames, int64_t first, int64_t end) const {
    std::vector<double> out;
    for (const auto& frame : frames) {
      for (int64_t row = 0; row < rows_; ++row) {
        for (int64_t x = first; x < end; ++x) {
          if (const double value = frame[static_cast<size_t>(row * info_.columns + x)];
              std::isfinite(value))
            out.push_back(value);
        }
      }
    }
    return out;
  }

  const model::TomographySpec& spec_;
  storage::ProjectionInput& input_;
  const storage::ProjectionInfo& info_;
  int64_t rows_ = 1, first_row_ = 0;
};

std::vector<double> MedianFrame(const Frames& frames) {
  std::vector<double> out(frames.front().size()), pixel(frames.size());
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t f = 0; f < frames.size(); ++f) pixel[f] = frames[f][i];
    out[i] = Median(pixel);
  }
  return out;
}

std::optional<std::string> OddFlat(const model::TomographySpec& spec, const Frames& flats,
                                   double dark) {
  if (spec.preparation.config.flat_average == FieldAverage::kMedian ||
      spec.preparation.flats_in_time || flats.size() < 3)
    return std::nullopt;
  std::vector<double> means;
  for (const auto& flat : flats) {
    double sum = 0;
    for (const double value : flat) sum += value;
    means.push_back(sum / static_cast<double>(flat.size()));
  }
  const double usual = Median(means);
  std::vector<size_t> odd;
  for (size_t i = 0; i < means.size(); ++i) {
    if (!(std::abs(means[i] - usual) <= kOddFlat * std::abs(usual - dark))) odd.push_back(i);
  }
  if (odd.empty() || odd.size() * 4 > means.size()) return std::nullopt;
  return absl::StrFormat(
      "Flat field %d of %d%s is %.6g in the mean, where they usually are %.6g: their mean is "
      "taken, which it spoils. %s.",
      odd.front(), means.size(),
      odd.size() > 1 ? absl::StrFormat(", and %d more,", odd.size() - 1) : "", means[odd.front()],
      usual,
      spec.preparation.dynamic_flats ? "dynamic_flats then needs an input without it"
                                     : "flat_median leaves it out");
}

/// The value beside the object, if the object leaves both ends of the detector free: the values do
/// not change there.
std::optional<double> AirOf(const Sampler& sampler, const Frames& values, double span) {
  const int64_t columns = sampler.info_.columns, margin = std::max<int64_t>(2, columns / 50);
  if (columns < 8 * margin) return std::nullopt;
  double level[2] = {0, 0};
  for (const bool right : {false, true}) {
    const auto part = [&](int64_t from) { return right ? columns - from - margin : from; };
    const double outer = Median(sampler.Columns(values, part(0), part(0) + margin)),
                 inner = Median(sampler.Columns(values, part(margin), part(margin) + margin));
    if (!(std::abs(outer - inner) <= kPlateau * span)) return std::nullopt;
    // They do not change from one projection to the next either.
    std::vector<double> frames;
    for (const auto& frame : values) {
      if (const auto own = sampler.Columns({frame}, part(0), part(0) + margin); !own.empty())
        frames.push_back(Median(own));
    }
    if (Quantile(frames, 0.9) - Quantile(frames, 0.1) > 2 * kPlateau * span) return std::nullopt;
    level[right] = outer;
  }
  if (std::abs(level[0] - level[1]) > 2 * kPlateau * span) return std::nullopt;
  return 0.5 * (level[0] + level[1]);
}

std::optional<std::string> OddTransmissions(const Sampler& sampler, const Frames& values,
                                            bool fields) {
  const std::vector<double> all = sampler.Columns(values, 0, sampler.info_.columns);
  if (all.size() < 64) return std::nullopt;
  const double low = Quantile(all, 0.02), high = Quantile(all, 0.98), middle = Median(all);
  const std::optional<double> air = AirOf(sampler, values, high - low);
  if (air.has_value() && std::abs(*air) <= 0.1 * high && high >= kLeastIntegral && high < 100 &&
      middle > *air) {
    return absl::StrFormat(
        "The values are about %.2g beside the object and up to %.3g within: they look like line "
        "integrals, whose logarithm was taken "
        "already, and it is taken again. already_sinograms takes them as they are.",
        std::abs(*air) < 0.005 ? 0.0 : *air, high);
  }
  if (!fields) {
    if (middle <= kNoTransmission) return std::nullopt;
    return absl::StrFormat(
        "The values are taken as transmissions, which are 0 to 1, and they are %.4g in the median: "
        "counts need flat fields, and "
        "without them the picture stands on a background.",
        middle);
  }
  if (!air.has_value() || (*air >= kLeastAir && *air <= kMostAir) || *air <= 0.01 ||
      *air < middle - kPlateau * (high - low))
    return std::nullopt;
  return absl::StrFormat(
      "The transmissions beside the object are %.3g, not 1: were the flat fields taken with "
      "another exposure? Air on both sides of "
      "the object can set the scale (air_left, air_right).",
      *air);
}

}  // namespace

std::vector<std::string> FindOddValues(const model::TomographySpec& spec,
                                       storage::ProjectionInput& input) {
  std::vector<std::string> out;
  const model::PreparationSpec& p = spec.preparation;
  const storage::ProjectionInfo& info = input.info();
  if (info.projections < 1 || info.rows < 1 || info.columns < 1) return out;
  const bool fields = !p.ignore_fields && info.flats > 0;
  if (!p.config.minus_log && !fields) return out;
  if (!fields && !p.ignore_fields && info.dtype != DType::kF32)
    return out;  // counts without flat fields: FindImplausible reports them
  Sampler sampler(spec, input);
  Frames values = sampler.Read(storage::FrameKind::kProjection, kProjections);
  if (values.empty()) return out;
  if (fields) {
    const Frames flats = sampler.Read(storage::FrameKind::kFlat, kFlats),
                 darks = sampler.Read(storage::FrameKind::kDark, kDarks);
    if (flats.empty() || (info.darks > 0 && darks.empty())) return out;
    const std::vector<double> flat = MedianFrame(flats),
                              dark = darks.empty() ? std::vector<double>(flat.size(), 0.0)
                                                   : MedianFrame(darks);
    if (const auto odd = OddFlat(spec, flats, Median(dark))) out.push_back(*odd);
    for (auto& frame : values) {
      for (size_t i = 0; i < frame.size(); ++i)
        frame[i] = flat[i] > dark[i] ? (frame[i] - dark[i]) / (flat[i] - dark[i]) : std::nan("");
    }
  }
  const bool scaled = p.config.air_left + p.config.air_right > 0;
  if (p.config.minus_log && !scaled) {
    if (const auto odd = OddTransmissions(sampler, values, fields)) out.push_back(*odd);
  }
  return out;
}

}  // namespace octavo::tomography
