#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/pattern/pattern.h"

namespace octavo::volume {

/// Where the A-scans of a volume lie, for a later process. How the scanner got there (flyback,
/// warp, limits) is not in it.
nlohmann::json PatternJson(const pattern::Pattern& pattern);
/// The pattern as PatternJson told it, resolved. DataLoss names the member that is missing or makes
/// no pattern.
absl::StatusOr<pattern::Pattern> PatternFromJson(const nlohmann::json& json);

}  // namespace octavo::volume
