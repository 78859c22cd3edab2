#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/pattern/pattern.h"

namespace octavo::engine {

/// Where the A-scans of a volume lie, for a later process. How the scanner got there (flyback, warp, limits) is not in it.
nlohmann::json PatternJson(const Pattern& pattern);
/// The pattern as PatternJson told it, resolved. DataLoss names the member that is missing or makes no pattern.
absl::StatusOr<Pattern> PatternFromJson(const nlohmann::json& json);

}  // namespace octavo::engine
