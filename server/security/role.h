#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace octavo::security {

/// What a caller may do. Each role may do what those before it may.
enum class Role : uint8_t {
  kNone = 0,      // nothing
  kViewer = 1,    // see: lists, streams, pictures, volumes; changes nothing
  kOperator = 2,  // acquire and process: scans, volumes, jobs, buffers
  kAdmin = 3      // all
};

/// "none", "viewer", "operator", "admin".
absl::string_view Name(Role role);
/// Nothing if no role has this name.
std::optional<Role> RoleNamed(absl::string_view name);

}  // namespace octavo::security
