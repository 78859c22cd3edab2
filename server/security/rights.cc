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

bool IsChangeableBy(const Principal& caller, const Owner& owner) {
  if (caller.role == Role::kAdmin || owner.name.empty()) return true;
  if (!owner.project.empty() && owner.project == caller.project) return true;
  switch (caller.proof) {
    case Proof::kToken:
    case Proof::kCertificate: return caller.name == owner.name;
    case Proof::kSocketUser: return caller.name == owner.name || IsWithoutIdentity(owner.name);
    case Proof::kNone:
      return !caller.name.empty() && (IsWithoutIdentity(owner.name) || owner.name == OwnUser());
  }
  return false;
}

absl::Status MayChange(const Principal& caller, const Owner& owner, absl::string_view object) {
  if (IsChangeableBy(caller, owner)) return absl::OkStatus();
  ErrorInfo info{
      .reason = Reason::kNotOwner,
      .field = "",
      .numbers = {{"object", std::string(object)}, {"owner", owner.name}, {"caller", caller.name}}};
  if (!owner.project.empty()) info.numbers.emplace_back("project", owner.project);
  return WithInfo(
      absl::PermissionDeniedError(absl::StrCat(
          object, " belongs to ", Described(owner.name, owner.project), "; the caller is ",
          Described(caller.name.empty() ? "nobody" : caller.name, caller.project),
          caller.found.empty() ? "" : absl::StrCat(", found by ", caller.found),
          "; allowed to change it are its owner, ",
          owner.project.empty() ? "" : "callers of its project, ", "and admins")),
      info);
}

}  // namespace octavo::security
