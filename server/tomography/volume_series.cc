#include "server/tomography/volume_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::tomography {
namespace {

// With the end of the input, and a step.
model::IndexRange Resolved(const model::IndexRange& range, int64_t projections) {
  return {.begin = range.begin,
          .end = range.end == 0 ? projections : std::min(range.end, projections),
          .step = std::max<int64_t>(range.step, 1)};
}

double SumOfSquares(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::sqrt(a * a + b * b);
}

}  // namespace

int64_t UsedProjections(const model::TomographySpec& spec, int64_t projections) {
  return Resolved(spec.projections, projections).count();
}

int64_t WindowsIn(const model::TomographySpec& spec, int64_t projections) {
  if (!spec.series.has_value()) return 1;
  const int64_t used = UsedProjections(spec, projections);
  return used < spec.series->projections
             ? 0
             : (used - spec.series->projections) / spec.series->step + 1;
}

absl::Status CheckSeries(const model::TomographySpec& spec, int64_t projections) {
  if (!spec.series.has_value()) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(
      InRange("tomography.projections.begin", spec.projections.begin, 0, projections - 1));
  OCTAVO_RETURN_IF_ERROR(
      InRange("tomography.projections.end", spec.projections.end, 0, projections));
  const int64_t used = UsedProjections(spec, projections), windows = WindowsIn(spec, projections);
  if (windows < 1) {
    return InvalidField("tomography.series.projections",
                        absl::StrCat("is ", spec.series->projections, ", and the job uses ", used,
                                     " projections; allowed 1 to ", used));
  }
  if (windows <= kMostVolumes) return absl::OkStatus();
  const int64_t least = (used - spec.series->projections + kMostVolumes - 1) / (kMostVolumes - 1);
  return InvalidField("tomography.series.step",
                      absl::StrCat("is ", spec.series->step, ", which makes ", windows,
                                   " volumes of ", used, " projections; allowed are ", kMostVolumes,
                                   " volumes, with a step of ", least, " or more"));
}

model::IndexRange WindowOf(const model::TomographySpec& spec, int64_t index) {
  if (!spec.series.has_value()) return spec.projections;
  const int64_t step = std::max<int64_t>(spec.projections.step, 1),
                begin = spec.projections.begin + index * spec.series->step * step;
  return {.begin = begin, .end = begin + (spec.series->projections - 1) * step + 1, .step = step};
}

model::TomographySpec OfWindow(const model::TomographySpec& spec, int64_t index) {
  model::TomographySpec window = spec;
  window.projections = WindowOf(spec, index);
  window.series.reset();
  return window;
}

storage::ProjectionInfo InfoOfWindow(const storage::ProjectionInfo& info,
                                     const model::IndexRange& window) {
  storage::ProjectionInfo out = info;
  out.angles_rad.clear();
  const model::IndexRange range = Resolved(window, info.projections);
  for (int64_t i = range.begin; i < range.end; i += range.step)
    out.angles_rad.push_back(info.angles_rad[static_cast<size_t>(i)]);
  out.projections = std::ssize(out.angles_rad);
  return out;
}

Implausible DoubtsOf(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                     int64_t index, Angles angles) {
  if (!spec.series.has_value()) return FindImplausible(spec, info, angles);
  model::TomographySpec whole = OfWindow(spec, index);
  const storage::ProjectionInfo window = InfoOfWindow(info, whole.projections);
  whole.projections = {};
  return FindImplausible(whole, window, angles);
}

void SetLabels(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
               int64_t index, model::VolumeStatus* volume) {
  if (!spec.series.has_value()) return;
  const model::IndexRange window = WindowOf(spec, index);
  const auto degrees = [&](int64_t projection) {
    return absl::StrFormat(
        "%.10g", info.angles_rad[static_cast<size_t>(projection)] * 180 / std::numbers::pi);
  };
  volume->labels["series.first_projection"] = absl::StrCat(window.begin);
  volume->labels["series.projections"] = absl::StrCat(window.count());
  volume->labels["series.first_angle_deg"] = degrees(window.begin);
  volume->labels["series.last_angle_deg"] = degrees(window.end - 1);
}

std::string SeriesText(const model::TomographySpec& spec, int64_t projections) {
  if (!spec.series.has_value()) return "";
  const int64_t windows = WindowsIn(spec, projections), left = UsedProjections(spec, projections) -
                                                               spec.series->projections -
                                                               (windows - 1) * spec.series->step;
  return absl::StrCat(
      "series: ", windows, windows == 1 ? " volume" : " volumes", " of ", spec.series->projections,
      " projections each, a new one every ", spec.series->step,
      left > 0 ? absl::StrCat("; the last ", left, " projections fill none") : "", "\n");
}

std::string LeftBetween(const model::TomographySpec& spec, int64_t projections) {
  if (!spec.series.has_value() || spec.series->step <= spec.series->projections ||
      WindowsIn(spec, projections) < 2)
    return "";
  return absl::StrCat("Between two volumes of the series ",
                      spec.series->step - spec.series->projections,
                      " projections are left out: series.step is ", spec.series->step,
                      ", series.projections ", spec.series->projections, ".");
}

void AddVolume(const model::TomographyReport& volume, model::TomographyReport* all) {
  const model::TomographyReport before = *all;
  *all = volume;
  if (before.batches == 0) return;
  all->batches += before.batches;
  all->iterations = std::max(all->iterations, before.iterations);
  all->outliers += before.outliers;
  all->not_finite += before.not_finite;
  all->floored += before.floored;
  all->unlit += before.unlit;
  all->clipped_below += before.clipped_below;
  all->clipped_above += before.clipped_above;
  all->row_shift_uncertainty = std::fmax(all->row_shift_uncertainty, before.row_shift_uncertainty);
  all->largest_flat_weight = std::max(all->largest_flat_weight, before.largest_flat_weight);
  all->relative_change = std::fmax(all->relative_change, before.relative_change);
  all->variation_gap = std::fmax(all->variation_gap, before.variation_gap);
  // The norms at the first iterations follow from both.
  const auto first = [](const model::TomographyReport& report) {
    return report.residual_norm / report.relative_residual;
  };
  const double norm_at_first = SumOfSquares(first(volume), first(before));
  all->residual_norm = SumOfSquares(volume.residual_norm, before.residual_norm);
  all->relative_residual = norm_at_first > 0 ? all->residual_norm / norm_at_first
                                             : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace octavo::tomography
