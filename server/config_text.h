#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octavo {

/// Refuses texts that the TOML parser must not see, before it sees them: it recurses once for every
/// level of tables, so that a key of thousands of parts ends in a stack overflow. A configuration
/// needs at most 1 MiB, keys of at most 8 parts, brackets at most 4 deep, no list in a list and no
/// list of tables. InvalidArgument names the line and what is allowed. A text that passes may still
/// be no TOML.
inline constexpr size_t kMostConfigBytes = 1 << 20;
absl::Status CheckConfigText(absl::string_view text);

}  // namespace octavo
