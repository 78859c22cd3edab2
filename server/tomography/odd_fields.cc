#include "server/tomography/odd_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/device/dtype.h"

namespace octavo::tomography {
namespace {

constexpr double kOddFlat = 0.2;          // of the usual mean of a flat field
constexpr double kNoLight = 0.05;         // of the light of the projections: a flat field has more
constexpr double kOddDark = 0.05;         // of the light of the flat fields
constexpr double kBelowDark = 0.05;       // the same: noise is less
constexpr double kBelowDarkNoise = 0.02;  // the same, where dark fields tell the noise
constexpr size_t kTellNoise = 4;
constexpr double kManyBelow = 0.005, kManyAtLimit = 0.01, kManyClipped = 0.02,
                 kManyClippedProjections = 0.002;

// The field of the request that gives frames of this kind.
std::string FieldOf(const model::TomographySpec& spec, storage::FrameKind kind) {
  const char* const name = kind == storage::FrameKind::kFlat ? "flats" : "darks";
  if (std::holds_alternative<model::ProjectionFileSpec>(spec.input))
    return absl::StrCat("tomography.file.", name);
  if (std::holds_alternative<model::ProjectionArraysSpec>(spec.input))
    return absl::StrCat("tomography.arrays.", name);
  return "tomography.push";
}

std::vector<double> Means(const Frames& frames) {
  std::vector<double> means;
  for (const auto& frame : frames) {
    double sum = 0;
    for (const double value : frame) sum += value;
    means.push_back(sum / static_cast<double>(frame.size()));
  }
  return means;
}

class FieldChecks {
 public:
  FieldChecks(const model::TomographySpec& spec, const ValueSampler& sampler,
              const SampledFrames& sampled)
      : spec_(spec),
        info_(sampler.info()),
        sampler_(sampler),
        sampled_(sampled),
        flat_(MedianFrame(sampled.flats)),
        dark_(sampled.darks.empty() ? std::vector<double>(flat_.size(), 0.0)
                                    : MedianFrame(sampled.darks)) {}

  std::optional<std::string> Flats() const;
  std::optional<std::string> Darks() const;
  std::optional<std::string> BelowDarks() const;
  std::optional<std::string> Saturation() const;
  std::optional<std::string> SameFrames(storage::FrameKind kind, const Frames& fields,
                                        const std::vector<int64_t>& places) const;

 private:
  // Where much of it passes.
  double LightOfProjections() const {
    return Quantile(sampler_.Columns(sampled_.projections, 0, info_.columns), 0.9) - Median(dark_);
  }
  std::optional<std::string> FlatsWithoutLight(const std::vector<double>& means) const;
  bool NoisyBelow(double most, double least) const;
  std::optional<std::string> Clipped() const;

  const model::TomographySpec& spec_;
  const storage::ProjectionInfo& info_;
  const ValueSampler& sampler_;
  const SampledFrames& sampled_;
  const std::vector<double> flat_, dark_;
};

std::optional<std::string> FieldChecks::FlatsWithoutLight(const std::vector<double>& means) const {
  const double dark = Median(dark_), light = LightOfProjections();
  if (!(light > 0)) return std::nullopt;
  std::vector<size_t> none;
  for (size_t i = 0; i < means.size(); ++i) {
    if (means[i] - dark <= kNoLight * light) none.push_back(i);
  }
  if (none.empty() || none.size() == means.size()) return std::nullopt;
  const bool median = spec_.preparation.config.flat_average == FieldAverage::kMedian;
  if (median && 2 * none.size() < means.size()) return std::nullopt;
  const double brightest = *std::max_element(means.begin(), means.end());
  return absl::StrFormat(
      "%d of the %d flat fields that were looked at have hardly any light: flat field %d is %.6g "
      "in the mean, others up to %.6g, and the dark fields are %.6g. %s, so that all transmissions "
      "are too large. Give flat fields without those.",
      none.size(), means.size(), sampled_.flat_places[none.front()], means[none.front()], brightest,
      dark,
      spec_.preparation.flats_in_time || spec_.preparation.dynamic_flats ? "They count like others"
      : median ? "Their median is taken, which is one without light"
               : "Their mean is taken");
}

std::optional<std::string> FieldChecks::Flats() const {
  const size_t count = sampled_.flats.size();
  if (count < 2) return std::nullopt;
  const model::PreparationSpec& p = spec_.preparation;
  const std::vector<double> means = Means(sampled_.flats);
  const double usual = Median(means), dark = Median(dark_);
  std::vector<size_t> odd;
  for (size_t i = 0; i < count; ++i) {
    if (!(std::abs(means[i] - usual) <= kOddFlat * std::abs(usual - dark))) odd.push_back(i);
  }
  if (odd.empty()) return std::nullopt;
  const bool median = p.config.flat_average == FieldAverage::kMedian,
             few = count >= 3 && odd.size() * 4 <= count;
  std::optional<std::string> without_light = FlatsWithoutLight(means);
  // Where few of them have no light, the usual advice helps.
  if (without_light.has_value() &&
      (!few || p.flats_in_time || usual - dark <= kNoLight * LightOfProjections()))
    return without_light;
  if (p.flats_in_time) return std::nullopt;
  if (few) {
    if (median) return std::nullopt;
    return absl::StrFormat(
        "Flat field %d of %d%s is %.6g in the mean, where they usually are %.6g: their mean is "
        "taken, which it spoils. %s.",
        sampled_.flat_places[odd.front()], info_.flats,
        odd.size() > 1 ? absl::StrFormat(", and %d more,", odd.size() - 1) : "", means[odd.front()],
        usual,
        p.dynamic_flats ? "dynamic_flats then needs an input without it"
                        : "flat_median leaves it out");
  }
  if (median && 2 * odd.size() < count) return std::nullopt;
  if (p.dynamic_flats) return std::nullopt;  // which finds how bright each projection's is
  const auto [least, most] = std::minmax_element(means.begin(), means.end());
  return absl::StrFormat(
      "The flat fields are of different brightness: %.6g (flat field %d) to %.6g (flat field %d) "
      "in the mean, %d of the %d that were looked at differ by more than %.0f %% of the light. "
      "Their %s is taken. Give an input without those that do not belong to the scan, or, where "
      "the beam changed, preparation.flats_in_time.",
      *least, sampled_.flat_places[static_cast<size_t>(least - means.begin())], *most,
      sampled_.flat_places[static_cast<size_t>(most - means.begin())], odd.size(), count,
      100 * kOddFlat, median ? "median" : "mean");
}

std::optional<std::string> FieldChecks::Darks() const {
  const size_t count = sampled_.darks.size();
  if (count < 2) return std::nullopt;
  std::vector<double> levels;
  for (const auto& frame : sampled_.darks) levels.push_back(Median(frame));
  const auto [least, most] = std::minmax_element(levels.begin(), levels.end());
  const double light = Median(flat_) - *least, usual = Median(levels);
  if (!(light > 0) || *most - *least <= kOddDark * light) return std::nullopt;
  const bool median = spec_.preparation.config.dark_average == FieldAverage::kMedian;
  const auto odd = std::count_if(levels.begin(), levels.end(), [&](double level) {
    return std::abs(level - usual) > kOddDark * light;
  });
  // Light may be in all but a few.
  if (median && 4 * static_cast<size_t>(odd) <= count && usual - *least <= kOddDark * light)
    return std::nullopt;
  return absl::StrFormat(
      "The dark fields differ: %.6g (dark field %d) to %.6g (dark field %d) in the median, where "
      "the flat fields are %.6g. Their %s is taken. Give an input without those that had light%s.",
      *least, sampled_.dark_places[static_cast<size_t>(least - levels.begin())], *most,
      sampled_.dark_places[static_cast<size_t>(most - levels.begin())], Median(flat_),
      median ? "median" : "mean",
      !median && 4 * static_cast<size_t>(odd) <= count
          ? "; preparation.dark_median leaves the few out"
          : "");
}

// Noise makes values below the dark fields, too, where hardly any light passes, but not by much of
// the light.
std::optional<std::string> FieldChecks::BelowDarks() const {
  if (sampled_.darks.empty()) return std::nullopt;
  std::vector<double> light(flat_.size()), range(flat_.size());
  for (size_t i = 0; i < flat_.size(); ++i) {
    light[i] = flat_[i] - dark_[i];
    double least = dark_[i], most = dark_[i];
    for (const auto& frame : sampled_.darks) {
      least = std::min(least, frame[i]);
      most = std::max(most, frame[i]);
    }
    range[i] = most - least;
  }
  const double usual = Median(light), noise = 2 * Median(range);  // 5 deviations, or more
  const double part = sampled_.darks.size() >= kTellNoise ? kBelowDarkNoise : kBelowDark;
  if (!(usual > 0)) return std::nullopt;
  double below = 0, all = 0, deepest = 0;
  for (const auto& frame : sampled_.projections) {
    for (size_t i = 0; i < frame.size(); ++i) {
      // Zeros are pixels and frames without data.
      if (!std::isfinite(frame[i]) || frame[i] == 0 || !(light[i] > 0.2 * usual)) continue;
      ++all;
      const double missing = dark_[i] - frame[i];
      if (missing <= std::max(part * light[i], noise)) continue;
      ++below;
      deepest = std::max(deepest, missing / light[i]);
    }
  }
  if (all == 0 || below <= kManyBelow * all) return std::nullopt;
  return absl::StrFormat(
      "The dark fields are %.6g in the median, and %.2g %% of the values of the projections that "
      "were looked at are darker, by up to %.2g of the light of the flat fields: dark fields of "
      "another exposure, or with light. Such values count as log_floor, and all others are wrong "
      "by as much. Take dark fields without light.",
      Median(dark_), 100 * below / all, deepest);
}

// Whether neighbouring columns of the projections differ by noise, where they are below `most`.
// Line integrals without noise have slopes, which hardly change from one column to the next.
bool FieldChecks::NoisyBelow(double most, double least) const {
  std::vector<double> slopes, bends;
  for (const auto& frame : sampled_.projections) {
    for (size_t i = 2; i < frame.size(); ++i) {
      if (static_cast<int64_t>(i) % info_.columns < 2 || frame[i - 2] >= most ||
          frame[i - 1] >= most || frame[i] >= most)
        continue;
      slopes.push_back(std::abs(frame[i] - frame[i - 1]));
      bends.push_back(std::abs(frame[i] - 2 * frame[i - 1] + frame[i - 2]));
    }
  }
  // Nor do neighbouring rows differ much without noise.
  std::vector<double> steps;
  for (const auto& frame : sampled_.projections) {
    for (size_t i = 0, below = static_cast<size_t>(info_.columns); below < frame.size();
         ++i, ++below) {
      if (frame[i] < most && frame[below] < most)
        steps.push_back(std::abs(frame[below] - frame[i]));
    }
  }
  if (bends.size() < 64 || steps.size() < 64 || Median(steps) < 2 * least) return false;
  const double bend = Median(bends);
  return bend >= 2 * least && bend > 0.7 * Median(slopes);
}

// Values of a camera that pile up at a largest one which is not that of the type, as 4095: noise
// leaves few at the largest value otherwise. Without noise, flat fields that are even look the
// same.
std::optional<std::string> FieldChecks::Clipped() const {
  const Frames& flats = sampled_.flats;
  if (flats.size() < 2) return std::nullopt;
  const std::vector<double> values = sampler_.Columns(flats, 0, info_.columns),
                            projected = sampler_.Columns(sampled_.projections, 0, info_.columns);
  if (values.size() < 64 || projected.size() < 64) return std::nullopt;
  const double most = *std::max_element(values.begin(), values.end());
  const auto part = [&](const std::vector<double>& all) {
    return static_cast<double>(std::count(all.begin(), all.end(), most)) /
           static_cast<double>(all.size());
  };
  if (*std::max_element(projected.begin(), projected.end()) != most ||
      part(values) < kManyClipped || part(projected) < kManyClippedProjections)
    return std::nullopt;
  std::vector<double> noise;  // of pixels that never reach it
  for (size_t i = 0; i < flat_.size(); ++i) {
    double low = flats.front()[i], high = low;
    for (const auto& frame : flats) {
      low = std::min(low, frame[i]);
      high = std::max(high, frame[i]);
    }
    if (high < most) noise.push_back(high - low);
  }
  constexpr double kLeastNoise = 3;  // steps
  const double step = std::floor(most) == most && most >= 16 ? 1 : most / 4096;
  // Where nearly all pixels reach it, only the projections show whether there is noise.
  const bool flats_tell =
      static_cast<double>(noise.size()) >= 0.02 * static_cast<double>(flat_.size());
  if (!(flats_tell ? Median(noise) >= kLeastNoise * step : NoisyBelow(most, kLeastNoise * step)))
    return std::nullopt;
  return absl::StrFormat(
      "%.3g %% of the values of the flat fields that were looked at and %.3g %% of those of the "
      "projections are %.6g, the largest of both: the detector was saturated there, and what "
      "absorbs little is lost. Take the scan with a shorter exposure.",
      100 * part(values), 100 * part(projected), most);
}

std::optional<std::string> FieldChecks::Saturation() const {
  double limit = 0;
  switch (info_.dtype) {
    case DType::kU8: limit = 255; break;
    case DType::kU16: limit = 65535; break;
    case DType::kI16: limit = 32767; break;
    default: return Clipped();
  }
  const auto part = [&](const Frames& frames) {
    const std::vector<double> all = sampler_.Columns(frames, 0, info_.columns);
    return all.empty() ? 0.0
                       : static_cast<double>(std::count(all.begin(), all.end(), limit)) /
                             static_cast<double>(all.size());
  };
  // One flat field at the limit is told as an odd one.
  std::vector<double> of_flats;
  for (const auto& flat : sampled_.flats) of_flats.push_back(part({flat}));
  const double flats = Median(of_flats), projections = part(sampled_.projections);
  if (flats < kManyAtLimit && projections < kManyAtLimit) return Clipped();
  if (flats == 1 && info_.flats == 1)
    return std::nullopt;  // made up, for images that were divided already
  return absl::StrFormat(
      "%.3g %% of the values of the flat fields that were looked at and %.3g %% of those of the "
      "projections are %.6g, the largest value of %s: the detector was saturated there, and what "
      "absorbs little is lost. Take the scan with a shorter exposure.",
      100 * flats, 100 * projections, limit, Info(info_.dtype).name);
}

std::optional<std::string> FieldChecks::SameFrames(storage::FrameKind kind, const Frames& fields,
                                                   const std::vector<int64_t>& places) const {
  if (fields.size() < 2 || info_.frames(kind) != info_.projections) return std::nullopt;
  // Frames that are all equal tell nothing.
  if (std::all_of(fields.begin(), fields.end(),
                  [&](const auto& frame) { return frame == fields.front(); }) ||
      sampler_.Read(storage::FrameKind::kProjection, places) != fields)
    return std::nullopt;
  return absl::StrFormat(
      "The %s fields are the projections themselves: all %d that were looked at are equal to them. "
      "Does %s name the projections? It needs frames %s.",
      Name(kind), fields.size(), FieldOf(spec_, kind),
      kind == storage::FrameKind::kFlat ? "of the beam without the object" : "without light");
}

}  // namespace

std::vector<std::string> FindOddFields(const model::TomographySpec& spec,
                                       const ValueSampler& sampler, const SampledFrames& sampled) {
  std::vector<std::string> out;
  const FieldChecks checks(spec, sampler, sampled);
  const auto add = [&](std::optional<std::string> odd) {
    if (odd.has_value()) out.push_back(*std::move(odd));
    return odd.has_value();
  };
  bool same = add(checks.SameFrames(storage::FrameKind::kFlat, sampled.flats, sampled.flat_places));
  same |= add(checks.SameFrames(storage::FrameKind::kDark, sampled.darks, sampled.dark_places));
  if (same) return out;  // the others follow from it
  add(checks.Flats());
  if (!add(checks.Darks())) add(checks.BelowDarks());
  add(checks.Saturation());
  return out;
}

}  // namespace octavo::tomography
