#pragma once

#include <string>
#include <sys/stat.h>

namespace octavo::storage {

enum class RootToo { kNo, kYes };

/// Why a folder or file is not one that only the user of this process may write: its path, owner or
/// mode, what is allowed, and the command that mends it. Empty: it is one. `mode`: what chmod would
/// be told. `root`: whether one that belongs to root is one, too.
std::string WhyNotOwn(const struct stat& info, const std::string& path, const char* mode,
                      RootToo root = RootToo::kNo);

}  // namespace octavo::storage
