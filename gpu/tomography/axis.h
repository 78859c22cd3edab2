#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"

#include "gpu/tomography/center.h"

// Finds the rotation axis by one method and checks it by another, because no single method is right
// for every scan.
namespace octavo::inline gpu {

struct AxisConfig {
  CenterConfig
      search;  // with the range that is asked for; search.method counts unless it is automatic
  bool automatic = false;  // pairs, and where they do not say enough, vo
  double agreement = 1;    // pixels that two methods may differ by, > 0
};

/// The result is in doubt if only one method finds the axis there. It is returned all the same, and
/// the caller decides.
struct AxisResult {
  CenterResult found;  // by vo in place of pairs: as uncertain as those were, and not determined
  CenterMethod method = CenterMethod::kPairs;
  /// The axis that the second method finds; empty if no second method could run.
  std::optional<double> check;
  CenterMethod check_method = CenterMethod::kPairs;
  /// True if the second method agrees and the best centre is not at an end of the search. It is
  /// false for a result of pairs whose uncertainty is 0.4 pixels or more.
  bool agreed = false;
  bool widened = false;  // looked for beyond the range that was asked for as well
  bool outside = false;  // and found there
};

/// Device memory that FindAxis takes, in bytes; InvalidArgument naming the field.
absl::StatusOr<int64_t> FindAxisBytes(const AxisConfig& config, Device& device);
/// As FindCenter. If two methods differ, or the best centre is at an end of the search, it searches
/// once more over a wider range and runs a third method.
absl::StatusOr<AxisResult> FindAxis(StreamRef stream, const AxisConfig& config,
                                    const CenterInput& input, Device& device);

/// How FindAxis goes about it, whatever finds: for tests.
using CenterSearch = std::function<absl::StatusOr<CenterResult>(const CenterConfig&)>;
absl::StatusOr<AxisResult> FindAxisWith(const AxisConfig& config, const CenterSearch& search);

}  // namespace octavo::inline gpu
