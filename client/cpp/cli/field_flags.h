#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace octavo::cli {

/// The flags, in the command that `app` has reached, for the contract's fields in an answer of the
/// server: for the field at fault and for those named in the text. " (--radians)", "
/// (ignore_fields: --transmissions, logarithm: --no-log)"; empty if none.
std::string FlagsFor(const CLI::App* app, const std::string& field, const std::string& text);

}  // namespace octavo::cli
