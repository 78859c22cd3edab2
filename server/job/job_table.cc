#include "server/job/job_table.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/security/rights.h"

namespace octavo::job {
namespace {

constexpr size_t kMostQueued = 10'000, kEndedKept = 1000, kRequestsKept = 100'000;
constexpr size_t kEndedSpecBytes = size_t{64} << 20;  // of specifications

double Seconds(const TimePoint& from, const TimePoint& to) {
  return static_cast<double>(to.monotonic_ns - from.monotonic_ns) * 1e-9;
}

/// Bytes of its large parts.
size_t BytesOf(const model::JobSpec& spec) {
  return std::visit(
      [](const auto& work) -> size_t {
        if constexpr (requires { work.encoded; }) {
          return work.encoded.size();
        } else if constexpr (requires { work.processing; }) {
          const model::Processing& p = work.processing;
          return 4 * (p.background_spectrum.size() + 2 * p.k_index.size() + p.window_values.size() +
                      p.dispersion_phase.size()) +
                 8 * (p.k_polynomial.size() + p.k_wavelength_nm.size());
        } else {
          return 0;
        }
      },
      spec.work);
}

/// `caller`: null if the server acts for itself.
absl::Status CheckOwner(const JobEntry& job, const security::Principal* caller) {
  if (caller == nullptr) return absl::OkStatus();
  return security::MayChange(*caller, security::OwnerOf(job.status.spec.caller.principal),
                             job.status.name);
}

}  // namespace

// -- under the lock

absl::StatusOr<JobStatus> JobTable::Insert(const JobPtr& job) {
  if (draining_) {
    return WithInfo(absl::UnavailableError(
                        "the server is draining and takes no new jobs; try another one or later"),
                    {.reason = Reason::kDraining, .field = "", .numbers = {{"retryable", "true"}}});
  }
  const auto queued = std::count_if(jobs_.begin(), jobs_.end(), [](const JobPtr& other) {
    return other->status.state == JobState::kQueued;
  });
  if (static_cast<size_t>(queued) >= kMostQueued) {
    return WithInfo(
        absl::ResourceExhaustedError(
            absl::StrCat(queued, " jobs wait already; allowed ", kMostQueued)),
        {.reason = Reason::kQueueFull, .field = "", .numbers = {{"retryable", "true"}}});
  }
  const model::JobSpec& spec = job->status.spec;
  memory::QuotaCharge place;
  if (quotas_ != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(place, quotas_->Take(security::OwnerOf(spec.caller.principal),
                                                 memory::QuotaKind::kJobs, 1, "the job"));
  }
  const JobPlan& plan = job->plans.begin()->second;
  absl::Cleanup untold = [&] {
    base::GuardedTurn("a job that was not taken stays among the topics",
                      [&] { publisher_->ScanEnded(job->status.name); });
  };
  if (const auto& extents = plan.view_extents; extents[0] > 0) {
    publisher_->ScanStarted(
        job->status.name, spec.labels,
        {.extents = {extents[0], extents[1], extents[2]}, .bscan_axis = plan.bscan_axis});
  }
  for (const std::string& warning : plan.warnings) Warn(*job, warning);
  JobList one{job};
  job->status.number = ++inserted_;
  job->changed = ++changes_;
  JobStatus status = StatusOf(*job);
  if (!spec.request_id.empty() && requests_.size() < kRequestsKept)
    requests_.emplace(spec.request_id, std::pair(spec.request_digest, job->status.name));
  job->place = std::move(place);
  jobs_.splice(jobs_.end(), one);  // with its id, or not at all
  positions_.reset();
  std::move(untold).Cancel();
  return status;
}

absl::StatusOr<JobPtr> JobTable::Find(const std::string& name) {
  auto it = std::find_if(jobs_.begin(), jobs_.end(),
                         [&](const JobPtr& job) { return job->status.name == name; });
  if (it == jobs_.end()) {
    return WithInfo(absl::NotFoundError(absl::StrCat("no job ", name, " (the last ", kEndedKept,
                                                     " that ended are remembered)")),
                    {.reason = Reason::kNoJob, .field = "name", .numbers = {}});
  }
  return *it;
}

bool JobTable::AnyWaits() const {
  return std::any_of(jobs_.begin(), jobs_.end(), [](const JobPtr& job) {
    return job->status.state == JobState::kQueued || job->returned > 0;
  });
}

JobStatus JobTable::StatusOf(const JobEntry& job) const {
  JobStatus status = job.status;
  if (status.state == JobState::kQueued) {
    status.queue_position = order_.PlaceOf(job, jobs_);
  }
  return status;
}

void JobTable::SetState(JobEntry& job, JobState state, Reason code, const std::string& reason) {
  JobStatus& status = job.status;
  if (absl::Status allowed = CheckTransition(status.name, status.state, state); !allowed.ok()) {
    octavo::Log(LogLevel::kError, "job state",
                {{"job", status.name}, {"error", std::string(allowed.message())}});
    return;
  }
  const TimePoint now = clock_->Now();
  if (state == JobState::kRunning) {
    status.started = now;
    queue_seconds_.Add(Seconds(status.created, now));
  }
  status.state = state;
  job.changed = ++changes_;
  positions_.reset();
  status.reason_code = code;
  status.reason = reason;
  Record(job, reason.empty() ? Name(state) : absl::StrCat(Name(state), ": ", reason));
  if (!IsFinal(state)) return;
  job.projections.reset();
  job.place.Release();
  status.ended = now;
  status.eta_seconds = 0;
  ++finished_[{Name(status.kind), std::string(Name(code))}];
  if (status.started.monotonic_ns > 0)
    run_seconds_[Name(status.kind)].Add(Seconds(status.started, now));
  if (job.plans.begin()->second.view_extents[0] > 0) publisher_->ScanEnded(status.name);
}

void JobTable::Record(JobEntry& job, const std::string& text) {
  JobStatus& status = job.status;
  status.log.push_back({.seconds = Seconds(status.created, clock_->Now()), .text = text});
  if (status.log.size() > kJobHistoryKept) status.log.erase(status.log.begin());
  ++status.log_count;
  ++status.event_count;
}

void JobTable::Warn(JobEntry& job, const std::string& text) {
  JobStatus& status = job.status;
  if (status.warnings.size() >= kJobWarningsKept ||
      std::find(status.warnings.begin(), status.warnings.end(), text) != status.warnings.end())
    return;
  status.warnings.push_back(text);
  Record(job, absl::StrCat("warning: ", text));
  octavo::Log(LogLevel::kWarning, "job warning", {{"job", status.name}, {"warning", text}});
}

void JobTable::AddVolume(JobEntry& job, const std::string& volume) {
  job.status.volumes.push_back(volume);
  ++job.status.event_count;
  job.changed = ++changes_;
}

void JobTable::ForgetOld() {
  size_t ended = static_cast<size_t>(std::count_if(
      jobs_.begin(), jobs_.end(), [](const JobPtr& job) { return IsFinal(job->status.state); }));
  for (auto it = jobs_.begin(); ended > kEndedKept && it != jobs_.end();) {
    if (!IsFinal((*it)->status.state) || (*it)->changed > told_) {
      ++it;
      continue;
    }
    requests_.erase((*it)->status.spec.request_id);
    it = jobs_.erase(it);
    --ended;
  }
  size_t bytes = 0;
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    JobStatus& status = (*it)->status;
    if (!IsFinal(status.state)) continue;
    bytes += BytesOf(status.spec);
    if (bytes > kEndedSpecBytes) status.spec.work = std::monostate();
  }
  order_.KeepGroupsOf(jobs_);
}

// -- these take the lock

absl::StatusOr<std::optional<JobStatus>> JobTable::Earlier(const model::JobSpec& spec) {
  MutexLock lock(mutex_);
  auto it = requests_.find(spec.request_id);
  if (spec.request_id.empty() || it == requests_.end()) return std::optional<JobStatus>();
  const auto& [digest, name] = it->second;
  if (digest != spec.request_digest) {
    return WithInfo(absl::AlreadyExistsError(absl::StrCat(
                        "request_id: is '", spec.request_id,
                        "', and an earlier call used it with another body (", name, ")")),
                    {.reason = Reason::kIdempotencyMismatch,
                     .field = "request_id",
                     .numbers = {{"job", name}}});
  }
  OCTAVO_ASSIGN_OR_RETURN(const JobPtr job, Find(name));
  return std::optional<JobStatus>(StatusOf(*job));
}

absl::StatusOr<JobStatus> JobTable::Get(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const JobPtr job, Find(name));
  return StatusOf(*job);
}

std::vector<JobStatus> JobTable::List(uint64_t before, size_t most) {
  MutexLock lock(mutex_);
  std::vector<JobStatus> list;
  if (!positions_.has_value()) {
    const std::vector<JobPtr> order = Waiting();
    std::unordered_map<const JobEntry*, int64_t> positions;
    positions.reserve(order.size());
    for (const JobPtr& job : order) positions.emplace(job.get(), std::ssize(positions) + 1);
    positions_ = std::move(positions);
  }
  for (auto it = jobs_.rbegin(); it != jobs_.rend() && list.size() < most; ++it) {
    if ((*it)->status.number >= before) continue;
    list.push_back((*it)->status);
    if (auto position = positions_->find(it->get()); position != positions_->end())
      list.back().queue_position = position->second;
  }
  return list;
}

std::vector<JobStatus> JobTable::ChangedSince(uint64_t* seen) {
  MutexLock lock(mutex_);
  std::vector<JobStatus> list;
  for (const JobPtr& job : jobs_) {
    if (job->changed > *seen) list.push_back(job->status);
  }
  *seen = told_ = changes_;
  return list;
}

absl::StatusOr<std::shared_ptr<source::ProjectionPort>> JobTable::ProjectionPortOf(
    const std::string& name, const security::Principal* caller) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const JobPtr job, Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*job, caller));
  if (job->projections != nullptr) return job->projections;
  if (IsFinal(job->status.state)) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        name, " is ", Name(job->status.state), " and takes no projections")),
                    {.reason = Reason::kJobState,
                     .field = "job",
                     .numbers = {{"state", Name(job->status.state)}}});
  }
  return WithInfo(absl::FailedPreconditionError(
                      absl::StrCat(name, " takes no projections: its input is not `push`")),
                  {.reason = Reason::kNotPush, .field = "job", .numbers = {}});
}

absl::StatusOr<JobStatus> JobTable::Cancel(const std::string& name, Reason code,
                                           const std::string& reason,
                                           const security::Principal* caller) {
  std::unique_ptr<JobWork> gone;  // release what it held outside the lock
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const JobPtr job, Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*job, caller));
  if (job->status.state == JobState::kQueued) {
    gone = std::move(job->work);
    SetState(*job, JobState::kCancelled, code, absl::StrCat("before it began: ", reason));
  } else if (job->status.state == JobState::kRunning && !job->finishing) {
    SetState(*job, JobState::kCancelling, code, reason);
    job->stop.request_stop();
  }
  return StatusOf(*job);
}

bool JobTable::NoteCommitted(const std::string& name, const std::string& path) {
  MutexLock lock(mutex_);
  const absl::StatusOr<JobPtr> job = Find(name);
  if (!job.ok()) return false;
  (*job)->status.commits.push_back(path);
  (*job)->changed = ++changes_;
  Record(**job, absl::StrCat("committed to ", path));
  return true;
}

bool JobTable::NoteCommitFailed(const std::string& name, const std::string& warning) {
  MutexLock lock(mutex_);
  const absl::StatusOr<JobPtr> job = Find(name);
  if (!job.ok()) return false;
  ++(*job)->status.commit_failures;
  (*job)->changed = ++changes_;
  (*job)->commit_warnings.insert(warning);
  Warn(**job, warning);
  return true;
}

std::vector<std::unique_ptr<JobWork>> JobTable::BeginDrain() {
  std::vector<std::unique_ptr<JobWork>> gone;
  MutexLock lock(mutex_);
  draining_ = true;
  for (const JobPtr& job : jobs_) {
    if (job->status.state != JobState::kQueued) continue;
    gone.push_back(std::move(job->work));
    SetState(*job, JobState::kCancelled, Reason::kDrained,
             "the server is draining; the job had not begun");
  }
  return gone;
}

bool JobTable::Idle() {
  MutexLock lock(mutex_);
  return std::all_of(jobs_.begin(), jobs_.end(),
                     [](const JobPtr& job) { return IsFinal(job->status.state); });
}

void JobTable::AddTo(model::Stats* stats) {
  MutexLock lock(mutex_);
  for (const JobPtr& job : jobs_) ++stats->jobs_by_state[Name(job->status.state)];
  stats->jobs_finished = finished_;
  stats->job_queue_seconds = queue_seconds_;
  stats->job_run_seconds = run_seconds_;
}

}  // namespace octavo::job
