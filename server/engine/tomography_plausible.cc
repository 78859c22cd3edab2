#include "server/engine/tomography_plausible.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/dtype.h"

namespace octavo::engine {
namespace {

constexpr double kPi = std::numbers::pi, kDegree = kPi / 180;
constexpr double kWideGap = 20 * kDegree;  // of a half turn: a smaller one does little harm
constexpr double kWideBin = 10 * kDegree;  // of angles that are made one: an object's rim is blurred by more than a tenth of its radius
constexpr size_t kFewAngles = 8;           // fewer say nothing about their unit

struct Span {
  double least = 0, most = 0, step = 0;  // step: the mean distance of neighbours
  double width() const { return most - least; }
  /// Whether a scan over `whole` has these angles: its last one is left out, or not.
  bool Covers(double whole) const { return width() > whole - 1.5 * step && width() < whole + 0.5 * step; }
};

Span SpanOf(const std::vector<double>& angles) {
  const auto [least, most] = std::minmax_element(angles.begin(), angles.end());
  return {.least = *least, .most = *most, .step = (*most - *least) / static_cast<double>(std::max<size_t>(angles.size() - 1, 1))};
}

struct HalfTurn {
  double widest_gap = 0;  // the widest part of it without any angle
  double even_gap = 0;    // what the gaps were if the same directions stood evenly
};

/// The angles as directions in a half turn: projections half a turn apart say the same. A scan of several turns may
/// come back to the directions that it has; such a direction counts once.
HalfTurn HalfTurnOf(std::vector<double> angles) {
  constexpr double kSame = 1e-6 * kDegree;
  for (double& angle : angles) angle -= kPi * std::floor(angle / kPi);
  std::sort(angles.begin(), angles.end());
  double widest = angles.front() + kPi - angles.back();
  size_t directions = widest > kSame ? 1 : 0;
  for (size_t i = 1; i < angles.size(); ++i) {
    const double gap = angles[i] - angles[i - 1];
    widest = std::max(widest, gap);
    if (gap > kSame) ++directions;
  }
  return {.widest_gap = widest, .even_gap = kPi / static_cast<double>(std::max<size_t>(directions, 1))};
}

void LookAtAngles(const TomographySpec& spec, const storage::ProjectionInfo& info, Implausible* out) {
  const char* const field = !spec.angles_rad.empty()                                 ? "tomography.angles_rad"
                            : std::holds_alternative<ProjectionFileSpec>(spec.input) ? "tomography.file.angle_unit"
                                                                                     : "tomography.push";
  const std::vector<double>& angles = info.angles_rad;
  if (angles.size() < 2) return;
  const Span span = SpanOf(angles);
  if (span.width() <= 0) {
    out->refusals.push_back(
        InvalidField(field, absl::StrCat("comes with ", angles.size(), " angles, all ", span.least, " rad; a reconstruction needs different ones")));
    return;
  }
  if (angles.size() >= kFewAngles) {
    // Golden angles that were not reduced to a turn: 76 of them cover 180, 151 cover 360. A step of 180 / 75 is another one.
    const bool golden = std::abs(span.step - kPi * (3 - std::sqrt(5.0))) < 1e-5;
    if (!golden && (span.Covers(180) || span.Covers(360))) {
      out->refusals.push_back(InvalidField(
          field,
          absl::StrFormat("makes the angles %g to %g radians, %.1f turns; these look like degrees. Allowed are radians: multiply degrees by pi / 180",
                          span.least, span.most, span.width() / (2 * kPi))));
      return;
    }
    if (span.width() > 4 * kPi) {
      out->warnings.push_back(absl::StrFormat("The angles cover %g to %g radians, %.1f turns. If they are degrees, multiply them by pi / 180.",
                                              span.least, span.most, span.width() / (2 * kPi)));
    }
    const Span degrees = {.least = span.least / kDegree, .most = span.most / kDegree, .step = span.step / kDegree};
    if (degrees.Covers(kPi) || degrees.Covers(2 * kPi)) {
      if (info.angle_unit_assumed) {
        out->refusals.push_back(
            InvalidField("tomography.file.angle_unit",
                         absl::StrFormat("is not given, and the file declares none: the angles %g to %g, taken as degrees, look like "
                                         "radians. Allowed are RADIANS and DEGREES",
                                         degrees.least, degrees.most)));
        return;
      }
      out->warnings.push_back(absl::StrFormat("The angles cover only %g to %g degrees; these look like radians.", degrees.least, degrees.most));
      return;
    }
  }
  const HalfTurn half = HalfTurnOf(angles);
  if (half.widest_gap > kWideGap && half.widest_gap > 3 * half.even_gap) {
    out->warnings.push_back(
        absl::StrFormat("The angles leave a gap of %.1f degrees in the half turn that a complete reconstruction needs.", half.widest_gap / kDegree));
  }
}

void LookAtBins(const TomographySpec& spec, const storage::ProjectionInfo& info, Implausible* out) {
  const auto bin = static_cast<size_t>(std::max<int64_t>(spec.preparation.config.bin_angles, 1));
  double widest = 0;
  for (size_t i = 0; i + bin <= info.angles_rad.size(); i += bin) {
    for (size_t k = 1; k < bin; ++k) widest = std::max(widest, std::abs(std::remainder(info.angles_rad[i + k] - info.angles_rad[i], 2 * kPi)));
  }
  if (widest > kWideBin) {
    out->warnings.push_back(
        absl::StrFormat("bin_angles = %d makes one projection of such that are up to %.1f degrees apart: "
                        "the angles are not in order, or too few for it.",
                        bin, widest / kDegree));
  }
}

// Joining takes the projection half_turn later for the one from behind.
void LookAtStitching(const TomographySpec& spec, const storage::ProjectionInfo& info, Implausible* out) {
  PrepareConfig unjoined = spec.preparation.config;
  if (!unjoined.stitching.enabled) return;
  const auto count = static_cast<int64_t>(info.angles_rad.size());
  std::vector<double> used;
  for (int64_t i = spec.projections.begin; i < (spec.projections.end == 0 ? count : std::min(spec.projections.end, count));
       i += std::max<int64_t>(spec.projections.step, 1)) {
    used.push_back(info.angles_rad[static_cast<size_t>(i)]);
  }
  unjoined.stitching.enabled = false;
  const std::vector<double> angles = PreparedAngles(unjoined, used);
  const int64_t given = spec.preparation.config.stitching.half_turn, half = given == 0 ? std::ssize(angles) / 2 : given;
  if (half < 1 || 2 * half > std::ssize(angles)) return;  // the layout says so
  double apart = kPi;
  for (size_t i = 0; i < static_cast<size_t>(half); ++i) {
    const double turned = std::abs(std::remainder(angles[i + static_cast<size_t>(half)] - angles[i], 2 * kPi));
    apart = std::min(apart, turned);
  }
  const double allowed = std::max(2 * kDegree, 1.5 * kPi / static_cast<double>(half));
  if (kPi - apart <= allowed) return;
  out->refusals.push_back(InvalidField(
      given == 0 ? "tomography.preparation.stitching" : "tomography.preparation.stitching.half_turn",
      absl::StrFormat(
          "joins each projection to the one %d later, which is %.1f degrees on; allowed are 180 to within %.1f. Joining needs a scan over "
          "360 degrees in the order of its angles, and half_turn where it covers more than that",
          half, apart / kDegree, allowed / kDegree)));
}

// Half a column beyond either end, the axis is beside the detector.
std::optional<absl::Status> BesideDetector(const char* field, double axis, int64_t columns) {
  if (axis >= -0.5 && axis <= static_cast<double>(columns) - 0.5) return std::nullopt;
  return InvalidField(field, absl::StrCat("is ", axis, "; allowed -0.5 to ", static_cast<double>(columns) - 0.5, ", the columns of the detector"));
}

void LookAtAxis(const TomographySpec& spec, const storage::ProjectionInfo& info, Implausible* out) {
  const auto look = [&](const char* field, double axis) {
    if (auto beside = BesideDetector(field, axis, info.columns)) out->refusals.push_back(*std::move(beside));
  };
  for (const double axis : spec.center.pixels) look("tomography.center.pixels", axis);
  if (spec.try_centers.has_value()) {
    look("tomography.try_centers.begin", spec.try_centers->begin);
    look("tomography.try_centers.end", spec.try_centers->end);
  }
}

void LookAtFlats(const TomographySpec& spec, const storage::ProjectionInfo& info, Implausible* out) {
  const PreparationSpec& p = spec.preparation;
  if (!p.config.minus_log || p.ignore_fields || info.flats > 0) return;
  if (info.dtype == DType::kF32) {
    out->warnings.push_back("The input has no flat fields: its values are taken as transmissions, 0 to 1, before the logarithm.");
    return;
  }
  out->refusals.push_back(InvalidField(
      "tomography.preparation.ignore_fields",
      absl::StrCat("is not set, and the input holds counts (", Info(info.dtype).name,
                   ") without flat fields: transmissions need them. Allowed are "
                   "flat fields in the input, already_sinograms, no_logarithm, or ignore_fields, which takes the counts as transmissions")));
}

}  // namespace

Implausible FindImplausible(const TomographySpec& spec, const storage::ProjectionInfo& info) {
  Implausible out;
  LookAtAxis(spec, info, &out);
  LookAtAngles(spec, info, &out);
  LookAtBins(spec, info, &out);
  LookAtStitching(spec, info, &out);
  LookAtFlats(spec, info, &out);
  return out;
}

}  // namespace octavo::engine
