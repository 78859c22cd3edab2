#include "gpu/tomography/center.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/array/array_ops.h"
#include "gpu/base/status.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/internal.h"

namespace octavo::inline gpu {
namespace {

absl::Status Between(absl::string_view field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}
absl::Status Within(absl::string_view field, double value, bool ok, absl::string_view allowed) {
  if (std::isfinite(value) && ok) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", allowed));
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
  OCTAVO_RETURN_IF_ERROR(Between("slices", c.slices, 1, 4096));
  OCTAVO_RETURN_IF_ERROR(Between("detectors", c.detectors, 8, 32768));
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
    OCTAVO_RETURN_IF_ERROR(Between("drop", c.drop, 0, 1024));
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

absl::StatusOr<CenterResult> CenterFinder::Run(const CenterInput& input) {
  goes_on_ = input.goes_on;
  if (config_.method == CenterMethod::kPhaseCorrelation) return PhaseCorrelation(input);
  if (config_.method == CenterMethod::kPairs) return Pairs(input);
  OCTAVO_ASSIGN_OR_RETURN(const Doubles sinogram, MeanSinogram(input));
  return config_.method == CenterMethod::kVo ? Vo(sinogram) : Entropy(sinogram);
}

absl::Status CenterFinder::NotFinite() { return InvalidField("data", "is not finite everywhere"); }

absl::StatusOr<CenterFinder::Doubles> CenterFinder::MeanSinogram(const CenterInput& input) {
  const int64_t outer = input.angle_first ? angles() : config_.slices,
                count = (input.angle_first ? config_.slices : angles()) * config_.detectors;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer part, device_.AllocatePinned(count * kFloat));
  Doubles mean(static_cast<size_t>(angles() * config_.detectors), 0.0);
  for (int64_t i = 0; i < outer; ++i) {
    OCTAVO_RETURN_IF_ERROR(Download(part.data(), input.data + i * count, count * kFloat));
    for (int64_t k = 0; k < count; ++k) {
      const float value = part.as<float>()[k];
      if (!math::IsFinite(value)) return NotFinite();
      const int64_t to = input.angle_first ? i * config_.detectors + k % config_.detectors : k;
      mean[static_cast<size_t>(to)] +=
          static_cast<double>(value) / static_cast<double>(config_.slices);
    }
  }
  return mean;
}

absl::StatusOr<int64_t> FindCenterBytes(const CenterConfig& c, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(c));
  if (c.method == CenterMethod::kPhaseCorrelation || c.method == CenterMethod::kPairs) {
    const int64_t length = CenterFinder::PairLength(c.detectors),
                  pairs = CenterFinder::PairsOf(c.slices);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t work,
                            device.arrays().PrepareFft({.n = length, .rows = pairs}));
    return pairs * length * static_cast<int64_t>(sizeof(ComplexF)) + std::max<int64_t>(work, 256);
  }
  OCTAVO_ASSIGN_OR_RETURN(const HalfTurn turn, OneHalfTurn(c.angles_rad));
  const auto angles = static_cast<int64_t>(turn.rows.size());
  if (c.method == CenterMethod::kVo) {
    // The fine search takes the most; transforms of its size may want as much again.
    const int64_t batch = CenterFinder::JoinsAtOnce(angles, c.detectors), rows = 2 * angles;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t a,
                            device.arrays().PrepareFft({.n = c.detectors, .rows = batch * rows}));
    OCTAVO_ASSIGN_OR_RETURN(const int64_t b,
                            device.arrays().PrepareFft({.n = rows, .rows = batch * c.detectors}));
    return 2 * angles * c.detectors * CenterFinder::kFloat +
           2 * batch * CenterFinder::JoinedBytes(angles, c.detectors) + batch * kWedgeParts * 8 +
           std::max<int64_t>({a, b, 256});
  }
  // The fine search about the middle has the largest images.
  int64_t most = 0;
  for (const int64_t columns : {CenterFinder::kCoarseColumns, CenterFinder::kFineColumns}) {
    const double middle = 0.5 * static_cast<double>(c.detectors - 1);
    const CenterFinder::TrialGrid grid =
        CenterFinder::GridFor(c, CenterFinder::BinFor(c, columns), middle, middle);
    const int64_t at_once = CenterFinder::TrialsAtOnce(c, grid, angles), size = 2 * grid.radius + 1;
    std::vector<double> centers;
    for (int64_t k = 0; k < at_once; ++k) centers.push_back(static_cast<double>(k));
    OCTAVO_ASSIGN_OR_RETURN(
        const int64_t trial,
        Reconstructor::DeviceBytes(CenterFinder::TrialConfig(c, grid, turn.angles_rad, centers),
                                   device));
    most = std::max(
        most,
        at_once * (angles * (c.detectors / grid.bin) + size * size) * CenterFinder::kFloat + trial);
  }
  return most;
}

absl::StatusOr<CenterResult> FindCenter(StreamRef stream, const CenterConfig& config,
                                        const CenterInput& input, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(config));
  if (input.data == nullptr) return InvalidField("data", "is missing");
  return CenterFinder(stream, config, device).Run(input);
}

}  // namespace octavo::inline gpu
