#include "gpu/tomography/phase_filter.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kReach = 7;  // decay lengths; beyond them the kernel is below e^-7
constexpr double kWavelengthOfKevM = 1.2398419843e-9;

// The range of real instruments. A value in another unit, such as eV instead of keV, is wrong by a
// factor of a thousand and would smooth the image away, or not at all.
absl::Status Plausible(absl::string_view field, double value, double lo, double hi,
                       absl::string_view unit) {
  if (value >= lo && value <= hi) return absl::OkStatus();  // false for NaN
  return FieldNotAllowed(field, value, absl::StrCat(lo, " to ", hi, unit));
}

/// sqrt(δ/β λ d / 4π) in raw pixels: the length over which the kernel of kPaganin falls by e.
double LengthPixels(const PhaseRetrieval& p) {
  const double wavelength = kWavelengthOfKevM / p.energy_kev;
  return std::sqrt(p.delta_beta * wavelength * p.distance_mm * 1e-3 / (4 * kPi)) /
         (p.pixel_size_um * 1e-6);
}

/// W in raw pixels.
double FeaturePixels(const PhaseRetrieval& p) {
  return p.feature_size_um == 0 ? 1 : p.feature_size_um / p.pixel_size_um;
}

}  // namespace

double PhaseReachPixels(const PhaseRetrieval& p) {
  const double length = LengthPixels(p);
  if (p.method != PhaseMethod::kGeneralized) return kReach * length;
  const double feature = FeaturePixels(p), ratio = feature / length;
  return kReach * feature / std::acosh(1 + 0.5 * ratio * ratio);
}

absl::Status CheckPhase(const PhaseRetrieval& p) {
  if (!p.enabled) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(Plausible("phase.pixel_size_um", p.pixel_size_um, 0.001, 1000,
                                   " (micrometres: 1.3 mm is 1300)"));
  OCTAVO_RETURN_IF_ERROR(
      Plausible("phase.distance_mm", p.distance_mm, 0.001, 1e6, " (millimetres: 2 m is 2000)"));
  OCTAVO_RETURN_IF_ERROR(
      Plausible("phase.energy_kev", p.energy_kev, 1, 1000, " (keV: 20000 eV is 20)"));
  OCTAVO_RETURN_IF_ERROR(Plausible("phase.delta_beta", p.delta_beta, 0.01, 1e6, " (delta / beta)"));
  if (p.feature_size_um != 0) {
    if (p.method != PhaseMethod::kGeneralized)
      return InvalidField("phase.feature_size_um",
                          absl::StrCat("is ", p.feature_size_um,
                                       " with a method that has none; allowed is 0, or the method "
                                       "GENERALIZED_PAGANIN"));
    OCTAVO_RETURN_IF_ERROR(Plausible("phase.feature_size_um", p.feature_size_um, 0.001, 1000,
                                     " (micrometres), or 0: the size of a pixel"));
  }
  const double reach = PhaseReachPixels(p);
  if (reach <= 8192) return absl::OkStatus();
  return InvalidField(
      "phase",
      absl::StrCat(
          "smooths over ", reach,
          " pixels (7 sqrt(delta_beta λ distance / 4π) / pixel size); allowed up to 8192"));
}

math::PhaseFilter PhaseFilterOf(const PhaseRetrieval& p, int64_t bin_rows, int64_t bin_columns) {
  const double length = LengthPixels(p), rows = 1 / static_cast<double>(bin_rows),
               columns = 1 / static_cast<double>(bin_columns);
  const auto filter = [&](math::PhaseFilter::Kind kind, double scale_rows, double scale_columns,
                          double strength) {
    return math::PhaseFilter{.kind = kind,
                             .rows = static_cast<float>(scale_rows),
                             .columns = static_cast<float>(scale_columns),
                             .strength = static_cast<float>(strength)};
  };
  const double squares = 4 * kPi * kPi * length * length;  // α |k|² = squares |f|²
  switch (p.method) {
    case PhaseMethod::kPaganin: break;
    case PhaseMethod::kGeneralized: {
      const double feature = FeaturePixels(p);
      return filter(math::PhaseFilter::Kind::kGeneralized, 2 * kPi * feature * rows,
                    2 * kPi * feature * columns, 2 * length * length / (feature * feature));
    }
    case PhaseMethod::kFarago:
      return filter(math::PhaseFilter::Kind::kFarago, squares / p.delta_beta * rows * rows,
                    squares / p.delta_beta * columns * columns, p.delta_beta);
  }
  return filter(math::PhaseFilter::Kind::kPaganin, squares * rows * rows,
                squares * columns * columns, 0);
}

absl::Status CheckPhaseFilter(const PhaseRetrieval& p, int64_t bin_rows, int64_t bin_columns) {
  if (!p.enabled || p.method != PhaseMethod::kFarago) return absl::OkStatus();
  const math::PhaseFilter f = PhaseFilterOf(p, bin_rows, bin_columns);
  const double most = 0.25 * static_cast<double>(f.rows + f.columns),
               zero = kPi - std::atan(1 / p.delta_beta);
  constexpr double kPart = 0.9;
  if (most <= kPart * zero) return absl::OkStatus();
  return InvalidField(
      "phase.retrieval_method",
      absl::StrFormat("is FARAGO, whose filter is infinite at χ = %.3g; the finest structure of "
                      "these pixels has χ = λ distance / (4π) k² = %.3g, allowed "
                      "up to %.3g: a shorter distance, a higher energy, larger pixels or bins, or "
                      "PAGANIN",
                      zero, most, kPart * zero));
}

}  // namespace octavo::inline gpu
