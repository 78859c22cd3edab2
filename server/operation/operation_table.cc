#include "server/operation/operation_table.h"

#include <algorithm>
#include <stop_token>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/base/sha256.h"
#include "server/security/rights.h"

namespace octavo::operation {
namespace {

/// A thread broke the work off, or no thread took it over, so it has no result.
absl::Status Abandoned() {
  return absl::InternalError("the server gave up the operation before its end");
}

/// About how many bytes of memory an operation takes.
int64_t BytesOf(const OperationStatus& status) {
  int64_t bytes = 1024 + static_cast<int64_t>(status.name.size() + status.target.size() +
                                              status.request_id.size());
  for (const std::string& volume : status.volumes) bytes += static_cast<int64_t>(volume.size());
  if (status.commit.has_value()) bytes += static_cast<int64_t>(status.commit->path.size());
  if (!status.error.ok()) {
    bytes += static_cast<int64_t>(status.error.message().size());
    const ErrorInfo info = InfoOf(status.error);
    for (const auto& [key, value] : info.numbers)
      bytes += static_cast<int64_t>(key.size() + value.size());
  }
  return bytes;
}

}  // namespace

struct OperationTable::Entry {
  // The table's lock guards it, except name, kind, request_id, owner and trace_id, which do
  // not change.
  OperationStatus status;
  std::stop_source stop;
  uint64_t number = 0;         // in the order of their begins
  int64_t request_bytes = 0;   // of the body
  std::string request_digest;  // SHA-256 of the body
  std::string trace_id;        // of the request
  bool started = false;
  int64_t ended_bytes = 0;
};

OperationTable::OperationTable(const Clock* clock, std::string server_id,
                               OperationObserver* observer, Limits limits)
    : clock_(clock), server_id_(std::move(server_id)), observer_(observer), limits_(limits) {
  for (const auto kind : {OperationKind::kCommit, OperationKind::kSpill, OperationKind::kRestore,
                          OperationKind::kDerive}) {
    for (const auto state :
         {OperationState::kSucceeded, OperationState::kFailed, OperationState::kCancelled})
      finished_[{Name(kind), Name(state)}] = 0;
  }
}

absl::StatusOr<OperationTable::Begun> OperationTable::Begin(OperationKind kind,
                                                            const std::string& target,
                                                            const RequestKey& request) {
  auto entry = std::make_shared<Entry>();
  entry->status.name = absl::StrCat("operations/", base::NewId(server_id_));
  entry->status.kind = kind;
  entry->status.target = target;
  entry->status.request_id = request.id;
  entry->status.owner = request.owner;
  entry->trace_id = request.trace_id;
  entry->request_bytes = static_cast<int64_t>(request.body.size());
  entry->request_digest = base::Sha256(request.body);
  Begun begun{.name = entry->status.name,
              .run = std::shared_ptr<OperationRun>(new OperationRun(this, entry))};
  std::vector<EntryPtr> gone;
  MutexLock lock(mutex_);
  gone = Forget();
  const std::pair key(kind, request.id);
  if (const auto it = by_request_.find(key); !request.id.empty() && it != by_request_.end()) {
    const Entry& first = *it->second;
    if (first.request_digest != entry->request_digest || first.status.owner != request.owner) {
      return WithInfo(
          absl::AlreadyExistsError(absl::StrCat(
              "request_id: is '", request.id, "', and an earlier call used it with another body (",
              first.status.target, "); allowed a new id, or the body of that call")),
          {.reason = Reason::kIdempotencyMismatch,
           .field = "request_id",
           .numbers = {{"operation", first.status.name}}});
    }
    if (!first.started) {
      return WithInfo(absl::UnavailableError(absl::StrCat(
                          "request_id: the server has not answered the first call with '",
                          request.id, "' yet; ask again")),
                      {.reason = Reason::kInProgress,
                       .field = "request_id",
                       .numbers = {{"retryable", "true"}}});
    }
    return Begun{.name = first.status.name, .run = nullptr};
  }
  if (running_ >= limits_.running ||
      running_bytes_ + entry->request_bytes > limits_.running_bytes) {
    return WithInfo(
        absl::ResourceExhaustedError(absl::StrCat(
            "the server runs ", running_, " operations already, and their requests have ",
            running_bytes_, " bytes; allowed ", limits_.running, " operations and ",
            limits_.running_bytes, " bytes; try again later")),
        {.reason = Reason::kBusy,
         .field = "",
         .numbers = {{"running", absl::StrCat(running_)}, {"retryable", "true"}}});
  }
  if (!request.id.empty()) by_request_.emplace(key, entry);
  entry->status.created = clock_->Now();
  entry->number = ++next_number_;  // it counts from here on, so nothing below may throw
  ++running_;
  running_bytes_ += entry->request_bytes;
  return begun;
}

absl::StatusOr<OperationStatus> OperationTable::Get(const std::string& name) {
  std::vector<EntryPtr> gone;
  MutexLock lock(mutex_);
  gone = Forget();
  OCTAVO_ASSIGN_OR_RETURN(const EntryPtr entry, Find(name));
  return StatusOf(*entry);
}

std::vector<OperationStatus> OperationTable::List() {
  std::vector<EntryPtr> gone;
  std::vector<OperationStatus> list;
  MutexLock lock(mutex_);
  gone = Forget();
  list.reserve(by_number_.size());
  for (auto it = by_number_.rbegin(); it != by_number_.rend(); ++it)
    list.push_back(StatusOf(*it->second));
  return list;
}

absl::StatusOr<OperationStatus> OperationTable::Cancel(const std::string& name,
                                                       const security::Principal& caller) {
  std::vector<EntryPtr> gone;
  EntryPtr entry;
  std::optional<OperationStatus> now;
  {
    MutexLock lock(mutex_);
    gone = Forget();
    OCTAVO_ASSIGN_OR_RETURN(entry, Find(name));
    OCTAVO_RETURN_IF_ERROR(
        security::MayChange(caller, entry->status.owner, name, entry->status.target));
    if (entry->status.state == OperationState::kRunning) {
      entry->status.state = OperationState::kCancelling;
      ++entry->status.event_count;
    }
    now = StatusOf(*entry);
  }
  entry->stop.request_stop();
  observer_->OnOperationsChanged();
  return *std::move(now);
}

void OperationTable::CancelAll() {
  std::vector<EntryPtr> cancelled;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, entry] : by_number_) {
      if (entry->status.state != OperationState::kRunning) continue;
      cancelled.push_back(entry);
      entry->status.state = OperationState::kCancelling;
      ++entry->status.event_count;
    }
  }
  for (const EntryPtr& entry : cancelled) entry->stop.request_stop();
  if (!cancelled.empty()) observer_->OnOperationsChanged();
}

OperationTable::Counts OperationTable::Count() {
  std::vector<EntryPtr> gone;
  Counts counts;
  MutexLock lock(mutex_);
  gone = Forget();
  for (const auto& [key, n] : finished_) counts.running[key.first] = 0;
  for (const auto& [number, entry] : by_number_)
    counts.running[Name(entry->status.kind)] += !IsFinal(entry->status.state);
  counts.finished = finished_;
  counts.kept = std::ssize(ended_);
  counts.forgotten = forgotten_;
  return counts;
}

void OperationTable::Report(Entry& entry, const model::WorkProgress& progress) {
  {
    MutexLock lock(mutex_);
    if (IsFinal(entry.status.state)) return;
    const bool same_stage = entry.status.progress.stage == progress.stage;
    entry.status.progress = progress;
    ++entry.status.event_count;
    if (same_stage || !entry.started) return;
  }
  observer_->OnOperationsChanged();
}

void OperationTable::Start(const EntryPtr& entry, std::vector<std::string> volumes) {
  {
    MutexLock lock(mutex_);
    if (entry->started) return;
    SetStarted(entry);
    entry->status.volumes = std::move(volumes);
  }
  observer_->OnOperationsChanged();
}

void OperationTable::Finish(const EntryPtr& entry, absl::Status status,
                            std::optional<storage::CommitOutcome> commit) {
  std::vector<EntryPtr> gone;
  {
    MutexLock lock(mutex_);
    OperationStatus& now = entry->status;
    if (IsFinal(now.state)) return;
    if (!entry->started) SetStarted(entry);
    ended_.push_back(entry);  // this may throw, so it comes before the operation ends
    if (status.ok()) {
      now.state = OperationState::kSucceeded;
      now.progress.fraction = 1;
      now.progress.done_bytes = std::max(now.progress.done_bytes, now.progress.total_bytes);
      now.commit = std::move(commit);
    } else {
      now.state = absl::IsCancelled(status) ? OperationState::kCancelled : OperationState::kFailed;
      now.error = std::move(status);
    }
    now.ended = clock_->Now();
    ++now.event_count;
    ++finished_[{Name(now.kind), Name(now.state)}];
    --running_;
    running_bytes_ -= entry->request_bytes;
    entry->ended_bytes = BytesOf(now);
    ended_bytes_ += entry->ended_bytes;
    gone = Forget();
  }
  observer_->OnOperationsChanged();
}

bool OperationTable::Refuse(const EntryPtr& entry) noexcept {
  MutexLock lock(mutex_);
  if (entry->number == 0) return true;  // Begin did not count it, or Refuse was called before
  if (entry->started) return false;
  --running_;
  running_bytes_ -= entry->request_bytes;
  entry->number = 0;
  const auto it = std::find_if(by_request_.begin(), by_request_.end(),
                               [&](const auto& request) { return request.second == entry; });
  if (it != by_request_.end()) by_request_.erase(it);
  return true;
}

void OperationTable::Abandon(const EntryPtr& entry) noexcept {
  if (Refuse(entry)) return;
  try {
    Finish(entry, Abandoned(), std::nullopt);
  } catch (...) {
    Log(LogLevel::kError, "the server gave up an operation and could not tell its watchers",
        {{"operation", entry->status.name}, {"error", base::StatusOfException().ToString()}});
  }
}

OperationStatus OperationTable::StatusOf(const Entry& entry) const {
  OperationStatus status = entry.status;
  const TimePoint& end = IsFinal(status.state) ? status.ended : clock_->Now();
  status.elapsed_seconds =
      static_cast<double>(end.monotonic_ns - status.created.monotonic_ns) * 1e-9;
  return status;
}

absl::StatusOr<OperationTable::EntryPtr> OperationTable::Find(const std::string& name) {
  const auto it = by_name_.find(name);
  if (it != by_name_.end()) return it->second;
  return WithInfo(
      absl::NotFoundError(absl::StrCat(
          "no operation ", name, " (the server keeps an ended operation for ",
          limits_.ended_seconds / 60, " minutes, and at most the last ", limits_.ended, ")")),
      {.reason = Reason::kNoOperation, .field = "name", .numbers = {}});
}

void OperationTable::SetStarted(const EntryPtr& entry) {
  const auto [it, added] = by_name_.emplace(entry->status.name, entry);
  try {
    by_number_.emplace(entry->number, entry);
  } catch (...) {
    by_name_.erase(it);
    throw;
  }
  entry->started = true;
}

std::vector<OperationTable::EntryPtr> OperationTable::Forget() {
  std::vector<EntryPtr> gone;
  const int64_t oldest_ns =
      clock_->Now().monotonic_ns - static_cast<int64_t>(limits_.ended_seconds * 1e9);
  while (!ended_.empty() && (ended_.size() > limits_.ended || ended_bytes_ > limits_.ended_bytes ||
                             ended_.front()->status.ended.monotonic_ns < oldest_ns)) {
    gone.push_back(ended_.front());
    const Entry& entry = *gone.back();
    by_name_.erase(entry.status.name);
    by_number_.erase(entry.number);
    by_request_.erase({entry.status.kind, entry.status.request_id});
    ended_bytes_ -= entry.ended_bytes;
    ended_.pop_front();
    ++forgotten_;
  }
  return gone;
}

OperationRun::~OperationRun() { table_->Abandon(entry_); }

const std::string& OperationRun::name() const { return entry_->status.name; }

model::WorkControl OperationRun::control() const {
  return {.stop = entry_->stop.get_token(),
          .report = [table = table_, entry = entry_](
                        const model::WorkProgress& progress) { table->Report(*entry, progress); },
          .origin = {.operation = entry_->status.name,
                     .request_id = entry_->status.request_id,
                     .request_digest = absl::BytesToHexString(entry_->request_digest),
                     .owner = entry_->status.owner,
                     .trace_id = entry_->trace_id}};
}

void OperationRun::Started(std::vector<std::string> volumes) {
  table_->Start(entry_, std::move(volumes));
}

void OperationRun::Refuse() noexcept { (void)table_->Refuse(entry_); }

void OperationRun::Finish(absl::Status status, std::optional<storage::CommitOutcome> commit) {
  table_->Finish(entry_, std::move(status), std::move(commit));
}

}  // namespace octavo::operation
