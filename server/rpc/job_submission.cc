#include "server/rpc/job_submission.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"

namespace octavo::rpc {
namespace {

absl::Status SetSession(engine::Clients& clients, const std::string& secret, model::JobSpec* spec) {
  if (!secret.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(const session::SessionStatus session,
                            clients.Find(secret, spec->caller.principal));
    spec->session = session.name;
    // A retry by another session is another request, because the job would belong to the first one.
    spec->request_digest += session.name;
  } else if (spec->orphan != model::Orphan::kDefault && spec->orphan != model::Orphan::kKeep) {
    return InvalidField("orphan",
                        absl::StrCat("is ", EnumName(static_cast<v1::Orphan>(spec->orphan)),
                                     " without a session (session_secret); allowed KEEP"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<job::JobStatus> Submit(engine::Engine& engine, const JobSubmission& wanted,
                                      model::AdmissionReport* report) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(wanted.request_id));
  OCTAVO_ASSIGN_OR_RETURN(model::JobSpec spec, DecodeJobSpec(wanted.spec, wanted.peer));
  spec.request_id = wanted.request_id;
  spec.caller = wanted.caller;
  // A retry by another caller is another request, because the job would belong to the first one.
  absl::StrAppend(&spec.request_digest, "owner:", wanted.caller.principal.name, "\n");
  // Likewise by another client: the buffer of an import is the first one's.
  if (wanted.spec.volume_import().has_buffer())
    absl::StrAppend(&spec.request_digest, "client:", wanted.caller.client, "\n", wanted.caller.key);
  OCTAVO_RETURN_IF_ERROR(SetSession(engine.clients(), wanted.session_secret, &spec));
  return engine.jobs().Submit(spec, report);
}

}  // namespace octavo::rpc
