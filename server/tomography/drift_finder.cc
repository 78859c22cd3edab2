#include "server/tomography/drift_finder.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomography/row_drift.h"
#include "server/base/errors.h"

namespace octavo::tomography {
namespace {

// Of a shift, in rows, and of the part of a profile's variance that agrees with the others.
constexpr double kDoubtful = 0.2, kUnknown = 0.5, kAgrees = 0.95, kStrange = 0.75;

/// Slices of the whole detector that are prepared at a time.
int64_t SlicesAtOnce(const TomographyLayout& profile) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  return std::clamp<int64_t>(kBytes / profile.image_bytes(), 1, profile.slices());
}

/// The profile of each projection [projection, row of the detector].
absl::StatusOr<std::vector<float>> ProfilesOf(const TomographyLayout& profile,
                                              const ScannedObject& object, job::JobRun& run,
                                              RowPreparer& rows) {
  const int64_t slices = profile.slices(), at_once = SlicesAtOnce(profile);
  std::vector<float> all(static_cast<size_t>(profile.frames() * slices));
  for (int64_t first = 0; first < slices; first += at_once) {
    const int64_t count = std::min(at_once, slices - first);
    OCTAVO_ASSIGN_OR_RETURN(
        const PreparedRows prepared,
        rows.Prepare(profile, object.input, profile.RowsOf(first, count), /*for_overlap=*/true));
    absl::StatusOr<std::vector<float>> means = absl::InternalError("");
    const int64_t numbers = 2 * prepared.shape.slices * prepared.shape.angles;
    if (auto scratch = run.Allocate(numbers * 4); scratch.ok()) {
      means = RowMeans(run.stream(), run.device(), prepared.shape, prepared.sinograms(),
                       {static_cast<float*>(*scratch), numbers});
      (void)run.stream().Synchronize();
      run.Free(*scratch);
    } else {
      means = scratch.status();
    }
    run.Free(prepared.data);
    OCTAVO_RETURN_IF_ERROR(means.status());
    for (int64_t a = 0; a < profile.frames(); ++a)
      std::copy_n(means->begin() + a * count, count, all.begin() + a * slices + first);
  }
  return all;
}

void Warn(const RowDrift& drift, double most, int64_t projections, JobNotes& notes) {
  if (drift.at_limit > 0) {
    notes.warnings.push_back(absl::StrFormat(
        "%d of %d projections are shifted along the rotation axis by %g rows, the most that is "
        "looked "
        "for: allow more (preparation.row_drift.most_rows), or the object is not found there.",
        drift.at_limit, projections, most));
  }
  if (drift.uncertainty > kDoubtful) {
    notes.warnings.push_back(
        absl::StrFormat("Shifts along the rotation axis are uncertain by %.2f rows: the object "
                        "has little that differs from row to row.",
                        drift.uncertainty));
  }
  if (drift.agreement < kAgrees) {
    notes.warnings.push_back(absl::StrFormat(
        "Only %.0f %% of the profile of a projection over the rows agrees with the others, so its "
        "shift along the rotation axis is in doubt: is a part of the object beside the detector?",
        100 * std::max(drift.agreement, 0.0)));
  }
}

}  // namespace

absl::StatusOr<int64_t> DriftFinderBytes(const TomographyLayout& layout, Device& device) {
  if (!layout.finds_drift()) return 0;
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout profile, layout.ForProfiles());
  const int64_t at_once = SlicesAtOnce(profile);
  int64_t most = 0;
  for (int64_t first = 0; first < profile.slices(); first += at_once) {
    const BatchRows rows = profile.RowsOf(first, std::min(at_once, profile.slices() - first));
    OCTAVO_ASSIGN_OR_RETURN(const PreparedShape shape, profile.PreparedFor(rows, true));
    auto prepare = Preparer::DeviceBytes(profile.PrepareFor(rows, true), device);
    if (!prepare.ok()) return base::AtField("tomography.preparation.", prepare.status());
    constexpr int64_t kRounding = 4096;  // of a few pieces of memory
    most = std::max(most, profile.RawBytes(rows) + profile.FieldBytes(rows) + *prepare +
                              shape.elements() * 4 + shape.slices * shape.angles * 8 + kRounding);
  }
  return most;
}

absl::StatusOr<int64_t> DriftFinderHostBytes(const TomographyLayout& layout) {
  if (!layout.finds_drift()) return 0;
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout profile, layout.ForProfiles());
  return RowDriftHostBytes(profile.frames(), profile.slices());
}

absl::StatusOr<TomographyLayout> WithRowShifts(const ScannedObject& object, job::JobRun& run,
                                               const std::stop_token& stop, RowPreparer& rows,
                                               std::vector<double>& reference,
                                               model::TomographyReport& report, JobNotes& notes) {
  const TomographyLayout& layout = object.layout;
  report.row_shifts = layout.row_shifts();
  if (!layout.finds_drift()) return layout;
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout profile, layout.ForProfiles());
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<float> profiles,
                          ProfilesOf(profile, object, run, rows));
  OCTAVO_ASSIGN_OR_RETURN(RowDrift drift,
                          FindRowDrift(profile.frames(), profile.slices(), profiles,
                                       layout.most_row_shift(), reference, Until(stop)));
  report.row_shift_uncertainty = drift.uncertainty;
  if (!(drift.uncertainty <= kUnknown && drift.agreement >= kStrange)) {
    notes.warnings.emplace_back(
        "The projections do not tell how far they are shifted along the rotation axis "
        "(preparation.row_drift): the object is alike in all rows, reaches beside the detector, or "
        "changes from projection to projection. None is shifted.");
    report.row_shifts.assign(report.row_shifts.size(), 0.0);
    return layout.WithRowShifts(report.row_shifts);
  }
  if (reference.empty()) reference = drift.profile;
  Warn(drift, layout.most_row_shift(), profile.frames(), notes);
  const auto [least, most] = std::minmax_element(drift.shifts.begin(), drift.shifts.end());
  notes.log.push_back(
      absl::StrFormat("shifts along the rotation axis: %.3f to %.3f rows, each known to %.3f; "
                      "profiles agree in %.1f %% of their variance",
                      *least, *most, drift.uncertainty, 100 * drift.agreement));
  report.row_shifts = drift.shifts;
  return layout.WithRowShifts(std::move(drift.shifts));
}

}  // namespace octavo::tomography
