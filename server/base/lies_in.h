#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace octavo::base {

/// With links resolved, as far as the path exists.
std::string RealPathOf(const std::string& path);

/// Whether an absolute path is the folder or lies in it, by its text. A slash at the end of the
/// folder says nothing.
bool LiesIn(absl::string_view path, absl::string_view folder);

}  // namespace octavo::base
