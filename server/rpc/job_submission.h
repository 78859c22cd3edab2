#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "octavo/v1/job.pb.h"

#include "server/engine/engine.h"
#include "server/rpc/handler.h"
#include "server/rpc/services.h"

namespace octavo::rpc {

/// What a call says about the job that it wants.
struct JobSubmission {
  v1::JobSpec spec;
  std::string request_id, session_secret, peer;  // peer: the client's connection
  model::Caller caller;
};

/// Queues a job: for SubmitJob, and for verbs whose work is a job. Errors of SubmitJob. If memory
/// is short, `report` receives the reason.
absl::StatusOr<job::JobStatus> Submit(engine::Engine& engine, const JobSubmission& wanted,
                                      model::AdmissionReport* report);

}  // namespace octavo::rpc
