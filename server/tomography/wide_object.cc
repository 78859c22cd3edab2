#include "server/tomography/wide_object.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "gpu/tomography/truncation.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kRowsLookedAt = 5;  // spread over the slices

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

}  // namespace

absl::StatusOr<TomographyLayout> WidenedFor(const ScannedObject& object, double widest_support,
                                            job::JobRun& run, RowPreparer& rows) {
  const TomographyLayout& layout = object.layout;
  if (widest_support <= 1) return layout;
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout sparse, layout.Sparse(object.input->info()));
  const bool tries = !layout.tried().empty();
  const int64_t count = tries ? 1 : std::min(layout.slices(), kRowsLookedAt);
  TruncationConfig config{.angles_rad = sparse.angles_rad(), .slices = count, .centers = {}};
  std::vector<float> sinograms;
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
    config.detectors = prepared.shape.detectors;
    sinograms.insert(sinograms.end(), host.as<float>(),
                     host.as<float>() + prepared.shape.elements());
    // The middle one of the axes tried.
    const size_t which = tries                        ? object.centers.size() / 2
                         : object.centers.size() == 1 ? 0
                                                      : static_cast<size_t>(slice);
    config.centers.push_back(layout.UnjoinedCenter(layout.PreparedCenterOf(object.centers[which])));
  }
  const BoundingEnds ends = EndsThatBound(config.angles_rad, config.detectors, config.centers[0]);
  config.left = ends.left;
  config.right = ends.right;
  const Truncation truncation = FindTruncation(config, sinograms);
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
