#include "server/job/job_queue.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"

namespace octavo::job {
namespace {

/// The specification without the parts that only the work itself needs.
model::JobSpec Remembered(const model::JobSpec& spec) {
  model::JobSpec out = spec;
  out.caller.principal = security::WithoutGrants(std::move(out.caller.principal));
  if (auto* tomography = std::get_if<model::TomographySpec>(&out.work)) {
    model::TomographySpec kept;
    kept.encoded = std::move(tomography->encoded);
    *tomography = std::move(kept);
  }
  return out;
}

}  // namespace

JobQueue::JobQueue(Context context)
    : context_(std::move(context)),
      admission_(context_.devices, context_.ledger),
      table_(context_.clock, context_.publisher, context_.last_number, context_.quotas),
      workers_(
          context_.devices.size(),
          [this](const JobPtr& job, Stream& stream) {
            context_.observer->OnJobsChanged();
            executor_.Execute(job, stream);
            dispatcher_.End(job);
          },
          context_.devices.names().numbered() < context_.devices.size()),
      dispatcher_(table_, workers_, context_),
      executor_(context_, table_, dispatcher_) {}

JobQueue::~JobQueue() { Shutdown(); }

void JobQueue::Shutdown() {
  dispatcher_.Stop();
  CancelAll(Reason::kServerStopped, "the server ended");
  workers_.Shutdown();
}

absl::StatusOr<JobStatus> JobQueue::Submit(const model::JobSpec& spec,
                                           std::unique_ptr<JobWork> work,
                                           model::AdmissionReport* report) {
  auto job = std::make_shared<JobEntry>();
  OCTAVO_ASSIGN_OR_RETURN(job->plans, admission_.Admit(spec, *work, report));
  const JobPlan& plan = job->plans.begin()->second;
  JobStatus& status = job->status;
  status.name = absl::StrCat("jobs/", base::NewId(context_.server_id));
  status.spec = Remembered(spec);
  status.kind = work->kind();
  status.created = context_.clock->Now();
  status.plan = plan.text;
  status.memory_bytes = plan.bytes();
  job->projections = work->projection_port();
  job->work = std::move(work);
  OCTAVO_ASSIGN_OR_RETURN(const JobStatus answer, dispatcher_.Submit(job));
  octavo::Log(LogLevel::kInfo, "job queued",
              {{"job", answer.name},
               {"kind", Name(answer.kind)},
               {"title", spec.title},
               {"principal", spec.caller.principal.name},
               {"request_id", spec.request_id},
               {"trace_id", spec.caller.trace_id}});
  context_.observer->OnJobsChanged();
  return answer;
}

absl::StatusOr<JobStatus> JobQueue::Cancel(const std::string& name, Reason reason_code,
                                           const std::string& reason,
                                           const security::Principal* caller) {
  OCTAVO_ASSIGN_OR_RETURN(JobStatus status, table_.Cancel(name, reason_code, reason, caller));
  context_.observer->OnJobsChanged();
  return status;
}

void JobQueue::CancelAll(Reason reason_code, const std::string& reason) {
  std::vector<std::string> names;
  for (const auto& job : List()) {
    if (!IsFinal(job.state)) names.push_back(job.name);
  }
  for (const auto& name : names) (void)Cancel(name, reason_code, reason);
}

absl::StatusOr<JobStatus> JobQueue::CancelScratch(const JobStatus& job) {
  return Cancel(job.name, Reason::kSessionExpired,
                absl::StrCat(job.spec.session, " has ended; what the job would make is scratch"));
}

void JobQueue::CancelScratchOf(const std::set<std::string>& sessions) {
  for (const JobStatus& job : List()) {
    if (IsFinal(job.state) || job.spec.orphan != model::Orphan::kDiscard ||
        sessions.count(job.spec.session) == 0)
      continue;
    (void)CancelScratch(job);
  }
}

void JobQueue::NoteCommitted(const std::string& job, const std::string& path) {
  if (table_.NoteCommitted(job, path)) context_.observer->OnJobsChanged();
}

void JobQueue::NoteCommitFailed(const std::string& job, const std::string& warning) {
  if (table_.NoteCommitFailed(job, warning)) context_.observer->OnJobsChanged();
}

void JobQueue::BeginDrain() {
  const std::vector<std::unique_ptr<JobWork>> gone = table_.BeginDrain();
  context_.observer->OnJobsChanged();
}

}  // namespace octavo::job
