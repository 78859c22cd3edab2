#include "gpu/tomography/center.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/internal.h"

namespace octavo::inline gpu {
namespace {

absl::Status Within(absl::string_view field, double value, bool ok, absl::string_view allowed) {
  if (std::isfinite(value) && ok) return absl::OkStatus();
  return FieldNotAllowed(field, value, allowed);
}

absl::Status Check(const CenterConfig& c) {
  if (c.method != CenterMethod::kVo && c.method != CenterMethod::kEntropy &&
      c.method != CenterMethod::kPhaseCorrelation && c.method != CenterMethod::kPairs) {
    return InvalidField("method",
                        absl::StrCat("has the unknown value ", static_cast<int>(c.method)));
  }
  if (c.angles_rad.size() < 2 || c.angles_rad.size() > 65535) {
    return InvalidField("angles_rad",
                        absl::StrCat("has ", c.angles_rad.size(), " angles; allowed 2 to 65535"));
  }
  for (size_t i = 0; i < c.angles_rad.size(); ++i) {
    if (!std::isfinite(c.angles_rad[i]))
      return InvalidField(absl::StrCat("angles_rad[", i, "]"), "is not finite");
  }
  OCTAVO_RETURN_IF_ERROR(InRange("slices", c.slices, 1, 4096));
  OCTAVO_RETURN_IF_ERROR(InRange("detectors", c.detectors, 8, 32768));
  OCTAVO_RETURN_IF_ERROR(Within("search_min", c.search_min, true, "finite values"));
  OCTAVO_RETURN_IF_ERROR(Within("search_max", c.search_max, c.search_max >= c.search_min,
                                absl::StrCat("from search_min (", c.search_min, ") on")));
  const double half = 0.5 * static_cast<double>(c.detectors - 1);
  if (c.search_min > half || c.search_max < -half) {
    return InvalidField(c.search_min > half ? "search_min" : "search_max",
                        absl::StrCat("lies beyond the detector; allowed ", -half, " to ", half));
  }
  if (c.method == CenterMethod::kVo) {
    OCTAVO_RETURN_IF_ERROR(Within("fine_radius", c.fine_radius,
                                  c.fine_radius >= 1 && c.fine_radius <= half,
                                  absl::StrCat("1 to ", half)));
    OCTAVO_RETURN_IF_ERROR(Within("fine_step", c.fine_step,
                                  c.fine_step >= 0.05 && c.fine_step <= c.fine_radius,
                                  "0.05 to fine_radius"));
    OCTAVO_RETURN_IF_ERROR(Within("object_ratio", c.object_ratio,
                                  c.object_ratio > 0 && c.object_ratio <= 4, "above 0, up to 4"));
    OCTAVO_RETURN_IF_ERROR(InRange("drop", c.drop, 0, 1024));
    return OneHalfTurn(c.angles_rad).status();
  }
  OCTAVO_RETURN_IF_ERROR(
      Within("tolerance", c.tolerance, c.tolerance >= 0.01 && c.tolerance <= 1, "0.01 to 1"));
  if (c.method == CenterMethod::kEntropy) return OneHalfTurn(c.angles_rad).status();
  if (!Directions(c.angles_rad).Opposites(/*neighbours=*/2, /*most=*/1).empty())
    return absl::OkStatus();
  const auto [least, most] = std::minmax_element(c.angles_rad.begin(), c.angles_rad.end());
  return InvalidField(
      "angles_rad",
      absl::StrFormat("has %d angles over %.2f degrees, but no projections half a turn apart, nor "
                      "ends that are a step less "
                      "than that apart; allowed are such that have them",
                      c.angles_rad.size(), (*most - *least) * 180 / std::numbers::pi));
}

}  // namespace

std::pair<double, double> CenterSearchRange(const CenterConfig& c) {
  const double last = static_cast<double>(c.detectors - 1), middle = 0.5 * last;
  return {std::clamp(middle + c.search_min, 0.0, last),
          std::clamp(middle + c.search_max, 0.0, last)};
}

absl::Status CenterSearch::NotFinite() { return InvalidField("data", "is not finite everywhere"); }

absl::StatusOr<CenterSearch::Doubles> CenterSearch::MeanSinogram() const {
  const int64_t outer = input_.angle_first ? angles() : config_.slices,
                count = (input_.angle_first ? config_.slices : angles()) * config_.detectors;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer part, device_.AllocatePinned(count * kFloat));
  Doubles mean(static_cast<size_t>(angles() * config_.detectors), 0.0);
  for (int64_t i = 0; i < outer; ++i) {
    OCTAVO_RETURN_IF_ERROR(Download(part.span<float>(), input_.data.From(i * count).First(count)));
    for (int64_t k = 0; k < count; ++k) {
      const float value = part.as<float>()[k];
      if (!math::IsFinite(value)) return NotFinite();
      const int64_t to = input_.angle_first ? i * config_.detectors + k % config_.detectors : k;
      mean[static_cast<size_t>(to)] +=
          static_cast<double>(value) / static_cast<double>(config_.slices);
    }
  }
  return mean;
}

absl::StatusOr<int64_t> FindCenterBytes(const CenterConfig& c, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(c));
  OCTAVO_ASSIGN_OR_RETURN(ArrayOps* const arrays, FindOperators<ArrayOps>(device));
  switch (c.method) {
    case CenterMethod::kVo: return VoBytes(c, *arrays);
    case CenterMethod::kEntropy: return EntropyBytes(c, device);
    case CenterMethod::kPhaseCorrelation:
    case CenterMethod::kPairs: return OppositeSearch::DeviceBytes(c, *arrays);
  }
  return absl::InternalError("no such method");
}

absl::StatusOr<CenterResult> FindCenter(StreamRef stream, const CenterConfig& config,
                                        const CenterInput& input, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(config));
  if (!input.data) return InvalidField("data", "is missing");
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  const CenterRequest request{
      .stream = stream, .config = config, .input = input, .device = device, .families = families};
  switch (config.method) {
    case CenterMethod::kVo: return SearchByVo(request);
    case CenterMethod::kEntropy: return SearchByEntropy(request);
    case CenterMethod::kPhaseCorrelation: return SearchByPhase(request);
    case CenterMethod::kPairs: return SearchByPairs(request);
  }
  return absl::InternalError("no such method");
}

}  // namespace octavo::inline gpu
