#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace octavo::cli {

/// What is wrong with a command line, for people: which word, what it was probably meant to be,
/// what is allowed, and where help is.
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace octavo::cli
