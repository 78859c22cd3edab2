#include "server/engine/grants.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/engine/internal.h"
#include "server/security/rights.h"
#include "server/security/token.h"
#include "server/volume/left_memory.h"

namespace octavo::engine {
namespace {

/// An error about the name of an object, which this request has in its field `object`.
absl::Status AtObject(const absl::Status& status) {
  ErrorInfo info = InfoOf(status);
  info.field = "object";
  return WithInfo(status, info);
}

absl::Status CheckForm(const GrantRequest& request) {
  if (!request.object.empty() && !security::IsGrantable(request.object))
    return FieldNotAllowed("object", absl::StrCat("'", request.object, "'"),
                           "scans/..., jobs/..., volumes/..., buffers/..., or nothing for all");
  if (request.grantee == "loopback" || request.grantee == "remote")
    return InvalidField("grantee",
                        absl::StrCat("is '", request.grantee,
                                     "', which is no identity: whoever connects without one is it; "
                                     "allowed is the name of a token, a certificate or a user"));
  if (!security::CouldBeGrantee(request.grantee))
    return FieldNotAllowed("grantee", absl::StrCat("'", request.grantee, "'"),
                           absl::StrCat("the name of a principal as GetInfo says it: of a token (",
                                        security::kTokenNameRule,
                                        "), uid:<number>, or a name in a certificate (cn:..., "
                                        "email:..., dns:..., uri:..., sha256:...)"));
  if (request.seconds == 0) return absl::OkStatus();
  return InRange("ttl", request.seconds, 1.0, Grants::kLongestSeconds);
}

}  // namespace

absl::StatusOr<security::Owner> Grants::OwnerOf(const std::string& object,
                                                const model::Caller& caller) {
  if (absl::StartsWith(object, "buffers/")) {
    OCTAVO_ASSIGN_OR_RETURN(const model::BufferStatus buffer,
                            components_.buffers.Get(object, caller));
    return buffer.owner;
  }
  if (absl::StartsWith(object, "volumes/")) {
    OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, components_.volumes.Get(object));
    if (volume.state == model::VolumeState::kDiscarded)
      return volume::HasLeftMemory(object, std::string(model::Name(volume.state)), volume.reason);
    return volume.owner;
  }
  // Of a scan or a job of an earlier daemon, volumes may be on the disk.
  if (absl::StartsWith(object, "jobs/")) {
    if (const job::JobStatus* const earlier = components_.earlier.FindJob(object);
        earlier != nullptr)
      return security::OwnerOf(earlier->spec.caller.principal);
    OCTAVO_ASSIGN_OR_RETURN(const job::JobStatus job, components_.jobs.Get(object));
    return security::OwnerOf(job.spec.caller.principal);
  }
  if (const model::ScanStatus* const earlier = components_.earlier.FindScan(object);
      earlier != nullptr)
    return earlier->spec.owner;
  OCTAVO_ASSIGN_OR_RETURN(const auto scan, components_.scans.Find(object));
  return scan->owner();
}

absl::StatusOr<security::Grant> Grants::Create(const GrantRequest& request,
                                               const model::Caller& caller) {
  OCTAVO_RETURN_IF_ERROR(CheckForm(request));
  security::Owner owner = security::OwnerOf(caller.principal);
  std::string words = "what this caller makes";
  if (!request.object.empty()) {
    auto found = OwnerOf(request.object, caller);
    if (!found.ok()) return AtObject(found.status());
    owner = *std::move(found);
    words = request.object;
  }
  OCTAVO_RETURN_IF_ERROR(security::MayGrant(caller.principal, owner, words));
  if (request.grantee == owner.name)
    return InvalidField(
        "grantee", absl::StrCat("is '", request.grantee, "', whose name is that of the owner: ",
                                "the owner needs no grant; allowed is another principal"));
  const double seconds = request.seconds == 0 ? kUsualSeconds : request.seconds;
  OCTAVO_ASSIGN_OR_RETURN(
      security::Grant grant,
      components_.grants.Put(owner, request.object, request.grantee,
                             static_cast<int64_t>(std::llround(seconds * 1e9))));
  Log(LogLevel::kInfo, "granted",
      {{"grant", grant.name},
       {"object", grant.object.empty() ? "all" : grant.object},
       {"owner", owner.name},
       {"grantee", grant.grantee},
       {"principal", caller.principal.name},
       {"seconds", seconds}});
  return grant;
}

absl::StatusOr<security::Grant> Grants::Revoke(const std::string& name,
                                               const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(security::Grant grant,
                          components_.grants.Remove(name, [&](const security::Grant& grant) {
                            return security::MayRevoke(caller, grant);
                          }));
  Log(LogLevel::kInfo, "grant taken back",
      {{"grant", grant.name}, {"grantee", grant.grantee}, {"principal", caller.name}});
  return grant;
}

std::vector<security::Grant> Grants::List(uint64_t after, size_t most) const {
  return components_.grants.List(after, most);
}

security::GrantBook& Grants::book() { return components_.grants; }

}  // namespace octavo::engine
