// The axis of a scan over 360° with the axis near an edge, from the overlap of the two halves of
// the turn.

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/tomography/center.h"
#include "gpu/tomography/preprocess_ops.h"

namespace octavo::inline gpu {
namespace {

absl::Status Check(const OverlapConfig& c) {
  OCTAVO_RETURN_IF_ERROR(InRange("angles", c.angles, 2, 65535));
  OCTAVO_RETURN_IF_ERROR(InRange("slices", c.slices, 1, 4096));
  OCTAVO_RETURN_IF_ERROR(InRange("detectors", c.detectors, 8, 32768));
  if (c.half_turn != 0) OCTAVO_RETURN_IF_ERROR(InRange("half_turn", c.half_turn, 1, c.angles / 2));
  OCTAVO_RETURN_IF_ERROR(InRange("overlap_min", c.overlap_min, 2, c.detectors));
  if (c.overlap_max == 0) return absl::OkStatus();
  return InRange("overlap_max", c.overlap_max, c.overlap_min, c.detectors);
}
int64_t Overlaps(const OverlapConfig& c) {
  return (c.overlap_max == 0 ? c.detectors : c.overlap_max) - c.overlap_min + 1;
}

}  // namespace

absl::StatusOr<int64_t> FindOverlapBytes(const OverlapConfig& config, Device& device) {
  (void)device;
  OCTAVO_RETURN_IF_ERROR(Check(config));
  return Overlaps(config) * kHalvesParts * kHalvesSums * 8;
}

absl::StatusOr<OverlapResult> FindOverlap(StreamRef stream, const OverlapConfig& c,
                                          const CenterInput& input, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(c));
  if (!input.data) return InvalidField("data", "is missing");
  const HalvesSpec spec{.slices = c.slices,
                        .angles = c.angles,
                        .detectors = c.detectors,
                        .slice_stride = input.angle_first ? c.detectors : c.angles * c.detectors,
                        .angle_stride = input.angle_first ? c.slices * c.detectors : c.detectors,
                        .half_turn = c.half_turn == 0 ? c.angles / 2 : c.half_turn,
                        .first_overlap = c.overlap_min,
                        .overlaps = Overlaps(c),
                        .right = c.axis_right};
  const int64_t bytes = spec.overlaps * kHalvesParts * kHalvesSums * 8;
  OCTAVO_ASSIGN_OR_RETURN(SinogramOps* const ops, FindOperators<SinogramOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer sums, device.Allocate(bytes));
  OCTAVO_RETURN_IF_ERROR(ops->HalvesSums(stream, spec, input.data, sums.span<double>()));
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer parts, device.AllocatePinned(bytes));
  OCTAVO_RETURN_IF_ERROR(device.CopyToHost(stream, parts.data(), sums.data(), bytes));
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  std::vector<double> correlations;
  for (int64_t i = 0; i < spec.overlaps; ++i) {
    double total[kHalvesSums] = {};
    for (int64_t part = 0; part < kHalvesParts; ++part) {
      for (int64_t k = 0; k < kHalvesSums; ++k)
        total[k] += parts.as<double>()[(i * kHalvesParts + part) * kHalvesSums + k];
    }
    const auto count = static_cast<double>(spec.slices * spec.half_turn * (spec.first_overlap + i));
    const double a = total[2] - total[0] * total[0] / count,
                 b = total[3] - total[1] * total[1] / count;
    const double both = total[4] - total[0] * total[1] / count;
    if (!std::isfinite(both) || !std::isfinite(a) || !std::isfinite(b))
      return InvalidField("data", "is not finite everywhere");
    correlations.push_back(a > 0 && b > 0 ? both / std::sqrt(a * b) : -1);
  }
  const auto best = static_cast<size_t>(std::max_element(correlations.begin(), correlations.end()) -
                                        correlations.begin());
  OverlapResult result;
  result.overlap = static_cast<double>(spec.first_overlap + static_cast<int64_t>(best));
  result.correlation = correlations[best];
  result.at_edge = correlations.size() > 2 && (best == 0 || best + 1 == correlations.size());
  if (best > 0 && best + 1 < correlations.size()) {
    const double bend = correlations[best - 1] - 2 * correlations[best] + correlations[best + 1];
    if (bend < 0) result.overlap += 0.5 * (correlations[best - 1] - correlations[best + 1]) / bend;
  }
  const double center = 0.5 * (result.overlap - 1);
  result.center = c.axis_right ? static_cast<double>(c.detectors - 1) - center : center;
  return result;
}

}  // namespace octavo::inline gpu
