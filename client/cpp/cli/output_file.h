#pragma once

#include <string>

namespace octavo::cli {

/// Checks that the file `path`, which `flag` names, can be written, before work whose result would
/// otherwise be lost. Does not change an existing file. Throws CLI::ValidationError.
void CheckWritable(const std::string& flag, const std::string& path);

}  // namespace octavo::cli
