#include "server/tomography/axis.h"

#include <cmath>
#include <numbers>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"

namespace octavo::tomography {
namespace {

constexpr double kKnown =
    0.2;  // columns: with a larger uncertainty the axis may be off by a quarter of a column
constexpr double kAlike = 0.5;  // correlation of two halves that show the same part
constexpr double kDegree = std::numbers::pi / 180;

}  // namespace

const char* NameOf(CenterMethod method) {
  static constexpr const char* kNames[] = {"vo", "entropy", "phase_correlation", "pairs"};
  return kNames[static_cast<int>(method)];
}

std::vector<std::string> DoubtsOf(const OverlapResult& overlap, const OverlapConfig& search) {
  std::vector<std::string> doubts;
  if (overlap.at_edge) {
    doubts.push_back(
        absl::StrFormat("The axis is in doubt: the halves fit best at an overlap of %.1f columns, "
                        "an end of the search from %d to %d. Give stitching.overlap.",
                        overlap.overlap, search.overlap_min,
                        search.overlap_max == 0 ? search.detectors : search.overlap_max));
  }
  if (overlap.correlation < kAlike) {
    doubts.push_back(
        absl::StrFormat("The axis is in doubt: the halves are hardly alike, correlation %.2f at an "
                        "overlap of %.1f columns. Is the axis near the side that "
                        "stitching.axis_right says?",
                        overlap.correlation, overlap.overlap));
  }
  return doubts;
}

absl::Status AtAxisField(const absl::Status& status) {
  if (!absl::StartsWith(InfoOf(status).field, "angles_rad"))
    return base::AtField("tomography.center.", status);
  const std::string advice = ". Give the axis in center.pixels, or look at a few with try_centers";
  return base::AtField("tomography.",
                       WithInfo(absl::Status(status.code(), absl::StrCat(status.message(), advice)),
                                InfoOf(status)));
}

AxisRemarks RemarksOn(const AxisResult& axis, double begin, double end, double span_rad) {
  AxisRemarks out;
  const CenterResult& found = axis.found;
  const char* const method = NameOf(axis.method);
  if (!axis.agreed) {
    const std::string where =
        absl::StrFormat("The axis is in doubt: %s puts it at column %.2f", method, found.center);
    const std::string ways = "Look at a few with try_centers, or give center.pixels.";
    const bool differ = axis.check.has_value() && std::abs(*axis.check - found.center) > 1e-9;
    if (found.at_edge) {
      out.doubts.push_back(absl::StrFormat(
          "%s, at the end of the search from %.2f to %.2f%s. %s", where, begin, end,
          differ ? absl::StrFormat("; %s at %.2f", NameOf(axis.check_method), *axis.check) : "",
          ways));
    } else if (differ && axis.check_method == axis.method) {
      out.doubts.push_back(absl::StrFormat(
          "%s of those searched, %.2f to %.2f, but at %.2f if all of the detector counts. %s",
          where, begin, end, *axis.check, ways));
    } else if (differ) {
      out.doubts.push_back(absl::StrFormat("%s, %s at %.2f. %s", where, NameOf(axis.check_method),
                                           *axis.check, ways));
    } else {
      out.doubts.push_back(
          absl::StrFormat("%s, and no second method could look at it. %s", where, ways));
    }
  }
  if (!found.determined) {
    out.doubts.push_back(
        absl::StrFormat("The axis at column %.2f is a guess: the projections half a turn apart are "
                        "hardly alike, about any axis. The object may have changed or "
                        "moved, or one row says too little.",
                        found.center));
  } else if (found.uncertainty > kKnown) {
    out.warnings.push_back(
        absl::StrFormat("The axis at column %.2f is known to %.2f columns only; more rows, or a "
                        "scan over a full turn, say more.",
                        found.center, found.uncertainty));
  }
  if (axis.outside) {
    out.warnings.push_back(
        absl::StrFormat("The axis, at column %.2f, lies outside of the search from %.2f to %.2f.",
                        found.center, begin, end));
  }
  if (found.fitting_span_rad > 0) {
    out.warnings.push_back(
        absl::StrFormat("The first and the last projections fit together far better if the scan "
                        "covers %.2f degrees, not %.2f as the angles say: look at the angles.",
                        found.fitting_span_rad / kDegree, span_rad / kDegree));
  }
  return out;
}

}  // namespace octavo::tomography
