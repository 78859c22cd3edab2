#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"

#include "gpu/tomography/center.h"

// The rotation axis, found by one method and looked at by another: no single method is right for
// every scan.
namespace octavo::inline gpu {

struct AxisConfig {
  CenterConfig
      search;  // with the range that is asked for; search.method counts unless it is automatic
  bool automatic = false;  // pairs, and where they do not say enough, vo
  double agreement = 1;    // pixels that two methods may differ by, > 0
};

/// An axis that no method but one puts there is in doubt; what is found counts all the same, and
/// the caller decides.
struct AxisResult {
  CenterResult found;  // by vo in place of pairs: as uncertain as those were, and not determined
  CenterMethod method = CenterMethod::kPairs;
  /// Where the second method puts it; empty if none could look.
  std::optional<double> check;
  CenterMethod check_method = CenterMethod::kPairs;
  /// The second method agrees, and the best is not at an end of the search. Nor is one that pairs
  /// know to 0.4 pixels or worse.
  bool agreed = false;
  bool widened = false;  // looked for beyond the range that was asked for as well
  bool outside = false;  // and found there
};

/// Device memory that FindAxis takes, in bytes; InvalidArgument naming the field.
absl::StatusOr<int64_t> FindAxisBytes(const AxisConfig& config, Device& device);
/// As FindCenter. Where two methods differ, or the best is at an end of the search, once more with
/// a wider one, and a third method.
absl::StatusOr<AxisResult> FindAxis(StreamRef stream, const AxisConfig& config,
                                    const CenterInput& input, Device& device);

/// How FindAxis goes about it, whatever finds: for tests.
using CenterSearch = std::function<absl::StatusOr<CenterResult>(const CenterConfig&)>;
absl::StatusOr<AxisResult> FindAxisWith(const AxisConfig& config, const CenterSearch& search);

}  // namespace octavo::inline gpu
