#include "server/volume/committer.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/memory/stripe_layout.h"

namespace octavo::volume {
namespace {

constexpr int64_t kRememberNs = int64_t{600} * 1'000'000'000;

std::string FileName(absl::string_view text) {
  std::string out;
  for (const char c : text)
    out += absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.'
               ? c
               : '_';
  return absl::StartsWith(out, ".") ? absl::StrCat("_", out) : out;
}

std::string DateOf(int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  const size_t n = std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return std::string(text, n);
}

absl::Status Cancelled() {
  return WithInfo(absl::CancelledError("the commit was cancelled; the volume stays held"),
                  {.reason = Reason::kCommitCancelled, .field = "", .numbers = {}});
}

// Ends the commit. If the end throws before it has changed the volume, abandons the commit, so that
// the volume is HELD, and returns what was thrown.
absl::Status FinishOrAbandon(VolumeCommit commit,
                             const absl::StatusOr<storage::CommitOutcome>& outcome) {
  absl::Status thrown = base::ExceptionToStatus([&] {
    (void)Failpoint("commit_finished");
    std::move(commit).Finish(outcome);
    return absl::OkStatus();
  });
  // NOLINTNEXTLINE(bugprone-use-after-move): Finish does not move the object.
  if (thrown.ok() || commit.under_way()) return thrown;
  Log(LogLevel::kError, "observers were not told of the end of a commit",
      {{"error", thrown.ToString()}});
  return absl::OkStatus();
}

// The error of a pool that has no memory for a slab. A smaller slab may fit.
absl::Status SlabRefused(const absl::Status& why) {
  ErrorInfo info = InfoOf(why);
  if (info.reason != Reason::kNoStaging) return Annotate(why, "memory for a slab");
  info.field = "options.chunk";
  return WithInfo(absl::ResourceExhaustedError(
                      absl::StrCat(why.message(), ", or use a smaller chunk or shard along y")),
                  info);
}

}  // namespace

absl::StatusOr<std::string> ExpandDestination(const std::string& destination,
                                              const model::VolumeStatus& volume) {
  constexpr char kField[] = "options.destination";
  absl::string_view scan = volume.scan;
  absl::ConsumePrefix(&scan, "scans/");
  std::string out;
  for (size_t i = 0; i < destination.size(); ++i) {
    if (destination[i] != '{') {
      if (destination[i] == '}')
        return InvalidField(kField, absl::StrCat("'", destination, "' has a '}' without a '{'"));
      out += destination[i];
      continue;
    }
    const size_t close = destination.find('}', i);
    const std::string token =
        close == std::string::npos ? destination.substr(i) : destination.substr(i, close - i + 1);
    int width = 0;
    if (token == "{scan}") {
      absl::StrAppend(&out, scan);
    } else if (token == "{title}") {
      out += volume.title.empty() ? "untitled" : FileName(volume.title);
    } else if (token == "{date}") {
      out += DateOf(volume.acquired_begin.unix_ns);
    } else if (token == "{index}") {
      absl::StrAppend(&out, volume.index);
    } else if (token.size() == 10 && absl::StartsWith(token, "{index:0") &&
               absl::ascii_isdigit(static_cast<unsigned char>(token[8])) &&
               (width = token[8] - '0') > 0) {
      absl::StrAppend(&out, absl::StrFormat("%0*d", width, volume.index));
    } else {
      return InvalidField(
          kField,
          absl::StrCat(
              "'", token,
              "' is no template field; allowed are {scan} {index} {index:05} {title} {date}"));
    }
    i = close;
  }
  if (out.empty()) return InvalidField(kField, "is empty; give a path relative to a storage root");
  return out;
}

struct Committer::Job {
  std::string volume, scan, request_id, destination;
  model::CommitOptions options;
  std::atomic<bool> cancel{false};
  bool automatic = false;
  std::recursive_mutex callback_mutex;  // recursive: a callback may cancel its own handle
  std::map<int, CommitCallbacks> callbacks;
  int next_id = 0;
  std::optional<absl::StatusOr<storage::CommitOutcome>>
      outcome;  // set at the end; no callbacks are called after it
  CommitProgress progress;
  int64_t told_ns = 0;

  void Tell(const CommitProgress& now, const Clock& clock, bool force) {
    const int64_t at = clock.Now().monotonic_ns;
    if (!force && at - told_ns < 100'000'000) return;
    told_ns = at;
    std::lock_guard lock(callback_mutex);
    progress = now;
    for (auto it = callbacks.begin(); it != callbacks.end();) {
      auto callback = (it++)->second.on_progress;  // a copy: the entry may cancel itself away
      if (callback) callback(now);
    }
  }
  /// Notifies all callers of the job; a caller that joins later is notified at once.
  void End(absl::StatusOr<storage::CommitOutcome> with) {
    std::lock_guard lock(callback_mutex);
    outcome = std::move(with);
    for (auto& [id, callback] : std::exchange(callbacks, {})) {
      if (callback.on_done) callback.on_done(*outcome);
    }
  }
};

class Committer::JobHandle final : public base::Handle {
 public:
  JobHandle(std::shared_ptr<Job> job, int id) : job_(std::move(job)), id_(id) {}
  void Cancel() override {
    std::lock_guard lock(job_->callback_mutex);
    job_->callbacks.erase(id_);
    if (job_->callbacks.empty() && !job_->automatic) job_->cancel = true;
  }

 private:
  const std::shared_ptr<Job> job_;
  const int id_;
};

namespace {
class NoHandle final : public base::Handle {
  void Cancel() override {}
};
}  // namespace

Committer::Committer(Context context, int threads)
    : context_(std::move(context)), pool_("oct-commit", threads) {}
Committer::~Committer() { CancelAll(); }

absl::StatusOr<std::shared_ptr<base::Handle>> Committer::Commit(const std::string& name,
                                                                const model::CommitOptions& options,
                                                                const std::string& request_id,
                                                                CommitCallbacks callbacks,
                                                                const ClientVerb* asked) {
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Job> earlier, Earlier(name, request_id, nullptr));
  if (earlier != nullptr) return Join(earlier, std::move(callbacks));
  auto job = std::make_shared<Job>();
  const auto commit = std::make_shared<VolumeCommit>();  // tasks of the pool can be copied
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, context_.volumes->Get(name));
  OCTAVO_RETURN_IF_ERROR(CheckTransition(name, volume.state, model::VolumeState::kCommitting));
  OCTAVO_ASSIGN_OR_RETURN(job->destination, ExpandDestination(options.destination, volume));
  OCTAVO_RETURN_IF_ERROR(
      storage::ResolveDestination(context_.storage->roots(), job->destination).status());
  job->volume = name;
  job->scan = volume.scan;
  job->request_id = request_id;
  job->options = options;
  OCTAVO_ASSIGN_OR_RETURN(job->options.writer,
                          storage::ResolveOptions(options.writer, context_.meta_of(volume)));
  job->automatic = !callbacks.on_done;
  auto handle = Join(job, callbacks);
  // Listed before the volume is committing: a retry finds one or the other.
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Job> meanwhile, Earlier(name, request_id, job));
  if (meanwhile != nullptr) return Join(meanwhile, std::move(callbacks));
  // From here on no other verb can take or discard the volume.
  const absl::Status begun = base::ExceptionToStatus([&]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(*commit, context_.volumes->BeginCommit(name, asked));
    pool_.Post([this, job, commit] { Run(job, std::move(*commit)); });
    return absl::OkStatus();
  });
  if (!begun.ok()) {
    (void)FinishOrAbandon(std::move(*commit), begun);
    {
      MutexLock lock(mutex_);
      jobs_.remove(job);
    }
    handle->Cancel();  // this caller gets the answer of Commit
    job->End(begun);   // other callers may have joined the job
    return begun;
  }
  return handle;
}

absl::Status Committer::Check(const model::CommitOptions& options) const {
  model::VolumeStatus unknown;
  unknown.title = "title";
  OCTAVO_ASSIGN_OR_RETURN(const std::string destination,
                          ExpandDestination(options.destination, unknown));
  if (absl::StrContains(options.destination, "{"))
    return storage::ResolveDestination(context_.storage->roots(), destination).status();
  return context_.storage->Check(destination, options.writer);
}

absl::StatusOr<std::shared_ptr<Committer::Job>> Committer::Earlier(
    const std::string& name, const std::string& request_id, const std::shared_ptr<Job>& otherwise) {
  MutexLock lock(mutex_);
  const int64_t now = context_.clock->Now().monotonic_ns;
  std::erase_if(done_, [&](const auto& item) { return now - item.second.at_ns > kRememberNs; });
  std::shared_ptr<Job> found;
  if (!request_id.empty()) {
    const auto job = std::find_if(jobs_.begin(), jobs_.end(),
                                  [&](const auto& j) { return j->request_id == request_id; });
    const auto done = done_.find(request_id);
    if (job != jobs_.end()) {
      found = *job;
    } else if (done != done_.end()) {
      found = std::make_shared<Job>();
      found->volume = done->second.volume;
      found->outcome = done->second.outcome;
    }
  }
  if (found != nullptr && found->volume != name) {
    return WithInfo(absl::AlreadyExistsError(absl::StrCat("request_id '", request_id,
                                                          "' was used to commit ", found->volume)),
                    {.reason = Reason::kIdempotencyMismatch, .field = "request_id", .numbers = {}});
  }
  if (found == nullptr && otherwise != nullptr) jobs_.push_back(otherwise);
  return found;
}

std::shared_ptr<base::Handle> Committer::Join(const std::shared_ptr<Job>& job,
                                              CommitCallbacks callbacks) {
  std::lock_guard lock(job->callback_mutex);
  if (job->outcome.has_value()) {  // the job has ended since
    if (callbacks.on_done)
      pool_.Post([done = std::move(callbacks.on_done), outcome = *job->outcome] { done(outcome); });
    return std::make_shared<NoHandle>();
  }
  const int id = job->next_id++;
  job->callbacks[id] = std::move(callbacks);
  return std::make_shared<JobHandle>(job, id);
}

void Committer::Run(const std::shared_ptr<Job>& job, VolumeCommit commit) {
  VolumeHold hold;
  auto outcome = base::ExceptionToStatus([&]() -> absl::StatusOr<storage::CommitOutcome> {
    if (job->cancel) return Cancelled();
    OCTAVO_ASSIGN_OR_RETURN(hold, context_.volumes->Hold(job->volume, HoldKind::kRead));
    return Write(*job, hold);
  });
  // The hold ends before the volume releases its memory, so that the slot is free when observers
  // hear of it.
  hold.Release();
  if (absl::Status finished = FinishOrAbandon(std::move(commit), outcome); !finished.ok())
    outcome = std::move(finished);
  const absl::Status recorded = base::ExceptionToStatus([&] {
    Record(*job, outcome);
    return absl::OkStatus();
  });
  if (!recorded.ok()) {
    Log(LogLevel::kError, "a commit has ended and is not counted, and a retry does not find it",
        {{"volume", job->volume}, {"error", recorded.ToString()}});
  }
  if (outcome.ok()) {
    Log(LogLevel::kInfo, "volume committed",
        {{"volume", job->volume},
         {"path", outcome->path},
         {"bytes", outcome->disk_bytes},
         {"seconds", outcome->seconds}});
  } else {
    Log(LogLevel::kError, "commit failed; the volume stays held",
        {{"volume", job->volume}, {"error", std::string(outcome.status().message())}});
  }
  job->End(std::move(outcome));
}

void Committer::Record(const Job& job, const absl::StatusOr<storage::CommitOutcome>& outcome) {
  MutexLock lock(mutex_);
  // First, because it does not throw: a listed job counts as pending.
  jobs_.remove_if([&](const auto& listed) { return listed.get() == &job; });
  if (!outcome.ok()) {
    ++errors_[std::string(Name(ReasonOrCode(outcome.status())))];
    return;
  }
  seconds_.Add(outcome->seconds);
  bytes_ += outcome->disk_bytes;
  if (job.request_id.empty()) return;
  done_[job.request_id] = {
      .volume = job.volume, .outcome = *outcome, .at_ns = context_.clock->Now().monotonic_ns};
}

absl::StatusOr<storage::CommitOutcome> Committer::Write(Job& job, const VolumeHold& hold) {
  const model::VolumeStatus& volume = hold.status;
  Device* const device = &context_.devices.device(hold.device);
  const std::shared_ptr<memory::FramePool>& pool = context_.devices.frames(hold.device);
  const int64_t begun = context_.clock->Now().monotonic_ns;
  CommitProgress progress{.done_bytes = 0,
                          .total_bytes = volume.bytes,
                          .disk_bytes = 0,
                          .seconds = 0,
                          .stage = "preparing"};
  job.Tell(progress, *context_.clock,
           /*force=*/true);  // before the first touch of a storage that may be slow
  const std::string commit_id = job.volume.substr(job.volume.find('/') + 1);
  OCTAVO_ASSIGN_OR_RETURN(auto transaction,
                          context_.storage->Begin(commit_id, job.destination,
                                                  context_.meta_of(volume), job.options.writer));
  const int64_t plane_bytes = volume.shape[1] * volume.shape[2] * SizeOf(volume.dtype);
  const int64_t slab = std::max<int64_t>(1, std::min(transaction->SlabBscans(), volume.shape[0]));

  // One slab is copied from the device while the other is encoded. If memory is short, one slab
  // suffices. The stream is declared after them, because its end waits for the copies that an early
  // return leaves behind.
  auto first = pool->Get(slab * plane_bytes);
  if (!first.ok()) return SlabRefused(first.status());
  auto second = pool->Get(slab * plane_bytes);
  const std::shared_ptr<void> memory[2] = {*std::move(first),
                                           second.ok() ? *std::move(second) : nullptr};
  const int buffers = memory[1] == nullptr ? 1 : 2;
  OCTAVO_ASSIGN_OR_RETURN(Stream stream, device->NewStream(StreamPriority::kLow));
  const auto fetch = [&](int64_t y, int buffer) {
    const int64_t count = std::min(slab, volume.shape[0] - y);
    if (hold.cursor != nullptr)
      return hold.cursor->Read(y * plane_bytes, count * plane_bytes, memory[buffer].get());
    return memory::CopyVolumeBytes(*device, stream.ref(), memory[buffer].get(), *hold.slot, volume,
                                   y * plane_bytes, count * plane_bytes);
  };
  const auto tell = [&](const char* stage, bool force) {
    progress.stage = stage;
    progress.disk_bytes = transaction->DiskBytes();
    progress.seconds = static_cast<double>(context_.clock->Now().monotonic_ns - begun) * 1e-9;
    job.Tell(progress, *context_.clock, force);
  };
  tell("writing", true);
  if (buffers == 2) OCTAVO_RETURN_IF_ERROR(fetch(0, 0));
  int buffer = 0;
  for (int64_t y = 0; y < volume.shape[0]; y += slab) {
    if (job.cancel) return Cancelled();
    if (buffers == 1) OCTAVO_RETURN_IF_ERROR(fetch(y, 0));
    OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
    if (buffers == 2 && y + slab < volume.shape[0])
      OCTAVO_RETURN_IF_ERROR(fetch(y + slab, 1 - buffer));
    const int64_t count = std::min(slab, volume.shape[0] - y);
    absl::Status written = transaction->WriteSlab(y, count, memory[buffer].get());
    if (!written.ok()) return written;
    if (buffers == 2) buffer = 1 - buffer;
    progress.done_bytes += count * plane_bytes;
    tell("writing", false);
  }
  if (job.cancel) return Cancelled();
  tell("syncing", true);
  OCTAVO_ASSIGN_OR_RETURN(storage::CommitOutcome outcome, transaction->Publish());
  outcome.seconds = static_cast<double>(context_.clock->Now().monotonic_ns - begun) * 1e-9;
  progress.disk_bytes = outcome.disk_bytes;
  tell("done", true);
  return outcome;
}

bool Committer::PendingOf(const std::string& scan) {
  MutexLock lock(mutex_);
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [&](const auto& job) { return job->scan == scan; });
}

void Committer::CancelAll() {
  MutexLock lock(mutex_);
  for (const auto& job : jobs_) job->cancel = true;
}

void Committer::AddTo(model::Stats* stats) {
  MutexLock lock(mutex_);
  stats->commit_seconds = seconds_;
  stats->commit_bytes = bytes_;
  stats->commit_errors = errors_;
}

}  // namespace octavo::volume
