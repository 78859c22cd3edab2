#pragma once

// Who may change what. Whoever may call a method at all (its role, rpc/transport/method_roles.h)
// may see every object: rights are about changes. An object may be changed by
//
//   its owner                 the principal of the same name
//   its project               principals of the owner's project, if that has a name
//   admins
//   whom its owner lets       by a grant of the object, of what made it, or of all (grant_book.h)
//   everybody with the role   if it is nobody's (no owner is known)
//
// TCP without a token proves nothing, but on one user's machine it is the same person as the Unix
// socket. So that nothing becomes harder there:
//
//   loopback and remote       share what they make: neither is an identity
//   users of the Unix socket  may change what callers without an identity made: they could call as
//                             such, too
//   callers without identity  may change what the user as whom octavod runs made over the socket;
//                             the role that listen.loopback_role gives them bounds it
//
// A grant is a matter between identities: callers without one neither give nor get any. Whoever
// may change an object because of a project or a grant cannot pass that on.
//
// The store that owns an object asks under its own lock, where it checks and acts. What the server
// does for itself (expiry, policies, its end) asks nobody.

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/security/grant.h"
#include "server/security/owner.h"
#include "server/security/principal.h"

namespace octavo::security {

/// Whose the objects are that a caller makes.
Owner OwnerOf(const Principal& caller);

/// The server itself, where it acts as a caller does: an admin whose name no client can have.
Principal ServerItself();

/// OK, or PermissionDenied (NOT_OWNER) that names the object, its owner, the caller and who may.
/// `parent`: whose grant covers this object, too: the scan or job of a volume, what an operation is
/// about; empty = nothing.
absl::Status MayChange(const Principal& caller, const Owner& owner, absl::string_view object,
                       absl::string_view parent = "");

/// The same without the words.
bool IsChangeableBy(const Principal& caller, const Owner& owner, absl::string_view object = "",
                    absl::string_view parent = "");

/// Whether this name of an owner is that of one who can be told from others.
bool IsIdentity(absl::string_view name);

/// Whether the caller may grant the object (in words: "scans/1", "every object of ada"): its owner,
/// by name and project (a principal of the same name in another project may be another person), and
/// admins. FailedPrecondition (NO_IDENTITY), PermissionDenied (NOT_OWNER).
absl::Status MayGrant(const Principal& caller, const Owner& owner, absl::string_view object);

/// Whether the caller may take the grant back: its owner, as for MayGrant, its grantee, which gives
/// it up, and admins. PermissionDenied (NOT_OWNER).
absl::Status MayRevoke(const Principal& caller, const Grant& grant);

}  // namespace octavo::security
