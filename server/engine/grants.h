#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/buffer_types.h"
#include "server/security/grant_book.h"

namespace octavo::engine {

struct Components;

struct GrantRequest {
  std::string object;  // empty = all that the caller makes
  std::string grantee;
  double seconds = 0;  // from now on; 0 = kUsualSeconds
};

/// Grants of objects of the engine: the engine's part for AccessService. It finds whose an object
/// is, and asks whether the caller may grant it; the book (grant_book.h) keeps what was granted.
class Grants {
 public:
  static constexpr double kUsualSeconds = 30 * 86'400.0, kLongestSeconds = 365 * 86'400.0;

  explicit Grants(Components* components) : components_(*components) {}

  /// InvalidArgument (object, grantee, ttl), NotFound (NO_SCAN, NO_VOLUME, NO_JOB, NO_BUFFER),
  /// errors of MayGrant and of GrantBook::Put. Call from a thread that may wait for a disk.
  absl::StatusOr<security::Grant> Create(const GrantRequest& request, const model::Caller& caller);
  /// For the owner, the grantee and admins. Errors of GrantBook::Remove; PermissionDenied
  /// (NOT_OWNER). Call from a thread that may wait for a disk.
  absl::StatusOr<security::Grant> Revoke(const std::string& name,
                                         const security::Principal& caller);
  /// As GrantBook::List.
  std::vector<security::Grant> List(uint64_t after = 0,
                                    size_t most = std::numeric_limits<size_t>::max()) const;
  security::GrantBook& book();

 private:
  /// Whose the object is. NotFound; PermissionDenied for a private buffer without its key.
  absl::StatusOr<security::Owner> OwnerOf(const std::string& object, const model::Caller& caller);

  Components& components_;
};

}  // namespace octavo::engine
