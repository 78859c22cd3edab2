#pragma once

#include <string>

#include "client/cpp/terminal.h"

namespace octavo::cli {

/// Writes an 8-bit grey PNG; returns an empty string or what went wrong.
std::string WritePng(const std::string& path, const Grey& image);

}  // namespace octavo::cli
