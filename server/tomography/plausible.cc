#include "server/tomography/plausible.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/dtype.h"
#include "server/model/angle_span.h"

namespace octavo::tomography {
namespace {

constexpr double kPi = std::numbers::pi, kDegree = kPi / 180;
constexpr double kWideGap = 20 * kDegree;  // of a half turn: a smaller one does little harm
// range of angles that are merged: the rim of an object is blurred by more than a tenth of its
// radius
constexpr double kWideBin = 10 * kDegree;

struct HalfTurn {
  double widest_gap = 0;  // the widest gap without any angle
  double even_gap = 0;    // the gap if the same directions were evenly spaced
};

/// The angles as directions in a half turn, because projections half a turn apart hold the same
/// information. A scan of several turns may repeat directions; a repeated direction counts once.
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
  return {.widest_gap = widest,
          .even_gap = kPi / static_cast<double>(std::max<size_t>(directions, 1))};
}

// The angles of those projections that are used.
std::vector<double> SelectedAngles(const model::TomographySpec& spec,
                                   const storage::ProjectionInfo& info) {
  const auto all = std::ssize(info.angles_rad);
  const int64_t end = spec.projections.end == 0 ? all : std::min(spec.projections.end, all);
  std::vector<double> angles;
  for (int64_t i = spec.projections.begin; i < end;
       i += std::max<int64_t>(spec.projections.step, 1)) {
    angles.push_back(info.angles_rad[static_cast<size_t>(i)]);
  }
  return angles;
}

// How many projections there are.
void LookAtNumber(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                  Implausible* out) {
  constexpr size_t kTooFew = 5;
  const size_t used = SelectedAngles(spec, info).size();
  if (used >= kTooFew || used == 0 || spec.makes_sinograms()) return;
  out->warnings.push_back(absl::StrCat(used == 1
                                           ? "There is only 1 projection"
                                           : absl::StrCat("There are only ", used, " projections"),
                                       ": too few for a picture."));
}

void LookAtAngles(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                  Implausible* out) {
  // Sinograms are made without the angles, but for the axis.
  if (spec.makes_sinograms() && !spec.center.find) return;
  const char* const field = !spec.angles_rad.empty() ? "tomography.angles_rad"
                            : std::holds_alternative<model::ProjectionFileSpec>(spec.input)
                                ? "tomography.file.angle_unit"
                            : std::holds_alternative<model::ProjectionMosaicSpec>(spec.input)
                                ? "tomography.mosaic.tiles[0].file.angle_unit"
                                : "tomography.push";
  const std::vector<double> used = SelectedAngles(spec, info);
  if (used.size() < 2) return;
  if (const model::AngleSpan span = model::SpanOf(used); span.width() <= 0) {
    out->refusals.push_back(
        InvalidField(field, absl::StrCat("comes with ", used.size(), " angles, all ", span.least,
                                         " rad; a reconstruction needs different ones")));
    return;
  }
  // Use all angles, which reveal the unit best.
  if (const std::vector<double>& angles = info.angles_rad; angles.size() >= model::kFewAngles) {
    if (absl::Status radians = model::CheckRadians(field, angles); !radians.ok()) {
      out->refusals.push_back(std::move(radians));
      return;
    }
    const model::AngleSpan span = model::SpanOf(angles);
    if (auto doubt = model::DoubtRadians(angles)) out->warnings.push_back(*std::move(doubt));
    const model::AngleSpan degrees = {
        .least = span.least / kDegree, .most = span.most / kDegree, .step = span.step / kDegree};
    if (degrees.Covers(kPi) || degrees.Covers(2 * kPi)) {
      if (info.angle_unit_assumed) {
        out->refusals.push_back(
            InvalidField("tomography.file.angle_unit",
                         absl::StrFormat("is not given, and the file declares none: the angles %g "
                                         "to %g, taken as degrees, look like "
                                         "radians. Allowed are RADIANS and DEGREES",
                                         degrees.least, degrees.most)));
        return;
      }
      // The search would be refused, and say no more than that no projections are opposite.
      if (spec.center.find) {
        out->refusals.push_back(InvalidField(
            field,
            absl::StrFormat("makes the angles %g to %g degrees, which hold no projections half a "
                            "turn apart, and tomography.center.search_method needs them. These "
                            "look like radians. Allowed are angles in their own unit, or a given "
                            "axis",
                            degrees.least, degrees.most)));
        return;
      }
      out->warnings.push_back(
          absl::StrFormat("The angles cover only %g to %g degrees; these look like radians.",
                          degrees.least, degrees.most));
      return;
    }
  }
  const HalfTurn half = HalfTurnOf(used);
  if (half.widest_gap > kWideGap && half.widest_gap > 3 * half.even_gap) {
    out->warnings.push_back(
        absl::StrFormat("The angles leave a gap of %.1f degrees in the half turn that a complete "
                        "reconstruction needs.",
                        half.widest_gap / kDegree));
  }
}

void LookAtBins(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                Implausible* out) {
  const auto bin = static_cast<size_t>(std::max<int64_t>(spec.preparation.config.bin_angles, 1));
  const std::vector<double> angles = SelectedAngles(spec, info);
  double widest = 0;
  for (size_t i = 0; i + bin <= angles.size(); i += bin) {
    for (size_t k = 1; k < bin; ++k)
      widest = std::max(widest, std::abs(std::remainder(angles[i + k] - angles[i], 2 * kPi)));
  }
  if (widest > kWideBin) {
    out->warnings.push_back(absl::StrFormat(
        "bin_angles = %d makes one projection of such that are up to %.1f degrees apart: "
        "the angles are not in order, or too few for it.",
        bin, widest / kDegree));
  }
}

// Stitching uses the projection half_turn later as the opposite one.
void LookAtStitching(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                     Implausible* out) {
  PrepareConfig unjoined = spec.preparation.config;
  if (!unjoined.stitching.enabled) return;
  unjoined.stitching.enabled = false;
  const std::vector<double> angles = PreparedAngles(unjoined, SelectedAngles(spec, info));
  const int64_t given = spec.preparation.config.stitching.half_turn,
                half = given == 0 ? std::ssize(angles) / 2 : given;
  if (half < 1 || 2 * half > std::ssize(angles)) return;  // the layout reports it
  double apart = kPi;
  for (size_t i = 0; i < static_cast<size_t>(half); ++i) {
    const double turned =
        std::abs(std::remainder(angles[i + static_cast<size_t>(half)] - angles[i], 2 * kPi));
    apart = std::min(apart, turned);
  }
  const double allowed = std::max(2 * kDegree, 1.5 * kPi / static_cast<double>(half));
  if (kPi - apart <= allowed) return;
  out->refusals.push_back(InvalidField(
      given == 0 ? "tomography.preparation.stitching"
                 : "tomography.preparation.stitching.half_turn",
      absl::StrFormat(
          "joins each projection to the one %d later, which is %.1f degrees on; allowed are 180 to "
          "within %.1f. Joining needs a scan over "
          "360 degrees in the order of its angles, and half_turn where it covers more than that",
          half, apart / kDegree, allowed / kDegree)));
}

void LookAtAxis(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                Implausible* out) {
  const int64_t begin = spec.columns.begin,
                end = spec.columns.end == 0 ? info.columns : spec.columns.end;
  const double least = static_cast<double>(begin) - 0.5,
               most = static_cast<double>(end) - 0.5;  // half a column beyond either end
  const bool all = begin == 0 && end == info.columns;
  const auto look = [&](const char* field, double axis) {
    if (axis >= least && axis <= most) return;
    out->refusals.push_back(FieldNotAllowed(
        field, axis,
        absl::StrCat(least, " to ", most,
                     all ? ", the columns of the detector"
                         : absl::StrCat(", the columns that are chosen (", begin, " to ", end - 1,
                                        "): they and the axis count on the whole detector, 0 to ",
                                        info.columns - 1))));
  };
  for (const double axis : spec.center.pixels) look("tomography.center.pixels", axis);
  if (spec.try_centers.has_value()) {
    look("tomography.try_centers.begin", spec.try_centers->begin);
    look("tomography.try_centers.end", spec.try_centers->end);
  }
}

void LookAtFlats(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                 Implausible* out) {
  const model::PreparationSpec& p = spec.preparation;
  const bool taken_as_they_are = !p.config.minus_log && (p.ignore_fields || info.flats == 0);
  if (taken_as_they_are && info.dtype != DType::kF32 && !spec.makes_sinograms()) {
    out->warnings.push_back(
        absl::StrCat("The input holds whole numbers (", Info(info.dtype).name,
                     "), mostly counts of a detector, and they are reconstructed as they are. "
                     "Attenuation is minus the logarithm "
                     "of (projection - dark) / (flat - dark)."));
  }
  if (!p.ignore_fields && info.flats > 0 && info.darks == 0) {
    out->warnings.push_back(
        "The input has flat fields but no dark ones: what the detector counts without light is "
        "taken as 0.");
  }
  if (!p.config.minus_log || p.ignore_fields || info.flats > 0) return;
  if (info.dtype == DType::kF32) {
    out->warnings.push_back(
        "The input has no flat fields: its values are taken as transmissions, 0 to 1, before the "
        "logarithm.");
    return;
  }
  out->refusals.push_back(InvalidField(
      "tomography.preparation.ignore_fields",
      absl::StrCat("is not set, and the input holds counts (", Info(info.dtype).name,
                   ") without flat fields: transmissions need them. Allowed are "
                   "flat fields in the input, already_sinograms, preparation.logarithm = false, or "
                   "ignore_fields, which takes the counts as transmissions")));
}

// A correction that falls makes thick places thinner than thin ones.
void LookAtHardening(const model::TomographySpec& spec, Implausible* out) {
  const std::vector<double>& terms = spec.preparation.config.beam_hardening;
  constexpr double kMost = 10, kStep = 0.01;  // of line integrals: no light comes through e^-10
  for (double p = 0; p <= kMost && !terms.empty(); p += kStep) {
    double slope = 0, power = 1;
    for (size_t k = 0; k < terms.size(); ++k, power *= p)
      slope += static_cast<double>(k + 1) * terms[k] * power;
    if (slope > 0) continue;
    out->warnings.push_back(absl::StrFormat(
        "preparation.beam_hardening falls from the line integral %.2f on: what absorbs more would "
        "become less.",
        p));
    return;
  }
}

/// The mean of the middle rows of some frames of a kind; nothing if they cannot be read, because
/// the job will report that.
std::optional<double> MeanOf(const model::TomographySpec& spec, storage::ProjectionInput& input,
                             storage::FrameKind kind) {
  constexpr int64_t kRows = 16, kFrames = 4;
  const storage::ProjectionInfo& info = input.info();
  const int64_t begin = spec.rows.begin, end = spec.rows.end == 0 ? info.rows : spec.rows.end,
                frames = info.frames(kind);
  const int64_t rows = std::min(kRows, end - begin), first_row = begin + (end - begin - rows) / 2,
                step = (frames + kFrames - 1) / kFrames;
  double sum = 0, count = 0;
  std::vector<char> bytes(static_cast<size_t>(rows * info.columns * SizeOf(info.dtype)));
  const auto add = [&]<typename T>(T value) {
    for (size_t at = 0; at < bytes.size(); at += sizeof value) {
      std::memcpy(&value, bytes.data() + at, sizeof value);
      if (!std::isfinite(static_cast<double>(value))) continue;
      sum += static_cast<double>(value);
      ++count;
    }
  };
  for (int64_t frame = 0; frame < frames; frame += step) {
    const storage::ProjectionBox box = {.kind = kind,
                                        .first_frame = frame,
                                        .frames = 1,
                                        .first_row = first_row,
                                        .rows = rows,
                                        .first_column = 0,
                                        .columns = info.columns};
    if (!input.Read(box, bytes.data()).ok()) return std::nullopt;
    switch (info.dtype) {
      case DType::kU8: add(uint8_t{}); break;
      case DType::kU16: add(uint16_t{}); break;
      case DType::kI16: add(int16_t{}); break;
      default: add(float{}); break;
    }
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

}  // namespace

Implausible FindImplausible(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                            Angles angles) {
  Implausible out;
  LookAtAxis(spec, info, &out);
  LookAtNumber(spec, info, &out);
  if (angles == Angles::kKnown) {
    LookAtAngles(spec, info, &out);
    LookAtBins(spec, info, &out);
    LookAtStitching(spec, info, &out);
  }
  LookAtFlats(spec, info, &out);
  LookAtHardening(spec, &out);
  if (constexpr double kLeast = 1e-3, kMost = 1e4;
      spec.pixel_size_um != 0 && (spec.pixel_size_um < kLeast || spec.pixel_size_um > kMost)) {
    out.warnings.push_back(absl::StrFormat(
        "pixel_size_um is %g um, hardly the size of a pixel: is it in another unit?",
        spec.pixel_size_um));
  }
  for (const std::string& doubt : info.doubts) out.warnings.push_back(doubt);
  return out;
}

absl::Status CheckPushedAngles(const storage::ProjectionInfo& info) {
  return model::CheckRadians("tomography.push", info.angles_rad);
}

std::optional<absl::Status> FindExchangedFields(const model::TomographySpec& spec,
                                                storage::ProjectionInput& input,
                                                const std::string& of_tile) {
  if (spec.preparation.ignore_fields || input.info().flats == 0 || input.info().darks == 0)
    return std::nullopt;
  const auto flat = MeanOf(spec, input, storage::FrameKind::kFlat),
             dark = MeanOf(spec, input, storage::FrameKind::kDark);
  if (!flat.has_value() || !dark.has_value() || *flat >= *dark) return std::nullopt;
  const std::string field =
      !of_tile.empty()                                                  ? of_tile
      : std::holds_alternative<model::ProjectionFileSpec>(spec.input)   ? "tomography.file.flats"
      : std::holds_alternative<model::ProjectionArraysSpec>(spec.input) ? "tomography.arrays.flats"
                                                                        : "tomography.push";
  return InvalidField(
      field, absl::StrFormat("has flat fields of %.6g in the mean, and dark fields of %.6g; flat "
                             "fields are brighter: are they "
                             "exchanged? Allowed are brighter flat fields, or ignore_fields",
                             *flat, *dark));
}

std::optional<std::string> FindNoTransmission(const model::TomographySpec& spec,
                                              storage::ProjectionInput& input) {
  constexpr double kHardlyAny = 1e-3;
  const storage::ProjectionInfo& info = input.info();
  if (spec.preparation.ignore_fields || info.flats == 0) return std::nullopt;
  const auto flat = MeanOf(spec, input, storage::FrameKind::kFlat),
             projection = MeanOf(spec, input, storage::FrameKind::kProjection);
  const double dark =
      info.darks == 0 ? 0 : MeanOf(spec, input, storage::FrameKind::kDark).value_or(0);
  if (!flat.has_value() || !projection.has_value() || *flat <= dark ||
      *projection - dark >= kHardlyAny * (*flat - dark))
    return std::nullopt;
  return absl::StrFormat(
      "The projections are %.6g in the mean, the flat fields %.6g, the dark fields %.6g: hardly "
      "any light passes. Projections that were "
      "divided by their flat fields already are taken with ignore_fields.",
      *projection, *flat, dark);
}

}  // namespace octavo::tomography
