#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octavo {

/// Refuses texts that are dangerous for the TOML parser: the parser recurses once for every level
/// of tables, so a key of thousands of parts would overflow the stack. A configuration needs at
/// most 1 MiB, keys of at most 8 parts, brackets at most 4 deep, no list in a list and no list of
/// tables. InvalidArgument names the line and what is allowed. A text that passes may still be
/// invalid TOML.
inline constexpr size_t kMostConfigBytes = 1 << 20;
absl::Status CheckConfigText(absl::string_view text);

}  // namespace octavo
