#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace octavo::cli {

/// The flags of the command that `app` has reached for what an answer of the server speaks of,
/// whose words are fields of the contract: for the field at fault and those that the text names. "
/// (--radians)", " (ignore_fields: --transmissions, no_logarithm: --no-log)"; empty if none.
std::string FlagsFor(const CLI::App* app, const std::string& field, const std::string& text);

}  // namespace octavo::cli
