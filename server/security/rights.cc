#include "server/security/rights.h"

#include <string>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::security {
namespace {

bool IsWithoutIdentity(absl::string_view name) { return name == "loopback" || name == "remote"; }

/// As whom octavod runs, as the Unix socket would name that user.
const std::string& OwnUser() {
  static const std::string* const user = new std::string(absl::StrCat("uid:", ::geteuid()));
  return *user;
}

std::string Described(absl::string_view name, const std::string& project) {
  return project.empty() ? std::string(name) : absl::StrCat(name, " (project ", project, ")");
}

std::string Described(const Principal& caller) {
  return absl::StrCat(Described(caller.name.empty() ? "nobody" : caller.name, caller.project),
                      caller.found.empty() ? "" : absl::StrCat(", found by ", caller.found));
}

/// NOT_OWNER; `allowed`: who may, in words.
absl::Status NotOwner(const Principal& caller, const Owner& owner, absl::string_view object,
                      absl::string_view allowed) {
  ErrorInfo info{
      .reason = Reason::kNotOwner,
      .field = "",
      .numbers = {{"object", std::string(object)}, {"owner", owner.name}, {"caller", caller.name}}};
  if (!owner.project.empty()) info.numbers.emplace_back("project", owner.project);
  return WithInfo(absl::PermissionDeniedError(
                      absl::StrCat(object, " belongs to ", Described(owner.name, owner.project),
                                   "; the caller is ", Described(caller), "; ", allowed)),
                  info);
}

absl::Status NoIdentity(absl::string_view text) {
  return WithInfo(absl::FailedPreconditionError(text),
                  {.reason = Reason::kNoIdentity, .field = "", .numbers = {}});
}

}  // namespace

Owner OwnerOf(const Principal& caller) {
  return {.name = caller.name, .project = caller.project, .role = caller.role};
}

Principal ServerItself() {
  return {.name = "octavod:itself",
          .role = Role::kAdmin,
          .project = "",
          .proof = Proof::kNone,
          .token_id = "",
          .found = "the server itself"};
}

bool IsChangeableBy(const Principal& caller, const Owner& owner, absl::string_view object,
                    absl::string_view parent) {
  if (caller.role == Role::kAdmin || owner.name.empty()) return true;
  if (!owner.project.empty() && owner.project == caller.project) return true;
  if (caller.granted != nullptr && caller.granted->Cover(owner, object, parent)) return true;
  switch (caller.proof) {
    case Proof::kToken:
    case Proof::kCertificate: return caller.name == owner.name;
    case Proof::kSocketUser: return caller.name == owner.name || IsWithoutIdentity(owner.name);
    case Proof::kNone:
      return !caller.name.empty() && (IsWithoutIdentity(owner.name) || owner.name == OwnUser());
  }
  return false;
}

absl::Status MayChange(const Principal& caller, const Owner& owner, absl::string_view object,
                       absl::string_view parent) {
  if (IsChangeableBy(caller, owner, object, parent)) return absl::OkStatus();
  return NotOwner(
      caller, owner, object,
      absl::StrCat("allowed to change it are its owner, ",
                   owner.project.empty() ? "" : "callers of its project, ", "and admins",
                   IsIdentity(owner.name)
                       ? "; its owner or an admin may let others change it by a grant (CreateGrant)"
                       : ""));
}

bool IsIdentity(absl::string_view name) { return !name.empty() && !IsWithoutIdentity(name); }

absl::Status MayGrant(const Principal& caller, const Owner& owner, absl::string_view object) {
  const bool admin = caller.role == Role::kAdmin;
  if (!admin && (caller.proof == Proof::kNone || !IsIdentity(caller.name)))
    return NoIdentity(
        absl::StrCat("a grant is of a caller with an identity, and this one is ", Described(caller),
                     "; allowed are a bearer token, a certificate or the Unix socket"));
  if (!IsIdentity(owner.name))
    return NoIdentity(absl::StrCat(
        object, owner.name.empty()
                    ? " is nobody's: every operator may change it without a grant"
                    : absl::StrCat(" is of a caller without an identity (", owner.name,
                                   "): nobody can grant it; what such callers make is all of "
                                   "theirs together, and of the users of the Unix socket")));
  if (admin || OwnerOf(caller) == owner) return absl::OkStatus();
  return NotOwner(caller, owner, object,
                  "allowed to grant it are its owner (of the same name and project) and admins");
}

absl::Status MayRevoke(const Principal& caller, const Grant& grant) {
  const bool has_identity = caller.proof != Proof::kNone;
  if (caller.role == Role::kAdmin ||
      (has_identity && (OwnerOf(caller) == grant.owner || caller.name == grant.grantee)))
    return absl::OkStatus();
  return NotOwner(caller, grant.owner, grant.name,
                  absl::StrCat("allowed to take it back are its owner (of the same name and "
                               "project), ",
                               grant.grantee, ", who has it, and admins"));
}

}  // namespace octavo::security
