// Assigns devices to jobs: states, order, turns.

#include <algorithm>
#include <pthread.h>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/job/internal.h"

namespace octavo::job {
namespace {

double Seconds(const TimePoint& from, const TimePoint& to) {
  return static_cast<double>(to.monotonic_ns - from.monotonic_ns) * 1e-9;
}

}  // namespace

// -- states and order

void JobQueue::Record(Entry& entry, const std::string& text) {
  JobStatus& status = entry.status;
  status.log.push_back({.seconds = Seconds(status.created, context_.clock->Now()), .text = text});
  if (status.log.size() > kJobHistoryKept) status.log.erase(status.log.begin());
  ++status.log_count;
  ++status.event_count;
}

void JobQueue::Warn(Entry& entry, const std::string& text) {
  JobStatus& status = entry.status;
  if (status.warnings.size() >= kJobWarningsKept ||
      std::find(status.warnings.begin(), status.warnings.end(), text) != status.warnings.end())
    return;
  status.warnings.push_back(text);
  Record(entry, absl::StrCat("warning: ", text));
  octavo::Log(LogLevel::kWarning, "job warning", {{"job", status.name}, {"warning", text}});
}

void JobQueue::SetStateLocked(Entry& entry, JobState state, absl::string_view code,
                              const std::string& reason) {
  JobStatus& status = entry.status;
  if (absl::Status allowed = CheckTransition(status.name, status.state, state); !allowed.ok()) {
    octavo::Log(LogLevel::kError, "job state",
                {{"job", status.name}, {"error", std::string(allowed.message())}});
    return;
  }
  const TimePoint now = context_.clock->Now();
  if (state == JobState::kRunning) {
    status.started = now;
    queue_seconds_.Add(Seconds(status.created, now));
  }
  status.state = state;
  status.reason_code = std::string(code);
  status.reason = reason;
  Record(entry, reason.empty() ? Name(state) : absl::StrCat(Name(state), ": ", reason));
  if (!IsFinal(state)) return;
  entry.projections.reset();
  status.ended = now;
  status.eta_seconds = 0;
  ++finished_[{status.kind, std::string(code)}];
  if (status.started.monotonic_ns > 0) run_seconds_[status.kind].Add(Seconds(status.started, now));
  if (entry.plans.begin()->second.view_extents[0] > 0) context_.publisher->ScanEnded(status.name);
}

// The waiting jobs, the next one first.
std::vector<std::shared_ptr<JobQueue::Entry>> JobQueue::OrderLocked() {
  std::vector<std::tuple<int, uint64_t, std::shared_ptr<Entry>>> keyed;
  for (const auto& entry : entries_) {  // in the order of submission, which a stable sort keeps
    if (entry->status.state != JobState::kQueued) continue;
    auto served = served_.find(entry->status.spec.group);
    keyed.emplace_back(-entry->status.spec.priority, served == served_.end() ? 0 : served->second,
                       entry);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<std::shared_ptr<Entry>> order;
  order.reserve(keyed.size());
  for (auto& [priority, served, entry] : keyed) order.push_back(std::move(entry));
  return order;
}

// The jobs that want their device's turn again, the next one first.
std::vector<std::shared_ptr<JobQueue::Entry>> JobQueue::ReturningLocked() {
  std::vector<std::shared_ptr<Entry>> returning;
  for (const auto& entry : entries_) {
    if (entry->returned > 0) returning.push_back(entry);
  }
  std::sort(returning.begin(), returning.end(), [](const auto& a, const auto& b) {
    return std::pair(-a->status.spec.priority, a->returned) <
           std::pair(-b->status.spec.priority, b->returned);
  });
  return returning;
}

// Assigns free devices to jobs as long as possible. True if anything changed.
bool JobQueue::DispatchLocked() {
  bool changed = false;
  // Tick retries after a failure.
  const absl::Status status = base::ExceptionToStatus([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    while (!ends_ && DispatchOneLocked(&changed)) changed = true;
    return absl::OkStatus();
  });
  if (!status.ok())
    Log(LogLevel::kError, "jobs could not be given devices", {{"error", status.ToString()}});
  return changed;
}

// Assigns a device to one job; false if none can begin. At equal priority, jobs that return to
// their device come first: they have waited for it once, and their memory is not free before they
// end.
bool JobQueue::DispatchOneLocked(bool* changed) {
  const std::vector<std::shared_ptr<Entry>> waiting = OrderLocked();
  auto next = waiting.begin();
  for (const auto& entry : ReturningLocked()) {
    for (; next != waiting.end() && (*next)->status.spec.priority > entry->status.spec.priority;
         ++next) {
      if (BeginLocked(*next, changed)) return true;
    }
    Lane& lane = lanes_[static_cast<size_t>(entry->device)];
    if (lane.turn != nullptr) continue;
    lane.turn = entry;
    entry->returned = 0;
    served_[entry->status.spec.group] = ++turn_;
    cv_.NotifyAll();
    return true;
  }
  for (; next != waiting.end(); ++next) {
    if (BeginLocked(*next, changed)) return true;
  }
  return false;
}

// Starts the job if one of its devices is free and has the memory; otherwise sets the reason why it
// waits.
bool JobQueue::BeginLocked(const std::shared_ptr<Entry>& entry, bool* changed) {
  JobStatus& status = entry->status;
  bool healthy = false;
  std::string code = "WAITING_FOR_DEVICE", reason = "its device is busy";
  for (int i = 0; i < context_.devices.size(); ++i) {
    const int d = (next_device_ + i) % context_.devices.size();
    auto plan = entry->plans.find(d);
    if (plan == entry->plans.end() || !context_.devices.device(d).Health().ok()) continue;
    healthy = true;
    Lane& lane = lanes_[static_cast<size_t>(d)];
    if (lane.turn != nullptr) continue;
    Worker* worker = nullptr;
    const absl::Status found =
        base::ExceptionToStatus([&] { return worker = &WorkerOfLocked(d), absl::OkStatus(); });
    if (!found.ok()) {
      code = "WAITING_FOR_THREAD";
      reason = std::string(found.message());
      continue;
    }
    auto charges =
        context_.ledger->Reserve(d, status.name, status.spec.title, NeedsOf(plan->second), nullptr);
    if (!charges.ok()) {
      code = "WAITING_FOR_MEMORY";
      reason = std::string(charges.status().message());
      continue;
    }
    memory::ChargeHolder held(context_.ledger, *std::move(charges));
    entry->device = d;
    status.device = base::DeviceName(d);
    status.plan = plan->second.text;
    status.memory_bytes = plan->second.bytes();
    SetStateLocked(*entry, JobState::kRunning, "", "");
    entry->charges = held.Keep();
    lane.turn = entry;
    worker->entry = entry;
    next_device_ = (d + 1) % context_.devices.size();
    served_[status.spec.group] = ++turn_;
    cv_.NotifyAll();
    return true;
  }
  if (!healthy) {
    gone_.push_back(std::move(entry->work));
    SetStateLocked(*entry, JobState::kFailed, Name(Reason::kDeviceDown),
                   "no device that the job could run on is healthy any more");
    *changed = true;
  } else if (status.reason_code != code || status.reason != reason) {
    status.reason_code = std::string(code);
    status.reason = reason;
    ++status.event_count;
    *changed = true;
  }
  return false;
}

void JobQueue::Tick() {
  bool changed = false;
  std::vector<std::unique_ptr<JobWork>> gone;  // release what they held outside the lock
  std::vector<std::unique_ptr<Worker>> left;
  {
    MutexLock lock(mutex_);
    const bool waits = std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
      return entry->status.state == JobState::kQueued || entry->returned > 0;
    });
    if (waits) changed = DispatchLocked();
    gone.swap(gone_);
    left.swap(left_);
  }
  for (const auto& worker : left) worker->thread.join();
  if (changed) context_.observer->OnJobsChanged();
}

// -- turns

// An idle worker of the device, or a new one if all are busy.
JobQueue::Worker& JobQueue::WorkerOfLocked(int device) {
  auto& workers = lanes_[static_cast<size_t>(device)].workers;
  for (const auto& worker : workers) {
    if (worker->entry == nullptr) return *worker;
  }
  workers.reserve(workers.size() + 1);
  auto made = std::make_unique<Worker>();
  Worker& worker = *made;
  (void)Failpoint("thread_started");
  worker.thread = std::jthread([this, device, &worker] {
    pthread_setname_np(pthread_self(), "oct-job");
    Work(device, worker);
  });
  workers.push_back(std::move(made));
  return worker;
}

// True if the worker is idle and another one is, too. So after many jobs waited for their input at
// the same time, only one thread and one stream remain.
bool JobQueue::LeavesLocked(int device, const Worker& worker) {
  auto& workers = lanes_[static_cast<size_t>(device)].workers;
  if (ends_ || worker.entry != nullptr) return false;
  if (std::none_of(workers.begin(), workers.end(),
                   [&](const auto& w) { return w.get() != &worker && w->entry == nullptr; }))
    return false;
  const auto it = std::find_if(workers.begin(), workers.end(),
                               [&](const auto& w) { return w.get() == &worker; });
  left_.push_back(std::move(*it));
  workers.erase(it);
  return true;
}

void JobQueue::GiveUpTurn(const std::shared_ptr<Entry>& entry) {
  {
    MutexLock lock(mutex_);
    Lane& lane = lanes_[static_cast<size_t>(entry->device)];
    if (lane.turn == entry) lane.turn.reset();
    DispatchLocked();
  }
  context_.observer->OnJobsChanged();
}

absl::Status JobQueue::TakeTurn(const std::shared_ptr<Entry>& entry, const std::stop_token& stop) {
  {
    MutexLock lock(mutex_);
    entry->returned = ++returns_;
    DispatchLocked();
    if (lanes_[static_cast<size_t>(entry->device)].turn != entry)
      Record(*entry, "waits for its device, which another job has meanwhile");
  }
  context_.observer->OnJobsChanged();
  MutexLock lock(mutex_);
  const Lane& lane = lanes_[static_cast<size_t>(entry->device)];
  while (lane.turn != entry && !stop.stop_requested()) cv_.Wait(lock);
  entry->returned = 0;
  return lane.turn == entry ? absl::OkStatus() : absl::CancelledError("cancelled");
}

}  // namespace octavo::job
