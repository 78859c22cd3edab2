#include "server/tomography/wide_object.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "gpu/tomography/truncation.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kRowsLookedAt = 5;  // spread over the slices

// Whether each projection of the first half is half a turn before that of the second half, as
// stitching takes them.
bool HalvesFollow(const std::vector<double>& angles_rad) {
  constexpr double kTurn = 2 * std::numbers::pi, kAllowed = kTurn / 180;
  const size_t half = angles_rad.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double apart = std::abs(std::remainder(angles_rad[i + half] - angles_rad[i], kTurn));
    if (kTurn / 2 - apart > std::max(kAllowed, 0.75 * kTurn / static_cast<double>(half)))
      return false;
  }
  return half > 0;
}

std::string Where(const Truncation& truncation) {
  constexpr double kHardly = 0.005;  // of the directions
  const bool left = truncation.left > kHardly, right = truncation.right > kHardly;
  return left && right
             ? absl::StrFormat(
                   "The object is wider than the detector: %.0f %% of the directions show it at "
                   "the left end, %.0f %% at the right one.",
                   100 * truncation.left, 100 * truncation.right)
             : absl::StrFormat(
                   "The object leaves the detector on the %s, in %.0f %% of the directions: it is "
                   "wider than that side, or the axis "
                   "is not in its middle.",
                   left ? "left" : "right", 100 * (left ? truncation.left : truncation.right));
}

// Over a full turn, rays that miss the end near the axis are seen half a turn later. Filtered back
// projection takes each projection by itself, and so misses them.
void WarnOfHalves(const Truncation& seen, bool left, const TomographyLayout& layout, double axis,
                  job::JobRun& run) {
  const std::vector<double>& angles = layout.angles_rad();
  run.Warn(absl::StrFormat(
      "The axis, at column %.2f, is near the %s end of the detector, where %.0f %% of the "
      "directions show the object: each projection of this full turn shows one side of it, and the "
      "values become too high. %s",
      axis, left ? "left" : "right", 100 * (left ? seen.left : seen.right),
      HalvesFollow(angles)
          ? absl::StrFormat("preparation.stitching axis_right %s joins the two halves of the turn.",
                            left ? "false" : "true")
          : "Iterative algorithms (SIRT) take such projections; preparation.stitching joins the "
            "two halves of a turn in the order of its angles."));
}

// What analytic algorithms make of the object. `bound`: the ends that bound it.
void WarnOfAir(const Truncation& seen, const BoundingEnds& bound, double center, double axis,
               const TomographyLayout& layout, int64_t detectors, job::JobRun& run) {
  constexpr double kLeastPart = 0.25;  // of the directions: fewer, of a small detector, nearly fit
  constexpr double kOneSided = 0.8;    // of the distances to the two ends
  const double left = center, right = static_cast<double>(detectors - 1) - center;
  const bool one_end = bound.left != bound.right, near_left = bound.right;
  const bool at_bound =
      (bound.left && seen.left >= kLeastPart) || (bound.right && seen.right >= kLeastPart);
  const bool joined = layout.stitched() || !layout.tried().empty();  // or the axis is not known
  if (!joined && one_end && (near_left ? seen.left : seen.right) >= kLeastPart &&
      (!at_bound || std::min(left, right) < kOneSided * std::max(left, right)))
    return WarnOfHalves(seen, near_left, layout, axis, run);
  if (layout.extends_edges() || !at_bound) return;
  run.Warn(absl::StrCat(
      Where(seen),
      " What lies outside counts as air, so that the values rise towards the rim and are less "
      "certain everywhere: reconstruction.extend_edges continues the rows beyond the detector."));
}

/// A few projections of a few rows, each as the detector saw it, and where the axis is in them.
struct Seen {
  TruncationConfig config;
  std::vector<float> sinograms;
  double axis = 0;  // of the whole detector, in the first row
  BoundingEnds bound() const {
    return EndsThatBound(config.angles_rad, config.detectors, config.centers[0]);
  }
};

absl::StatusOr<Seen> LookAt(const ScannedObject& object, job::JobRun& run, RowPreparer& rows) {
  const TomographyLayout& layout = object.layout;
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout sparse, layout.Sparse(object.input->info()));
  const bool tries = !layout.tried().empty();
  const int64_t count = tries ? 1 : std::min(layout.slices(), kRowsLookedAt);
  Seen seen;
  seen.config = {.angles_rad = sparse.angles_rad(), .slices = count, .centers = {}};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slice =
        tries ? layout.center_slice() : (2 * i + 1) * layout.slices() / (2 * count);
    OCTAVO_ASSIGN_OR_RETURN(const PreparedRows prepared,
                            rows.Prepare(sparse, object.input, sparse.RowsOf(slice, 1), false));
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host,
                            run.device().AllocatePinned(prepared.shape.elements() * 4));
    const absl::Status copied = run.device().CopyToHost(run.stream(), host.data(), prepared.data,
                                                        prepared.shape.elements() * 4);
    OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
    OCTAVO_RETURN_IF_ERROR(copied);
    run.Free(prepared.data);
    seen.config.detectors = prepared.shape.detectors;
    seen.sinograms.insert(seen.sinograms.end(), host.as<float>(),
                          host.as<float>() + prepared.shape.elements());
    // The middle one of the axes tried.
    const size_t which = tries                        ? object.centers.size() / 2
                         : object.centers.size() == 1 ? 0
                                                      : static_cast<size_t>(slice);
    if (i == 0) seen.axis = object.centers[which];
    seen.config.centers.push_back(
        layout.UnjoinedCenter(layout.PreparedCenterOf(object.centers[which])));
  }
  return seen;
}

absl::Status LookBeside(const ScannedObject& object, job::JobRun& run, RowPreparer& rows) {
  OCTAVO_ASSIGN_OR_RETURN(const Seen seen, LookAt(object, run, rows));
  const Truncation truncation = FindTruncation(seen.config, seen.sinograms);
  if (!truncation.found) return absl::OkStatus();
  WarnOfAir(truncation, seen.bound(), seen.config.centers[0], seen.axis, object.layout,
            seen.config.detectors, run);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TomographyLayout> WidenedFor(const ScannedObject& object, double widest_support,
                                            job::JobRun& run, RowPreparer& rows) {
  const TomographyLayout& layout = object.layout;
  if (layout.back_projects()) {
    // The job needs no answer.
    const absl::Status looked = LookBeside(object, run, rows);
    if (absl::IsCancelled(looked) || absl::IsUnavailable(looked)) return looked;
    if (!looked.ok())
      run.Log(absl::StrCat("the ends of the detector were not looked at: ", looked.message()));
    return layout;
  }
  if (widest_support <= 1) return layout;
  OCTAVO_ASSIGN_OR_RETURN(Seen seen, LookAt(object, run, rows));
  const BoundingEnds ends = seen.bound();
  seen.config.left = ends.left;
  seen.config.right = ends.right;
  const Truncation truncation = FindTruncation(seen.config, seen.sinograms);
  if (!truncation.found) return layout;
  const double support = std::min(truncation.width, widest_support);
  run.Warn(
      absl::StrFormat("%s The iterations have %.2f times the usual width, a place for what lies "
                      "outside, and the slices are cut to the usual "
                      "circle; their level is less certain than that of an object that is seen as "
                      "a whole. Give padding or mask_ratio to choose.",
                      Where(truncation), support));
  return layout.Widened(support);
}

}  // namespace octavo::tomography
