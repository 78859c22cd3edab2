#pragma once

#include <string>

namespace octavo::cli {

/// That the file `path`, which `flag` names, can be written: asked before work whose result would
/// be lost for it. What is there stays as it is. Throws CLI::ValidationError.
void CheckWritable(const std::string& flag, const std::string& path);

}  // namespace octavo::cli
