#pragma once

#include <optional>
#include <string>

namespace octavo::cli {

/// What tomopy-cli allows for a setting, in words: "a number from 0 to 1"; nothing if `text` is
/// allowed, or if there is no setting of the name. Types and choices: tomopy_cli/config.py, whose
/// parser takes or refuses them; what cannot be meant (an energy of 0) is not allowed here, either.
std::optional<std::string> AllowedForTomopy(const std::string& name, const std::string& text);

}  // namespace octavo::cli
