#include "server/engine/operations.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "server/engine/internal.h"

namespace octavo::engine {
namespace {

using operation::OperationState;

OperationState StateOf(job::JobState state) {
  switch (state) {
    case job::JobState::kQueued:
    case job::JobState::kRunning: return OperationState::kRunning;
    case job::JobState::kCancelling: return OperationState::kCancelling;
    case job::JobState::kDone: return OperationState::kSucceeded;
    case job::JobState::kFailed: return OperationState::kFailed;
    case job::JobState::kCancelled: return OperationState::kCancelled;
    case job::JobState::kLost: return OperationState::kFailed;
  }
  return OperationState::kRunning;
}

std::string JobNameOf(const std::string& operation) {
  return absl::StrCat("jobs/", absl::StripPrefix(operation, "operations/"));
}

}  // namespace

std::string OperationNameOf(const std::string& job) {
  return absl::StrCat("operations/", absl::StripPrefix(job, "jobs/"));
}

operation::OperationStatus OperationOf(const job::JobStatus& job, const TimePoint& now) {
  operation::OperationStatus out;
  out.name = OperationNameOf(job.name);
  out.kind = operation::OperationKind::kJob;
  out.state = StateOf(job.state);
  out.target = job.name;
  out.request_id = job.spec.request_id;
  out.owner = security::OwnerOf(job.spec.caller.principal);
  out.created = job.created;
  out.ended = job.ended;
  const TimePoint& end = IsFinal(out.state) ? job.ended : now;
  out.elapsed_seconds = static_cast<double>(end.monotonic_ns - job.created.monotonic_ns) * 1e-9;
  const bool waits = job.started.monotonic_ns == 0;
  out.progress.stage = waits ? model::WorkStage::kWaiting : model::WorkStage::kComputing;
  out.progress.fraction = job.fraction;
  out.volumes = job.volumes;
  out.event_count = job.event_count;
  out.earlier_run = job.earlier_run;
  if (job.state == job::JobState::kFailed || job.state == job::JobState::kLost)
    out.error = job.error;
  if (job.state == job::JobState::kCancelled) {
    out.error =
        WithInfo(absl::CancelledError(absl::StrCat(job.name, ": ", job.reason)),
                 {.reason = job.reason_code == Reason::kNone ? Reason::kCancelled : job.reason_code,
                  .field = "",
                  .numbers = {}});
  }
  return out;
}

absl::StatusOr<operation::OperationStatus> FindOperation(Components& components,
                                                         const std::string& name) {
  auto found = components.operations.Get(name);
  if (found.ok() || !absl::StartsWith(name, "operations/")) return found;
  if (const auto* commit = components.earlier.FindCommit(name); commit != nullptr) return *commit;
  if (const auto* earlier = components.earlier.FindJob(JobNameOf(name)); earlier != nullptr)
    return OperationOf(*earlier, components.clock->Now());
  const auto job = components.jobs.Get(JobNameOf(name));
  if (!job.ok()) return found;
  return OperationOf(*job, components.clock->Now());
}

absl::StatusOr<Operations::Status> Operations::Get(const std::string& name) {
  return FindOperation(components_, name);
}

std::vector<Operations::Status> Operations::List() {
  std::vector<Status> list = components_.operations.List();
  const TimePoint now = components_.clock->Now();
  for (const job::JobStatus& job : components_.jobs.List()) list.push_back(OperationOf(job, now));
  constexpr auto kAll = std::numeric_limits<uint64_t>::max();
  for (const job::JobStatus& job :
       components_.earlier.Jobs(kAll, std::numeric_limits<size_t>::max()))
    list.push_back(OperationOf(job, now));
  for (Status& commit : components_.earlier.Commits()) list.push_back(std::move(commit));
  std::stable_sort(list.begin(), list.end(), [](const Status& a, const Status& b) {
    return a.created.monotonic_ns > b.created.monotonic_ns;
  });
  return list;
}

void Operations::Wait(const std::string& name,
                      std::optional<std::chrono::steady_clock::time_point> until,
                      std::function<void(const absl::StatusOr<Status>&)> done,
                      std::function<bool()> over, WaitPlace place) {
  // The wait gives its charge back before it answers. A client that sends its next call as soon as
  // it has the answer is then charged for one wait at a time.
  auto answer = [done = std::move(done),
                 charge = std::move(place.charge)](const absl::StatusOr<Status>& operation) {
    if (charge != nullptr) charge->Release();
    done(operation);
  };
  const auto now = Get(name);
  if (!now.ok() || IsFinal(now->state) ||
      (until.has_value() && *until <= std::chrono::steady_clock::now()))
    return answer(now);
  components_.operation_watches.watches().Wait(name, until, std::move(answer), std::move(over),
                                               std::move(place.place));
}

absl::StatusOr<WaitPlace> Operations::TakePlace(
    std::optional<std::chrono::steady_clock::time_point> until, const security::Owner& waiter) {
  WaitPlace taken;
  if (until.has_value() && *until <= std::chrono::steady_clock::now()) return taken;
  constexpr auto kKind = memory::QuotaKind::kWatches;
  auto charge = components_.own_waits.Take(waiter, kKind, 1, "");
  if (!charge.ok())
    charge = components_.quotas.Take(waiter, kKind, 1, "the wait for its end (none with wait = 0)");
  OCTAVO_RETURN_IF_ERROR(charge.status());
  OCTAVO_ASSIGN_OR_RETURN(taken.place, components_.operation_watches.watches().TakePlace());
  taken.charge = std::make_shared<memory::QuotaCharge>(*std::move(charge));
  return taken;
}

absl::StatusOr<std::unique_ptr<base::Handle>> Operations::Watch(
    const std::string& name, std::function<void(const absl::StatusOr<Status>&)> callback) {
  OCTAVO_RETURN_IF_ERROR(Get(name).status());
  return components_.operation_watches.watches().Add(name, std::move(callback));
}

absl::StatusOr<Operations::Status> Operations::Cancel(const std::string& name,
                                                      const security::Principal& caller) {
  auto cancelled = components_.operations.Cancel(name, caller);
  if (!absl::IsNotFound(cancelled.status()) || !absl::StartsWith(name, "operations/"))
    return cancelled;
  if (const auto earlier = Get(name); earlier.ok() && earlier->earlier_run) {
    OCTAVO_RETURN_IF_ERROR(security::MayChange(caller, earlier->owner, name, earlier->target));
    return earlier;  // it has ended
  }
  const absl::Status job =
      components_.jobs.Cancel(JobNameOf(name), Reason::kCancelled, "cancelled by a client", &caller)
          .status();
  if (absl::IsNotFound(job)) return cancelled.status();
  OCTAVO_RETURN_IF_ERROR(job);
  return Get(name);
}

}  // namespace octavo::engine
