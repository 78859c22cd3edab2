#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "server/security/owner.h"

namespace octavo::security {

/// The right to change an object of `owner`, for another principal. As octavo.v1.Grant.
struct Grant {
  std::string name;     // grants/<id>
  std::string object;   // scans/<id>, jobs/<id>, volumes/<id> or buffers/<id>; empty = all
  std::string grantee;  // name of the principal who may
  Owner owner;          // without a role
  int64_t created_unix_ns = 0, expires_unix_ns = 0;
  uint64_t number = 0;  // in the order in which they were granted, or granted anew

  /// Whether it gives the same to the same: one that is granted anew.
  bool IsSameAs(const Grant& other) const {
    return object == other.object && grantee == other.grantee && owner == other.owner;
  }
};

/// Whether a text has the form of the name of an object that can be granted.
bool IsGrantable(absl::string_view object);

/// Whether a principal could have this name and an identity: a name of a token, or one with its
/// kind ("uid:1000", "cn:Anna Berg").
bool CouldBeGrantee(absl::string_view name);

inline constexpr size_t kMostGranteeBytes = 272;  // a certificate's name, with its kind

}  // namespace octavo::security
