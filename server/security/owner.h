#pragma once

#include <string>

#include "server/security/role.h"

namespace octavo::security {

/// To whom an object belongs: who made it, at that time. A plain value: it goes with specs into the
/// records of what they make, and never changes.
struct Owner {
  std::string name;         // of the principal; empty: nobody's, as what was found on a disk may be
  std::string project;      // of the principal; may be empty
  Role role = Role::kNone;  // of the principal: what quota it has (memory/quota.h)
  /// Whether it is the same one, in whichever role.
  bool operator==(const Owner& other) const {
    return name == other.name && project == other.project;
  }
};

}  // namespace octavo::security
