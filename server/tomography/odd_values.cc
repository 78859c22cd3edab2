#include "server/tomography/odd_values.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/device/dtype.h"
#include "server/tomography/odd_fields.h"
#include "server/tomography/value_sampler.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kProjections = 16, kDarks = 16, kFlats = 16;
constexpr double kLeastAir = 0.8, kMostAir = 1.25;  // transmissions beside the object
// fraction of the range of the values: air is this even
constexpr double kPlateau = 0.04;
constexpr size_t kLeastToFollow = 5;  // projections
constexpr double kLeastBeam = 0.05, kChangedBeam = 0.1;
constexpr double kNoTransmission = 2;   // as the median of all values
constexpr double kLeastIntegral = 0.2;  // line integrals of an object that is worth a scan
// By which columns of air may be darker than the bright ones: of the contrast, of the value.
constexpr double kOfContrast = 0.15, kOfAir = 0.03;

/// The value beside the object, if the object leaves both ends of the detector free: the values do
/// not change there.
std::optional<double> AirOf(const ValueSampler& sampler, const Frames& values, double span) {
  const int64_t columns = sampler.info().columns, margin = std::max<int64_t>(2, columns / 50);
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
      if (const auto own = sampler.Columns(frame, part(0), part(0) + margin); !own.empty())
        frames.push_back(Median(own));
    }
    if (Quantile(frames, 0.9) - Quantile(frames, 0.1) > 2 * kPlateau * span) return std::nullopt;
    level[right] = outer;
  }
  if (std::abs(level[0] - level[1]) > 2 * kPlateau * span) return std::nullopt;
  return 0.5 * (level[0] + level[1]);
}

/// The medians of `width` columns each, from `first` to `end`. Those without a finite value are
/// left out.
std::vector<double> LevelsIn(const ValueSampler& sampler, const std::vector<double>& frame,
                             int64_t first, int64_t end, int64_t width) {
  std::vector<double> levels;
  for (int64_t at = first; at < end; at += width) {
    const auto values = sampler.Columns(frame, at, std::min(at + width, end));
    if (!values.empty()) levels.push_back(Median(values));
  }
  return levels;
}

/// The noise of a value, from differences of neighbours: an object is smooth next to it.
double NoiseOf(const ValueSampler& sampler, const std::vector<double>& frame) {
  const std::vector<double> values = sampler.Columns(frame, 0, sampler.info().columns);
  std::vector<double> steps;
  for (size_t i = 1; i < values.size(); ++i) steps.push_back(std::abs(values[i] - values[i - 1]));
  return Median(std::move(steps)) / 0.954;  // of a normal distribution
}

/// Columns that the request takes for air, and that are darker than the bright ones of the same
/// projection by a good part of its contrast. `values`: transmissions.
std::optional<std::string> ObjectInAir(const model::TomographySpec& spec,
                                       const ValueSampler& sampler, const Frames& values) {
  const PrepareConfig& c = spec.preparation.config;
  const int64_t begin = spec.columns.begin,
                end = spec.columns.end == 0 ? sampler.info().columns : spec.columns.end,
                bin = std::max<int64_t>(c.bin_columns, 1),
                width = std::max<int64_t>(4, (end - begin) / 50);
  std::string told;
  for (const bool right : {false, true}) {
    const int64_t air = right ? c.air_right : c.air_left;
    if (air <= 0 || air * bin > end - begin) continue;
    const int64_t first = right ? end - air * bin : begin, last = first + air * bin;
    size_t odd = 0;
    double least = 0, beside = 0;
    for (const auto& frame : values) {
      const std::vector<double> there = LevelsIn(sampler, frame, first, last, width),
                                all = LevelsIn(sampler, frame, begin, end, width);
      if (there.empty() || all.empty()) continue;
      const double darkest = *std::min_element(there.begin(), there.end()),
                   most = Quantile(all, 0.9),  // fringes beside an object are brighter than air
          lowest = *std::min_element(all.begin(), all.end());
      const auto count = static_cast<double>(std::min(width, last - first));
      if (!(most - darkest > kOfContrast * (most - lowest)) ||
          !(most - darkest > kOfAir * most + 6 * NoiseOf(sampler, frame) / std::sqrt(count)))
        continue;
      if (odd++ == 0 || darkest / most < least / beside) least = darkest, beside = most;
    }
    if (odd < std::min<size_t>(values.size(), 1 + values.size() / 8)) continue;
    absl::StrAppend(
        &told, told.empty() ? "" : " ",
        absl::StrFormat(
            "preparation.air_%s is %d, and columns %d to %d of the detector show no air alone: in "
            "%d of the %d projections that were looked at the object, or no beam, is there, with a "
            "transmission down to %.3g where the bright columns of that projection have %.3g.",
            right ? "right" : "left", air, first, last - 1, odd, values.size(), least, beside));
  }
  if (told.empty()) return std::nullopt;
  return told + " Air becomes 1, and all else is scaled with it: give fewer columns, or none.";
}

std::optional<std::string> OddTransmissions(const model::PreparationSpec& p,
                                            const ValueSampler& sampler, const Frames& values,
                                            bool fields) {
  const std::vector<double> all = sampler.Columns(values, 0, sampler.info().columns);
  if (all.size() < 64) return std::nullopt;
  const double low = Quantile(all, 0.02), high = Quantile(all, 0.98), middle = Median(all);
  const std::optional<double> air = AirOf(sampler, values, high - low);
  if (air.has_value() && std::abs(*air) <= 0.1 * high && high >= kLeastIntegral && high < 100 &&
      middle > *air) {
    return absl::StrFormat(
        "The values are about %.2g beside the object and up to %.3g within: they look like line "
        "integrals, whose logarithm was taken already%s",
        std::abs(*air) < 0.005 ? 0.0 : *air, high,
        p.config.phase.enabled
            ? ". Phase retrieval (preparation.phase) takes transmissions, which are 1 beside the "
              "object: its place is before the logarithm."
            : ", and it is taken again. already_sinograms takes them as they are.");
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

// Air that becomes darker or brighter from the first projection to the last. It is air only where
// it is even at both ends of the detector and the same at both, in each projection.
std::optional<std::string> ChangingBeam(const ValueSampler& sampler, const Frames& values) {
  const int64_t columns = sampler.info().columns, margin = std::max<int64_t>(4, columns / 50);
  if (columns < 8 * margin || values.size() < kLeastToFollow) return std::nullopt;
  std::vector<double> levels;
  for (const auto& frame : values) {
    const auto level = [&](int64_t first) {
      return Median(sampler.Columns(frame, first, first + margin));
    };
    const double left = level(0), right = level(columns - margin), own = 0.5 * (left + right);
    const auto same = [&](double other) { return std::abs(other - own) <= kPlateau * own; };
    // Air is the brightest of a projection.
    if (!(own > kLeastBeam) || !same(left) || !same(right) || !same(level(margin)) ||
        !same(level(columns - 2 * margin)) ||
        Quantile(sampler.Columns(frame, 0, columns), 0.98) > (1 + 3 * kPlateau) * own)
      return std::nullopt;
    levels.push_back(own);
  }
  const double first = levels.front(), last = levels.back(), change = last - first;
  if (std::abs(change) <= kChangedBeam * std::max(first, last) || std::min(first, last) > 1.1 ||
      std::max(first, last) < 0.9)
    return std::nullopt;
  // An object that reaches both ends in some projections comes and goes; a beam goes one way.
  for (size_t i = 1; i < levels.size(); ++i) {
    if ((levels[i] - levels[i - 1]) * (change > 0 ? 1 : -1) < -0.02 * std::max(first, last))
      return std::nullopt;
  }
  return absl::StrFormat(
      "The transmission beside the object changes from %.3g in the first projections to %.3g in "
      "the last: the beam changed during the scan. Columns of air at both ends of the detector "
      "(preparation.air_left, preparation.air_right) set each projection to its own beam.",
      first, last);
}

}  // namespace

std::vector<std::string> FindOddValues(const model::TomographySpec& spec,
                                       storage::ProjectionInput& input) {
  std::vector<std::string> out;
  const model::PreparationSpec& p = spec.preparation;
  const storage::ProjectionInfo& info = input.info();
  if (info.projections < 1 || info.rows < 1 || info.columns < 1) return out;
  const bool fields = !p.ignore_fields && info.flats > 0,
             scaled = p.config.air_left + p.config.air_right > 0 && !p.already_sinograms,
             takes_transmissions = p.config.minus_log || p.config.phase.enabled;
  if (!takes_transmissions && !scaled && !fields) return out;
  if (!fields && !p.ignore_fields && info.dtype != DType::kF32)
    return out;  // counts without flat fields: FindImplausible reports them
  const ValueSampler sampler(spec, input);
  const auto read = [&](storage::FrameKind kind, int64_t most) {
    return sampler.Read(kind, sampler.Places(kind, most));
  };
  Frames values = read(storage::FrameKind::kProjection, kProjections);
  if (values.empty()) return out;
  if (sampler.Columns(values, 0, info.columns).empty()) {
    out.push_back(absl::StrFormat(
        "None of the values of the %d projections that were looked at, in rows in the middle, is "
        "finite: they are NaN or infinite, and count as %g (preparation.not_finite_value).",
        values.size(), p.config.not_finite_value));
    return out;
  }
  if (fields) {
    const SampledFrames sampled = {
        .projections = values,
        .flats = read(storage::FrameKind::kFlat, kFlats),
        .darks = read(storage::FrameKind::kDark, kDarks),
        .flat_places = sampler.Places(storage::FrameKind::kFlat, kFlats),
        .dark_places = sampler.Places(storage::FrameKind::kDark, kDarks)};
    if (sampled.flats.empty() || (info.darks > 0 && sampled.darks.empty())) return out;
    out = FindOddFields(spec, sampler, sampled);
    const std::vector<double> flat = MedianFrame(sampled.flats),
                              dark = sampled.darks.empty() ? std::vector<double>(flat.size(), 0.0)
                                                           : MedianFrame(sampled.darks);
    for (auto& frame : values) {
      for (size_t i = 0; i < frame.size(); ++i)
        frame[i] = flat[i] > dark[i] ? (frame[i] - dark[i]) / (flat[i] - dark[i]) : std::nan("");
    }
  }
  if (scaled) {
    if (auto object = ObjectInAir(spec, sampler, values)) out.push_back(*std::move(object));
  } else if (takes_transmissions) {
    if (auto odd = OddTransmissions(p, sampler, values, fields)) out.push_back(*std::move(odd));
    const bool follows = p.flats_in_time || p.dynamic_flats;
    if (auto changing = ChangingBeam(sampler, values);
        p.config.minus_log && fields && !follows && changing)
      out.push_back(*std::move(changing));
  }
  return out;
}

}  // namespace octavo::tomography
