#include "server/security/role.h"

namespace octavo::security {

absl::string_view Name(Role role) {
  switch (role) {
    case Role::kNone: return "none";
    case Role::kViewer: return "viewer";
    case Role::kOperator: return "operator";
    case Role::kAdmin: return "admin";
  }
  return "none";
}

std::optional<Role> RoleNamed(absl::string_view name) {
  for (const Role role : {Role::kNone, Role::kViewer, Role::kOperator, Role::kAdmin}) {
    if (Name(role) == name) return role;
  }
  return std::nullopt;
}

}  // namespace octavo::security
