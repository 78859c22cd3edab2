#include "server/volume/committer.h"

#include <algorithm>
#include <atomic>
#include <ctime>
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
#include "server/storage/commit/whole_commit.h"

namespace octavo::volume {
namespace {

/// As in volume_store.cc.
const std::string& EndOf(const model::VolumeStatus& volume) {
  return volume.has_commit ? volume.commit.path : volume.reason;
}

constexpr char kNothing[] = "nothing was written";
constexpr double kWriting = 0.95;  // share of the progress; the rest is for making files durable

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

absl::Status Cancelled(const char* left = "the volume stays held") {
  return WithInfo(absl::CancelledError(absl::StrCat("the commit was cancelled; ", left)),
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

// volumes/<id> → <id>
std::string CommitIdOf(const std::string& volume) { return volume.substr(volume.find('/') + 1); }

// What a commit reports while its slabs are written.
struct Reports {
  const model::WorkControl& control;
  storage::CommitTransaction& transaction;
  model::WorkProgress progress;

  void Tell(model::WorkStage stage) {
    progress.stage = stage;
    progress.disk_bytes = transaction.DiskBytes();
    progress.fraction = kWriting * static_cast<double>(progress.done_bytes) /
                        static_cast<double>(progress.total_bytes);
    control.Report(progress);
  }
  // Makes the files durable and gives them their name.
  absl::StatusOr<storage::CommitOutcome> Publish(const Clock& clock, int64_t begun_ns) {
    Tell(model::WorkStage::kSyncing);
    OCTAVO_ASSIGN_OR_RETURN(storage::CommitOutcome outcome, transaction.Publish());
    outcome.seconds = static_cast<double>(clock.Now().monotonic_ns - begun_ns) * 1e-9;
    progress.disk_bytes = outcome.disk_bytes;
    control.Report(progress);
    return outcome;
  }
};

// Adds to the error of a destination that is taken whether a whole commit is there, for clients
// that go on with work that was stopped (octavo recon --skip-existing).
absl::Status TellingWhatIsThere(const absl::Status& taken, const absl::Status& whole) {
  ErrorInfo info = InfoOf(taken);
  info.numbers.emplace_back("whole", whole.ok() ? "true" : "false");
  if (!whole.ok()) info.numbers.emplace_back("lacks", whole.message());
  return WithInfo(taken, info);
}

// Adds to the error of a destination that is taken which field it is, and what to write.
absl::Status NamingDestination(absl::Status error) {
  if (!absl::IsAlreadyExists(error)) return error;
  const ErrorInfo info = InfoOf(error);
  return WithInfo(absl::AlreadyExistsError(absl::StrCat(
                      "options.destination: ", error.message(),
                      "; allowed is a path where nothing is: {scan}, {index} or {date} in it make "
                      "one for each volume")),
                  {.reason = info.reason, .field = "options.destination", .numbers = info.numbers});
}

}  // namespace

absl::StatusOr<std::string> ExpandDestination(const std::string& destination,
                                              const model::VolumeStatus& volume) {
  constexpr char kField[] = "options.destination";
  absl::string_view scan = volume.scan;
  if (!absl::ConsumePrefix(&scan, "scans/")) absl::ConsumePrefix(&scan, "jobs/");
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
  std::string volume, scan, destination;
  std::optional<Array> array;  // instead of a volume, whose name is then the array's
  model::CommitOptions options;
  model::WorkControl control;
  Done done;
  CommitNews news;
  std::atomic<bool> cancel{false};  // the committer ends

  bool stopped() const { return cancel || control.stop.stop_requested(); }
};

Committer::Committer(Context context, int threads)
    : context_(std::move(context)), pool_("oct-commit", threads) {}
Committer::~Committer() { CancelAll(); }

absl::Status Committer::Commit(const std::string& name, const model::CommitOptions& options,
                               model::WorkControl control, Done done, const ClientVerb* asked) {
  auto job = std::make_shared<Job>();
  const auto commit = std::make_shared<VolumeCommit>();  // tasks of the pool can be copied
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, context_.volumes->Get(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(volume, asked));
  OCTAVO_RETURN_IF_ERROR(
      CheckTransition(name, volume.state, model::VolumeState::kCommitting, EndOf(volume)));
  OCTAVO_ASSIGN_OR_RETURN(job->destination, ExpandDestination(options.destination, volume));
  OCTAVO_RETURN_IF_ERROR(
      storage::ResolveDestination(context_.storage->roots(), job->destination).status());
  job->volume = name;
  job->scan = volume.scan;
  job->options = options;
  OCTAVO_ASSIGN_OR_RETURN(job->options.writer,
                          storage::ResolveOptions(options.writer, context_.meta_of(volume)));
  job->control = std::move(control);
  job->done = std::move(done);
  job->news = {.volume = name,
               .title = volume.title,
               .scan = volume.scan,
               .job = volume.job,
               .destination = job->destination,
               .commit_id = CommitIdOf(name),
               .origin = job->control.origin,
               .begun = context_.clock->Now()};
  // From here on no other verb can take or discard the volume.
  bool told = false;
  const absl::Status begun = base::ExceptionToStatus([&]() -> absl::Status {
    {
      MutexLock lock(mutex_);
      jobs_.push_back(job);
    }
    OCTAVO_ASSIGN_OR_RETURN(*commit, context_.volumes->BeginCommit(name, asked));
    TellBegun(*job);
    told = true;
    pool_.Post([this, job, commit] { Run(job, std::move(*commit)); });
    return absl::OkStatus();
  });
  if (begun.ok()) return begun;
  (void)FinishOrAbandon(std::move(*commit), begun);
  if (told && context_.observer != nullptr) context_.observer->OnCommitEnded(job->news, begun);
  MutexLock lock(mutex_);
  jobs_.remove(job);
  return begun;
}

absl::Status Committer::CommitArray(Array array, const model::CommitOptions& options,
                                    model::WorkControl control, Done done) {
  auto job = std::make_shared<Job>();
  job->volume = array.name;
  job->destination = options.destination;
  job->options = options;
  OCTAVO_RETURN_IF_ERROR(
      storage::ResolveDestination(context_.storage->roots(), job->destination).status());
  OCTAVO_ASSIGN_OR_RETURN(job->options.writer, storage::ResolveOptions(options.writer, array.meta));
  const absl::Status free = context_.storage->Check(job->destination, job->options.writer);
  if (!free.ok()) {
    MutexLock lock(mutex_);
    if (absl::IsAlreadyExists(free)) ++errors_[std::string(Name(ReasonOrCode(free)))];
    return NamingDestination(free);
  }
  job->news = {.volume = array.name,
               .title = array.meta.title,
               .scan = {},
               .job = {},
               .destination = job->destination,
               .commit_id = array.commit_id,
               .origin = control.origin,
               .begun = context_.clock->Now()};
  job->array = std::move(array);
  job->control = std::move(control);
  job->done = std::move(done);
  bool told = false;
  const absl::Status begun = base::ExceptionToStatus([&] {
    {
      MutexLock lock(mutex_);
      jobs_.push_back(job);
    }
    TellBegun(*job);
    told = true;
    pool_.Post([this, job] { RunArray(job); });
    return absl::OkStatus();
  });
  if (begun.ok()) return begun;
  if (told && context_.observer != nullptr) context_.observer->OnCommitEnded(job->news, begun);
  MutexLock lock(mutex_);
  jobs_.remove(job);
  return begun;
}

absl::Status Committer::Check(const model::CommitOptions& options, const std::string& name) {
  model::VolumeStatus volume;
  volume.title = "title";
  volume.scan = "scans/id";
  storage::WriterOptions writer = options.writer;
  if (!name.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(volume, context_.volumes->Get(name));
    OCTAVO_RETURN_IF_ERROR(
        CheckTransition(name, volume.state, model::VolumeState::kCommitting, EndOf(volume)));
    OCTAVO_ASSIGN_OR_RETURN(writer,
                            storage::ResolveOptions(options.writer, context_.meta_of(volume)));
  }
  OCTAVO_ASSIGN_OR_RETURN(const std::string destination,
                          ExpandDestination(options.destination, volume));
  if (name.empty() && absl::StrContains(options.destination, "{"))
    return storage::ResolveDestination(context_.storage->roots(), destination).status();
  absl::Status free = context_.storage->Check(destination, writer);
  if (name.empty() && absl::IsAlreadyExists(free)) {
    free = TellingWhatIsThere(free,
                              storage::CheckWhole(context_.storage->roots(), destination, writer));
  } else if (absl::IsAlreadyExists(free)) {
    MutexLock lock(mutex_);
    ++errors_[std::string(Name(ReasonOrCode(free)))];
  }
  return NamingDestination(std::move(free));
}

void Committer::Run(const std::shared_ptr<Job>& job, VolumeCommit commit) {
  VolumeHold hold;
  auto outcome = base::ExceptionToStatus([&]() -> absl::StatusOr<storage::CommitOutcome> {
    if (job->stopped()) return Cancelled();
    OCTAVO_ASSIGN_OR_RETURN(hold, context_.volumes->Hold(job->volume, HoldKind::kRead));
    auto written = Write(*job, hold);
    if (!written.ok()) return NamingDestination(written.status());
    return written;
  });
  // The hold ends before the volume releases its memory, so that the slot is free when observers
  // hear of it.
  hold.Release();
  if (absl::Status finished = FinishOrAbandon(std::move(commit), outcome); !finished.ok())
    outcome = std::move(finished);
  End(*job, outcome);
}

void Committer::RunArray(const std::shared_ptr<Job>& job) {
  auto outcome = base::ExceptionToStatus([&]() -> absl::StatusOr<storage::CommitOutcome> {
    if (job->stopped()) return Cancelled(kNothing);
    auto written = WriteArray(*job);
    if (!written.ok()) return NamingDestination(written.status());
    return written;
  });
  // What it reads is free when the one that asked hears of the end.
  job->array->read = nullptr;
  End(*job, outcome);
}

void Committer::TellBegun(const Job& job) {
  if (context_.observer != nullptr) context_.observer->OnCommitBegun(job.news);
}

void Committer::End(const Job& job, const absl::StatusOr<storage::CommitOutcome>& outcome) {
  // Before the one that asked hears of it: what it does next must not be told before.
  if (context_.observer != nullptr) context_.observer->OnCommitEnded(job.news, outcome);
  const absl::Status recorded = base::ExceptionToStatus([&] {
    Record(job, outcome);
    return absl::OkStatus();
  });
  if (!recorded.ok()) {
    Log(LogLevel::kError, "a commit has ended and is not counted",
        {{"volume", job.volume}, {"error", recorded.ToString()}});
  }
  const char* const kind = job.array.has_value() ? "buffer" : "volume";
  if (outcome.ok()) {
    Log(LogLevel::kInfo, absl::StrCat(kind, " committed"),
        {{kind, job.volume},
         {"path", outcome->path},
         {"bytes", outcome->disk_bytes},
         {"seconds", outcome->seconds}});
  } else {
    const bool cancelled = outcome.status().code() == absl::StatusCode::kCancelled;
    Log(cancelled ? LogLevel::kInfo : LogLevel::kError,
        absl::StrCat(cancelled ? "commit cancelled; " : "commit failed; ",
                     job.array.has_value() ? "nothing was written" : "the volume stays held"),
        {{kind, job.volume}, {"error", std::string(outcome.status().message())}});
  }
  job.done(outcome);
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
}

absl::StatusOr<storage::CommitOutcome> Committer::Write(const Job& job, const VolumeHold& hold) {
  const model::VolumeStatus& volume = hold.status;
  Device* const device = &context_.devices.device(hold.device);
  const std::shared_ptr<memory::FramePool>& pool = context_.devices.frames(hold.device);
  const int64_t begun = context_.clock->Now().monotonic_ns;
  model::WorkProgress progress{.stage = model::WorkStage::kPreparing, .total_bytes = volume.bytes};
  job.control.Report(progress);  // before the first touch of a storage that may be slow
  if (job.stopped()) return Cancelled();
  OCTAVO_ASSIGN_OR_RETURN(auto transaction,
                          context_.storage->Begin(job.news.commit_id, job.destination,
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
  Reports reports{.control = job.control, .transaction = *transaction, .progress = progress};
  reports.Tell(model::WorkStage::kWriting);
  if (buffers == 2) OCTAVO_RETURN_IF_ERROR(fetch(0, 0));
  int buffer = 0;
  for (int64_t y = 0; y < volume.shape[0]; y += slab) {
    if (job.stopped()) return Cancelled();
    if (buffers == 1) OCTAVO_RETURN_IF_ERROR(fetch(y, 0));
    OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
    if (buffers == 2 && y + slab < volume.shape[0])
      OCTAVO_RETURN_IF_ERROR(fetch(y + slab, 1 - buffer));
    const int64_t count = std::min(slab, volume.shape[0] - y);
    absl::Status written = transaction->WriteSlab(y, count, memory[buffer].get());
    if (!written.ok()) return written;
    if (buffers == 2) buffer = 1 - buffer;
    reports.progress.done_bytes += count * plane_bytes;
    reports.Tell(model::WorkStage::kWriting);
  }
  if (job.stopped()) return Cancelled();
  return reports.Publish(*context_.clock, begun);
}

absl::StatusOr<storage::CommitOutcome> Committer::WriteArray(const Job& job) {
  const storage::VolumeMeta& meta = job.array->meta;
  const int64_t plane_bytes = meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype),
                begun = context_.clock->Now().monotonic_ns;
  const model::WorkProgress progress{.stage = model::WorkStage::kPreparing,
                                     .total_bytes = meta.shape[0] * plane_bytes};
  job.control.Report(progress);  // before the first touch of a storage that may be slow
  OCTAVO_ASSIGN_OR_RETURN(
      auto transaction,
      context_.storage->Begin(job.array->commit_id, job.destination, meta, job.options.writer));
  const int64_t slab = std::max<int64_t>(1, std::min(transaction->SlabBscans(), meta.shape[0]));
  const auto memory = context_.devices.frames(job.array->device)->Get(slab * plane_bytes);
  if (!memory.ok()) return SlabRefused(memory.status());
  Reports reports{.control = job.control, .transaction = *transaction, .progress = progress};
  for (int64_t y = 0; y < meta.shape[0]; y += slab) {
    if (job.stopped()) return Cancelled(kNothing);
    const int64_t count = std::min(slab, meta.shape[0] - y);
    OCTAVO_RETURN_IF_ERROR(job.array->read(count * plane_bytes, memory->get()));
    OCTAVO_RETURN_IF_ERROR(transaction->WriteSlab(y, count, memory->get()));
    reports.progress.done_bytes += count * plane_bytes;
    reports.Tell(model::WorkStage::kWriting);
  }
  if (job.stopped()) return Cancelled(kNothing);
  return reports.Publish(*context_.clock, begun);
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
