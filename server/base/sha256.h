#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace octavo::base {

/// The SHA-256 of the bytes: 32 bytes, not text.
std::string Sha256(absl::string_view bytes);

}  // namespace octavo::base
