#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/pattern/pattern.h"

namespace octavo::volume {

/// Positions of a volume's A-scans, for a later process. Omits how the scanner reached them
/// (flyback, warp, limits).
nlohmann::json PatternJson(const pattern::Pattern& pattern);
/// Parses the output of PatternJson into a resolved pattern. DataLoss names the member that is
/// missing or does not describe a pattern.
absl::StatusOr<pattern::Pattern> PatternFromJson(const nlohmann::json& json);

}  // namespace octavo::volume
