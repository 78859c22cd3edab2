#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace octavo::cli {

/// The error of a command line, for people: the wrong word, its probable meaning, the allowed
/// words, and how to get help.
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace octavo::cli
