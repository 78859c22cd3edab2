#include "gpu/tomography/axis.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr double kNear =
    8;  // pixels on either side of an axis; the range in which a second method searches
constexpr double kWide = 25;   // the same if pairs are not conclusive; the first method then
                               // searches this range once more
constexpr double kSharp = 1;   // pixels; an axis with a larger uncertainty decides nothing
constexpr double kSure = 0.4;  // part of the difference that is allowed between methods; a less
                               // certain axis may be off by more than that

class AxisFinder {
 public:
  AxisFinder(const AxisConfig& config, const CenterSearch& search)
      : config_(config), search_(search) {}

  absl::StatusOr<AxisResult> Run() {
    if (config_.automatic || config_.search.method == CenterMethod::kPairs) return ByPairs();
    return ByOther(config_.search.method);
  }

 private:
  double middle() const { return 0.5 * static_cast<double>(config_.search.detectors - 1); }
  CenterConfig Whole(CenterMethod method) const {
    CenterConfig c = config_.search;
    c.method = method;
    c.search_min = -middle();
    c.search_max = middle();
    return c;
  }
  CenterConfig About(CenterMethod method, double center, double radius) const {
    CenterConfig c = Whole(method);
    c.search_min = std::max(c.search_min, center - middle() - radius);
    c.search_max = std::min(c.search_max, center - middle() + radius);
    return c;
  }
  bool Near(double a, double b) const { return std::abs(a - b) <= config_.agreement; }
  static bool Settled(const CenterResult& r) {
    return r.determined && !r.at_edge && r.uncertainty <= kSharp;
  }
  bool OutsideAsked(double center) const {
    return center < middle() + config_.search.search_min - 1e-9 ||
           center > middle() + config_.search.search_max + 1e-9;
  }

  /// A search by another method. It has no result if the scan does not suit the method.
  absl::StatusOr<std::optional<CenterResult>> Other(const CenterConfig& config) {
    absl::StatusOr<CenterResult> found = search_(config);
    if (found.ok()) return *std::move(found);
    if (absl::IsInvalidArgument(found.status())) return std::nullopt;
    return found.status();
  }

  absl::StatusOr<AxisResult> ByPairs() {
    CenterConfig config = config_.search;
    config.method = CenterMethod::kPairs;
    OCTAVO_ASSIGN_OR_RETURN(CenterResult pairs, search_(config));
    if (config_.search.search_min <= -middle() && config_.search.search_max >= middle())
      return CheckPairs(std::move(pairs));
    // If the search range excludes the axis, its best place is wrong, and methods that search
    // around that place also find it likely. So the whole detector is searched, whatever was found
    // within the range.
    OCTAVO_ASSIGN_OR_RETURN(CenterResult wider, search_(Whole(CenterMethod::kPairs)));
    if (!OutsideAsked(wider.center)) {
      const bool at_edge = pairs.at_edge;
      OCTAVO_ASSIGN_OR_RETURN(AxisResult result, CheckPairs(std::move(pairs)));
      result.widened = at_edge;
      return result;
    }
    OCTAVO_ASSIGN_OR_RETURN(AxisResult widened, CheckPairs(wider));
    widened.widened = true;
    if (widened.agreed) {
      widened.outside = true;
      return widened;
    }
    return AxisResult{.found = std::move(pairs),
                      .method = CenterMethod::kPairs,
                      .check = wider.center,
                      .check_method = CenterMethod::kPairs,
                      .widened = true};
  }

  absl::StatusOr<AxisResult> CheckPairs(CenterResult pairs) {
    const auto agrees = [&](const std::optional<CenterResult>& other) {
      return other.has_value() && !other->at_edge && !pairs.at_edge &&
             Near(other->center, pairs.center);
    };
    AxisResult result{.found = pairs, .method = CenterMethod::kPairs, .check = std::nullopt};
    const auto check_by = [&](CenterMethod method, const CenterResult& other) {
      result.check = other.center;
      result.check_method = method;
    };
    OCTAVO_ASSIGN_OR_RETURN(const auto entropy,
                            Other(About(CenterMethod::kEntropy, pairs.center, kNear)));
    if (entropy.has_value()) check_by(CenterMethod::kEntropy, *entropy);
    result.agreed = agrees(entropy);
    // All methods use the same few projections, so they may agree on an axis that none of them
    // determines. 2.5 standard deviations.
    const bool settled = Settled(pairs),
               sure = settled && pairs.uncertainty <= kSure * config_.agreement;
    if (result.agreed && sure) return result;
    // Near a place that pairs found by chance, another method may find it by the same chance. Its
    // agreement means more if it started from farther away.
    OCTAVO_ASSIGN_OR_RETURN(const auto vo,
                            Other(About(CenterMethod::kVo, pairs.center, settled ? kNear : kWide)));
    result.agreed = sure && agrees(vo);
    if (!agrees(vo)) {
      if (vo.has_value() && !entropy.has_value()) check_by(CenterMethod::kVo, *vo);
      return result;
    }
    check_by(CenterMethod::kVo, *vo);
    if (settled || !config_.automatic) return result;
    // Pairs are not conclusive. The other method uses more of the projections, but is not certain
    // either.
    AxisResult by_vo{.found = *vo,
                     .method = CenterMethod::kVo,
                     .check = pairs.center,
                     .check_method = CenterMethod::kPairs};
    by_vo.found.determined = false;
    by_vo.found.uncertainty = pairs.uncertainty;
    return by_vo;
  }

  absl::StatusOr<AxisResult> ByOther(CenterMethod method) {
    OCTAVO_ASSIGN_OR_RETURN(CenterResult found, search_(config_.search));
    AxisResult result{.found = found, .method = method, .check = std::nullopt};
    OCTAVO_ASSIGN_OR_RETURN(const std::optional<CenterResult> pairs,
                            Other(Whole(CenterMethod::kPairs)));
    if (pairs.has_value()) result.check = pairs->center;
    result.agreed = pairs.has_value() && Near(pairs->center, found.center) && !found.at_edge;
    if (result.agreed) return result;
    if (pairs.has_value() && Settled(*pairs)) {
      OCTAVO_ASSIGN_OR_RETURN(const CenterResult again,
                              search_(About(method, pairs->center, kWide)));
      result.widened = true;
      if (!Near(again.center, pairs->center) || again.at_edge) return result;
      result.found = again;
      result.outside = OutsideAsked(again.center);
      result.agreed = true;
      return result;
    }
    if (found.at_edge) return result;
    const CenterMethod third =
        method == CenterMethod::kEntropy ? CenterMethod::kVo : CenterMethod::kEntropy;
    OCTAVO_ASSIGN_OR_RETURN(const std::optional<CenterResult> other,
                            Other(About(third, found.center, kNear)));
    if (!other.has_value() || !Near(other->center, found.center) || other->at_edge) return result;
    result.check = other->center;
    result.check_method = third;
    result.agreed = true;
    return result;
  }

  const AxisConfig& config_;
  const CenterSearch& search_;
};

bool TakesPairs(const AxisConfig& config) {
  return config.automatic || config.search.method == CenterMethod::kPairs;
}

// Methods that use one slice get the first one, because a mean of several slices has less contrast.
CenterConfig OnOneSlice(CenterConfig config) {
  if (config.method == CenterMethod::kVo || config.method == CenterMethod::kEntropy)
    config.slices = 1;
  return config;
}

}  // namespace

absl::StatusOr<AxisResult> FindAxisWith(const AxisConfig& config, const CenterSearch& search) {
  return AxisFinder(config, search).Run();
}

absl::StatusOr<int64_t> FindAxisBytes(const AxisConfig& config, Device& device) {
  int64_t most = 0;
  for (const CenterMethod method : {CenterMethod::kPairs, CenterMethod::kPhaseCorrelation,
                                    CenterMethod::kEntropy, CenterMethod::kVo}) {
    CenterConfig c = config.search;
    const bool first = method == (TakesPairs(config) ? CenterMethod::kPairs : config.search.method);
    if (method == CenterMethod::kPhaseCorrelation && !first) continue;
    c.method = method;
    const absl::StatusOr<int64_t> bytes = FindCenterBytes(c, device);
    if (!bytes.ok() && (first || !absl::IsInvalidArgument(bytes.status()))) return bytes.status();
    if (bytes.ok()) most = std::max(most, *bytes);
  }
  return most;
}

absl::StatusOr<AxisResult> FindAxis(StreamRef stream, const AxisConfig& config,
                                    const CenterInput& input, Device& device) {
  if (!(config.agreement > 0)) return InvalidField("agreement", "must be above 0");
  return FindAxisWith(config, [&](const CenterConfig& c) {
    return FindCenter(stream, input.angle_first ? c : OnOneSlice(c), input, device);
  });
}

}  // namespace octavo::inline gpu
