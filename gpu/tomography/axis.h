#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"

#include "gpu/tomography/center.h"

// Finds the rotation axis by one method and checks it by another, because no single method is right
// for every scan.
namespace octavo::inline gpu {

struct AxisConfig {
  CenterConfig search;     // holds the requested range; its method is used unless `automatic`
  bool automatic = false;  // use pairs, or vo if pairs do not determine the axis
  double agreement = 1;    // largest difference of two methods that agree, pixels, > 0
};

/// The result is in doubt if only one method finds the axis there. FindAxis still returns it, and
/// the caller decides.
struct AxisResult {
  CenterResult found;  // if vo replaced pairs: with the uncertainty of pairs, and not determined
  CenterMethod method = CenterMethod::kPairs;
  /// The axis that the second method finds; empty if no second method could run.
  std::optional<double> check;
  CenterMethod check_method = CenterMethod::kPairs;
  /// True if the second method agrees and the best centre is not at an end of the search. It is
  /// false for a result of pairs whose uncertainty is 0.4 pixels or more.
  bool agreed = false;
  bool widened = false;  // the search went beyond the requested range
  bool outside = false;  // the axis was found beyond it
};

/// The bytes of device memory that FindAxis takes. InvalidArgument names the field.
absl::StatusOr<int64_t> FindAxisBytes(const AxisConfig& config, Device& device);
/// Works as FindCenter. If two methods differ, or the best centre is at an end of the search, it
/// searches once more over a wider range and runs a third method.
absl::StatusOr<AxisResult> FindAxis(StreamRef stream, const AxisConfig& config,
                                    const CenterInput& input, Device& device);

/// The procedure of FindAxis with any search in place of FindCenter, for tests.
using CenterSearch = std::function<absl::StatusOr<CenterResult>(const CenterConfig&)>;
absl::StatusOr<AxisResult> FindAxisWith(const AxisConfig& config, const CenterSearch& search);

}  // namespace octavo::inline gpu
