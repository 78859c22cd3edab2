#include "server/job/job_queue.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/resource_names.h"
#include "server/job/internal.h"
#include "server/source/push_projections.h"

namespace octavo::job {
namespace {

constexpr size_t kMostQueued = 10'000, kEndedKept = 1000, kRequestsKept = 100'000;
constexpr size_t kEndedSpecBytes = size_t{64} << 20;  // of specifications

/// The specification without the parts that only the work itself needs.
model::JobSpec Remembered(const model::JobSpec& spec) {
  model::JobSpec out = spec;
  if (auto* tomography = std::get_if<model::TomographySpec>(&out.work)) {
    model::TomographySpec kept;
    kept.encoded = std::move(tomography->encoded);
    *tomography = std::move(kept);
  }
  return out;
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

}  // namespace

JobQueue::JobQueue(Context context) : context_(std::move(context)) {
  MutexLock lock(mutex_);
  lanes_.resize(static_cast<size_t>(context_.devices.size()));
}

JobQueue::~JobQueue() { Shutdown(); }

void JobQueue::Shutdown() {
  {
    MutexLock lock(mutex_);
    ends_ = true;  // no job begins any more
  }
  CancelAll(Reason::kServerStopped, "the server ended");
  std::vector<std::unique_ptr<Worker>> workers;
  {
    MutexLock lock(mutex_);
    for (Lane& lane : lanes_) {
      for (auto& worker : lane.workers) workers.push_back(std::move(worker));
      lane.workers.clear();
    }
    for (auto& worker : left_) workers.push_back(std::move(worker));
    left_.clear();
    cv_.NotifyAll();
  }
  for (const auto& worker : workers) worker->thread.join();
}

// -- requests of clients

absl::StatusOr<std::optional<JobStatus>> JobQueue::Earlier(const model::JobSpec& spec) {
  MutexLock lock(mutex_);
  auto it = requests_.find(spec.request_id);
  if (spec.request_id.empty() || it == requests_.end()) return std::optional<JobStatus>();
  const auto& [digest, name] = it->second;
  if (digest != spec.request_digest) {
    return WithInfo(
        absl::AlreadyExistsError(absl::StrCat("request_id '", spec.request_id,
                                              "' was used with another body (", name, ")")),
        {.reason = Reason::kIdempotencyMismatch,
         .field = "request_id",
         .numbers = {{"job", name}}});
  }
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, FindLocked(name));
  return std::optional<JobStatus>(StatusLocked(*entry));
}

// Where a job may run, in ascending order.
absl::StatusOr<std::vector<int>> JobQueue::Candidates(const model::JobSpec& spec,
                                                      const JobWork& work) const {
  const bool any = spec.device.empty() || spec.device == "auto";
  std::vector<int> devices;
  for (int d = 0; d < context_.devices.size(); ++d) {
    if (any ? work.home_device() < 0 || work.home_device() == d
            : spec.device == base::DeviceName(d))
      devices.push_back(d);
  }
  if (devices.empty()) {
    return InvalidField(
        "device", absl::StrCat("is '", spec.device, "'; allowed are auto, devices/0 to devices/",
                               context_.devices.size() - 1));
  }
  if (work.home_device() >= 0 && devices[0] != work.home_device()) {
    return InvalidField("device", absl::StrCat("is ", spec.device, ", but the volume is on ",
                                               base::DeviceName(work.home_device())));
  }
  std::erase_if(devices, [&](int d) { return !context_.devices.device(d).Health().ok(); });
  if (!devices.empty()) return devices;
  return WithInfo(absl::UnavailableError("no device that the job could run on is healthy"),
                  {.reason = Reason::kDeviceDown, .field = "device", .numbers = {}});
}

std::vector<model::AdmissionReport::Item> JobQueue::NeedsOf(const JobPlan& plan) const {
  std::vector<model::AdmissionReport::Item> needs;
  for (const auto& result : plan.results)
    needs.push_back(
        {.what = result.what,
         .bytes = (result.on_disk ? 0 : ClientMemory::Bytes(AlignedBytes(result.bytes))) +
                  AlignedBytes(result.mip_bytes) + kMemoryAlignment,
         .count = 1});
  needs.push_back({.what = "workspace",
                   .bytes = std::max(AlignedBytes(plan.workspace_bytes), kMemoryAlignment),
                   .count = 1});
  return needs;
}

absl::StatusOr<model::AdmissionReport> JobQueue::Plan(const model::JobSpec& spec,
                                                      const JobWork& work, JobPlan* chosen) {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> devices, Candidates(spec, work));
  model::AdmissionReport best;
  for (const int d : devices) {
    OCTAVO_ASSIGN_OR_RETURN(JobPlan plan, work.Plan(context_.devices.device(d)));
    model::AdmissionReport report = context_.ledger->Plan(d, NeedsOf(plan));
    if (best.device.empty() || (report.admitted && !best.admitted)) {
      best = std::move(report);
      for (const auto& result : plan.results) best.volume_bytes += result.bytes;
      if (chosen != nullptr) *chosen = std::move(plan);
    }
  }
  return best;
}

absl::StatusOr<JobStatus> JobQueue::Submit(const model::JobSpec& spec,
                                           std::unique_ptr<JobWork> work,
                                           model::AdmissionReport* report) {
  auto entry = std::make_shared<Entry>();
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> devices, Candidates(spec, *work));
  absl::Status refused = absl::OkStatus();
  for (const int d : devices) {
    OCTAVO_ASSIGN_OR_RETURN(JobPlan plan, work->Plan(context_.devices.device(d)));
    model::AdmissionReport admission = context_.ledger->Plan(d, NeedsOf(plan));
    if (admission.wanted_bytes > admission.budget_bytes) {
      refused = WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                             admission.device, " has a budget of ", admission.budget_bytes,
                             " bytes, the job needs ", admission.wanted_bytes)),
                         {.reason = Reason::kExceedsBudget,
                          .field = "",
                          .numbers = {{"wanted", absl::StrCat(admission.wanted_bytes)},
                                      {"budget", absl::StrCat(admission.budget_bytes)},
                                      {"retryable", "false"}}});
      if (report != nullptr) *report = std::move(admission);
      continue;
    }
    entry->plans.emplace(d, std::move(plan));
  }
  if (entry->plans.empty()) return refused;
  const JobPlan& plan = entry->plans.begin()->second;
  JobStatus& status = entry->status;
  status.name = absl::StrCat("jobs/", base::NewId(context_.server_id));
  status.spec = Remembered(spec);
  status.kind = work->kind();
  status.created = context_.clock->Now();
  status.plan = plan.text;
  const std::vector<std::string> warnings = plan.warnings;
  status.memory_bytes = plan.bytes();
  entry->projections = work->projection_port();
  entry->work = std::move(work);
  JobStatus answer;
  {
    MutexLock lock(mutex_);
    if (draining_) {
      return WithInfo(
          absl::UnavailableError(
              "the server is draining and takes no new jobs; try another one or later"),
          {.reason = Reason::kDraining, .field = "", .numbers = {{"retryable", "true"}}});
    }
    const auto queued = std::count_if(entries_.begin(), entries_.end(), [](const auto& e) {
      return e->status.state == JobState::kQueued;
    });
    if (static_cast<size_t>(queued) >= kMostQueued) {
      return WithInfo(
          absl::ResourceExhaustedError(
              absl::StrCat(queued, " jobs wait already; allowed ", kMostQueued)),
          {.reason = Reason::kQueueFull, .field = "", .numbers = {{"retryable", "true"}}});
    }
    if (const auto& extents = plan.view_extents; extents[0] > 0) {
      context_.publisher->ScanStarted(
          status.name, spec.labels,
          {.extents = {extents[0], extents[1], extents[2]}, .bscan_axis = plan.bscan_axis});
    }
    for (const std::string& warning : warnings) Warn(*entry, warning);
    Entries one{entry};
    answer = StatusLocked(*entry);
    if (!spec.request_id.empty() && requests_.size() < kRequestsKept)
      requests_.emplace(spec.request_id, std::pair(spec.request_digest, status.name));
    entries_.splice(entries_.end(), one);  // with its id, or not at all
    (void)Failpoint("job_queued");
    ForgetOldLocked();
    DispatchLocked();
    answer = StatusLocked(*entry);
  }
  octavo::Log(LogLevel::kInfo, "job queued",
              {{"job", answer.name}, {"kind", answer.kind}, {"title", spec.title}});
  context_.observer->OnJobsChanged();
  return answer;
}

absl::StatusOr<std::shared_ptr<JobQueue::Entry>> JobQueue::FindLocked(const std::string& name) {
  auto it = std::find_if(entries_.begin(), entries_.end(),
                         [&](const auto& entry) { return entry->status.name == name; });
  if (it == entries_.end()) {
    return WithInfo(absl::NotFoundError(absl::StrCat("no job ", name, " (the last ", kEndedKept,
                                                     " that ended are remembered)")),
                    {.reason = Reason::kNoJob, .field = "name", .numbers = {}});
  }
  return *it;
}

absl::StatusOr<JobStatus> JobQueue::Get(const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, FindLocked(name));
  return StatusLocked(*entry);
}

absl::StatusOr<std::shared_ptr<source::ProjectionPort>> JobQueue::ProjectionPortOf(
    const std::string& name) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, FindLocked(name));
  if (entry->projections != nullptr) return entry->projections;
  if (IsFinal(entry->status.state)) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        name, " is ", Name(entry->status.state), " and takes no projections")),
                    {.reason = Reason::kJobState,
                     .field = "job",
                     .numbers = {{"state", Name(entry->status.state)}}});
  }
  return WithInfo(absl::FailedPreconditionError(
                      absl::StrCat(name, " takes no projections: its input is not `push`")),
                  {.reason = Reason::kNotPush, .field = "job", .numbers = {}});
}

std::vector<JobStatus> JobQueue::List() {
  MutexLock lock(mutex_);
  std::vector<JobStatus> list;
  std::map<const Entry*, int64_t> positions;
  for (const auto& entry : OrderLocked()) positions.emplace(entry.get(), std::ssize(positions) + 1);
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    list.push_back((*it)->status);
    if (auto position = positions.find(it->get()); position != positions.end())
      list.back().queue_position = position->second;
  }
  return list;
}

JobStatus JobQueue::StatusLocked(const Entry& entry) {
  JobStatus status = entry.status;
  if (status.state == JobState::kQueued) {
    const auto order = OrderLocked();
    status.queue_position =
        std::find_if(order.begin(), order.end(), [&](const auto& e) { return e.get() == &entry; }) -
        order.begin() + 1;
  }
  return status;
}

absl::StatusOr<JobStatus> JobQueue::Cancel(const std::string& name, Reason reason_code,
                                           const std::string& reason) {
  JobStatus status;
  std::unique_ptr<JobWork> gone;  // release what it held outside the lock
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, FindLocked(name));
    if (entry->status.state == JobState::kQueued) {
      gone = std::move(entry->work);
      SetStateLocked(*entry, JobState::kCancelled, Name(reason_code),
                     absl::StrCat("before it began: ", reason));
    } else if (entry->status.state == JobState::kRunning && !entry->finishing) {
      SetStateLocked(*entry, JobState::kCancelling, Name(reason_code), reason);
      entry->stop.request_stop();
      cv_.NotifyAll();  // it may be waiting for its device
    }
    status = StatusLocked(*entry);
  }
  gone.reset();
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

void JobQueue::BeginDrain() {
  std::vector<std::unique_ptr<JobWork>> gone;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    for (const auto& entry : entries_) {
      if (entry->status.state != JobState::kQueued) continue;
      gone.push_back(std::move(entry->work));
      SetStateLocked(*entry, JobState::kCancelled, Name(Reason::kDrained),
                     "the server is draining; the job had not begun");
    }
  }
  context_.observer->OnJobsChanged();
}

bool JobQueue::Idle() {
  MutexLock lock(mutex_);
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return IsFinal(entry->status.state); });
}

int JobQueue::RunningOn(int index) {
  MutexLock lock(mutex_);
  const auto& workers = lanes_[static_cast<size_t>(index)].workers;
  return static_cast<int>(std::count_if(
      workers.begin(), workers.end(), [](const auto& worker) { return worker->entry != nullptr; }));
}

void JobQueue::AddTo(model::Stats* stats) {
  MutexLock lock(mutex_);
  for (const auto& entry : entries_) ++stats->jobs_by_state[Name(entry->status.state)];
  stats->jobs_finished = finished_;
  stats->job_queue_seconds = queue_seconds_;
  stats->job_run_seconds = run_seconds_;
}

// Ended jobs stay listed. The oldest are dropped when there are very many; large specifications are
// dropped earlier.
void JobQueue::ForgetOldLocked() {
  size_t ended = static_cast<size_t>(std::count_if(
      entries_.begin(), entries_.end(), [](const auto& e) { return IsFinal(e->status.state); }));
  for (auto it = entries_.begin(); ended > kEndedKept && it != entries_.end();) {
    if (!IsFinal((*it)->status.state)) {
      ++it;
      continue;
    }
    requests_.erase((*it)->status.spec.request_id);
    it = entries_.erase(it);
    --ended;
  }
  size_t bytes = 0;
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    JobStatus& status = (*it)->status;
    if (!IsFinal(status.state)) continue;
    bytes += BytesOf(status.spec);
    if (bytes > kEndedSpecBytes) status.spec.work = std::monostate();
  }
  // A group is remembered while it has jobs.
  std::map<std::string, uint64_t> served;
  for (const auto& entry : entries_) {
    if (auto it = served_.find(entry->status.spec.group); it != served_.end()) served.insert(*it);
  }
  served_.swap(served);
}

}  // namespace octavo::job
