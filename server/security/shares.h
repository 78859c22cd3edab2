#pragma once

#include <cstdint>
#include <string>

#include "server/security/owner.h"

namespace octavo::security {

/// Whose share of a table's places an object of this owner takes. A principal has at most half of
/// them (HalfOf, rounded up), so that it cannot keep others out. Empty = no limit: the server's
/// own, and those of admins.
inline std::string ShareOf(const Owner& owner) {
  return owner.role == Role::kAdmin ? std::string() : owner.name;
}

/// Half of the places, one at least.
constexpr int HalfOf(int64_t most) { return static_cast<int>((most + 1) / 2); }

}  // namespace octavo::security
