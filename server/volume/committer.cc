#include "server/volume/committer.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
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
#include "server/volume/growth.h"

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

// The error of a pool that has no memory for a slab. A smaller slab may fit, where the format lets
// its users choose.
absl::Status SlabRefused(const absl::Status& why, storage::Format format) {
  ErrorInfo info = InfoOf(why);
  const bool chunks = format == storage::Format::kOmeZarr05 || format == storage::Format::kHdf5;
  if (info.reason != Reason::kNoStaging || !chunks) return Annotate(why, "memory for a slab");
  info.field = "options.chunk";
  return WithInfo(absl::ResourceExhaustedError(
                      absl::StrCat(why.message(), ", or use a smaller chunk or shard along y")),
                  info);
}

// Memory for a slab of `slab` B-scans. Where there is none, `slab` becomes the least that the
// transaction can do with.
absl::StatusOr<std::shared_ptr<void>> SlabMemory(memory::FramePool& pool,
                                                 const storage::CommitTransaction& transaction,
                                                 int64_t plane_bytes, storage::Format format,
                                                 int64_t& slab) {
  auto memory = pool.Get(slab * plane_bytes);
  if (const int64_t least = transaction.LeastSlabBscans(); !memory.ok() && least < slab) {
    slab = least;
    memory = pool.Get(slab * plane_bytes);
  }
  if (!memory.ok()) return SlabRefused(memory.status(), format);
  return memory;
}

// As many volumes may be written while they are made. A device makes one at a time, while the files
// of the one before are made durable; the commits of more wait until their volumes are held, as
// their memory for slabs would not suffice for all.
int MostGrowing(const memory::DeviceSet& devices) { return 2 * devices.size(); }

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
  // Of a volume that is still being made, else none.
  std::optional<GrowingVolume> growing;
  std::shared_ptr<Growth> growth;

  bool stopped() const { return cancel || control.stop.stop_requested(); }
  /// What a commit that does not succeed leaves.
  const char* left() const {
    return array.has_value() || growth != nullptr ? kNothing : "the volume stays held";
  }
};

/// The maker's side of a commit of a volume that is being made.
class Committer::Growing final : public GrowingCommit {
 public:
  Growing(const Context& context, const std::shared_ptr<Job>& job)
      : volumes_(*context.volumes),
        device_(context.devices.device(job->growing->device)),
        volume_(job->volume),
        growth_(job->growth) {}
  ~Growing() override { Failed(absl::CancelledError("nobody makes it any more")); }

  absl::Status Reach(int64_t bytes, StreamRef stream) override {
    OCTAVO_ASSIGN_OR_RETURN(Event done, device_.NewEvent());
    OCTAVO_RETURN_IF_ERROR(done.Record(stream));
    growth_->Reach(bytes, std::move(done));
    return absl::OkStatus();
  }
  void Held() override {
    VolumeCommit commit;
    std::optional<Growth::Outcome> over;
    const absl::Status begun = base::ExceptionToStatus([&]() -> absl::Status {
      // From here on no other verb can take or discard the volume.
      OCTAVO_ASSIGN_OR_RETURN(commit, volumes_.BeginCommit(volume_));
      over = growth_->Seal(commit);
      return absl::OkStatus();
    });
    if (!begun.ok()) growth_->Fail(begun);
    if (over.has_value()) (void)FinishOrAbandon(std::move(commit), *over);
  }
  void Failed(const absl::Status& why) override {
    growth_->Fail(
        WithInfo(absl::CancelledError(absl::StrCat(
                     "the commit was cancelled, because its volume was not made: ", why.message())),
                 {.reason = Reason::kCommitCancelled, .field = "", .numbers = {}}));
  }

 private:
  VolumeStore& volumes_;
  Device& device_;
  const std::string volume_;
  const std::shared_ptr<Growth> growth_;
};

Committer::Committer(Context context, int threads)
    : context_(std::move(context)),
      pool_("oct-commit", threads),
      growing_pool_("oct-grow", MostGrowing(context_.devices)) {}
Committer::~Committer() { CancelAll(); }

absl::StatusOr<std::shared_ptr<Committer::Job>> Committer::Prepare(
    const model::VolumeStatus& volume, const model::CommitOptions& options,
    model::WorkControl control, Done done) {
  auto job = std::make_shared<Job>();
  OCTAVO_ASSIGN_OR_RETURN(job->destination, ExpandDestination(options.destination, volume));
  OCTAVO_RETURN_IF_ERROR(
      storage::ResolveDestination(context_.storage->roots(), job->destination).status());
  job->volume = volume.name;
  job->scan = volume.scan;
  job->options = options;
  OCTAVO_ASSIGN_OR_RETURN(job->options.writer,
                          storage::ResolveOptions(options.writer, context_.meta_of(volume)));
  job->control = std::move(control);
  job->done = std::move(done);
  job->news = {.volume = volume.name,
               .title = volume.title,
               .scan = volume.scan,
               .job = volume.job,
               .destination = job->destination,
               .commit_id = CommitIdOf(volume.name),
               .origin = job->control.origin,
               .begun = context_.clock->Now()};
  return job;
}

bool Committer::Enlist(const std::shared_ptr<Job>& job) {
  MutexLock lock(mutex_);
  const auto growing = std::count_if(jobs_.begin(), jobs_.end(),
                                     [](const auto& one) { return one->growth != nullptr; });
  if (job->growth != nullptr && growing >= MostGrowing(context_.devices)) return false;
  jobs_.push_back(job);
  return true;
}

absl::Status Committer::Commit(const std::string& name, const model::CommitOptions& options,
                               model::WorkControl control, Done done, const ClientVerb* asked) {
  const auto commit = std::make_shared<VolumeCommit>();  // tasks of the pool can be copied
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, context_.volumes->Get(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(volume, asked));
  OCTAVO_RETURN_IF_ERROR(
      CheckTransition(name, volume.state, model::VolumeState::kCommitting, EndOf(volume)));
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job,
                          Prepare(volume, options, std::move(control), std::move(done)));
  // From here on no other verb can take or discard the volume.
  bool told = false;
  const absl::Status begun = base::ExceptionToStatus([&]() -> absl::Status {
    (void)Enlist(job);
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

absl::StatusOr<std::unique_ptr<GrowingCommit>> Committer::CommitGrowing(
    GrowingVolume volume, const model::CommitOptions& options, model::WorkControl control,
    Done done) {
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job,
                          Prepare(volume.status, options, std::move(control), std::move(done)));
  if (!storage::DescribesLast(job->options.writer.format)) {
    return absl::FailedPreconditionError(
        absl::StrCat(storage::FormatName(job->options.writer.format),
                     " files begin with what is known at the end"));
  }
  job->growing = std::move(volume);
  job->growth = std::make_shared<Growth>();
  auto growing = std::make_unique<Growing>(context_, job);
  bool told = false;
  const absl::Status begun = base::ExceptionToStatus([&]() -> absl::Status {
    if (!Enlist(job)) return absl::FailedPreconditionError("as many are written as may be");
    TellBegun(*job);
    told = true;
    growing_pool_.Post([this, job] { RunGrowing(job); });
    return absl::OkStatus();
  });
  if (begun.ok()) return growing;
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

void Committer::RunGrowing(const std::shared_ptr<Job>& job) {
  auto outcome = base::ExceptionToStatus([&]() -> absl::StatusOr<storage::CommitOutcome> {
    if (job->stopped()) return Cancelled(kNothing);
    const std::stop_callback wake(job->control.stop, [&] { job->growth->Wake(); });
    auto written = Write(*job, {.kind = HoldKind::kRead,
                                .status = job->growing->status,
                                .slot = job->growing->slot,
                                .spilled = nullptr,
                                .device = job->growing->device,
                                .cursor = nullptr,
                                .loan = nullptr});
    if (!written.ok()) return NamingDestination(written.status());
    return written;
  });
  job->growing.reset();  // as Run: what it reads is free when observers hear of the end
  VolumeCommit commit = job->growth->Close(outcome);
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
        absl::StrCat(cancelled ? "commit cancelled; " : "commit failed; ", job.left()),
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

absl::Status Committer::WaitForGrowth(int64_t* waited_ns,
                                      const std::function<absl::Status()>& wait) {
  const int64_t begun = context_.clock->Now().monotonic_ns;
  ++waiting_;
  const absl::Cleanup over = [this] { --waiting_; };
  absl::Status waited = wait();
  *waited_ns += context_.clock->Now().monotonic_ns - begun;
  return waited;
}

absl::StatusOr<storage::CommitOutcome> Committer::Write(const Job& job, const VolumeHold& hold) {
  const model::VolumeStatus& volume = hold.status;
  Device* const device = &context_.devices.device(hold.device);
  const std::shared_ptr<memory::FramePool>& pool = context_.devices.frames(hold.device);
  const int64_t begun = context_.clock->Now().monotonic_ns;
  model::WorkProgress progress{.stage = model::WorkStage::kPreparing, .total_bytes = volume.bytes};
  job.control.Report(progress);  // before the first touch of a storage that may be slow
  if (job.stopped()) return Cancelled(job.left());
  OCTAVO_ASSIGN_OR_RETURN(auto transaction,
                          context_.storage->Begin(job.news.commit_id, job.destination,
                                                  context_.meta_of(volume), job.options.writer));
  const int64_t plane_bytes = volume.shape[1] * volume.shape[2] * SizeOf(volume.dtype);
  int64_t slab = std::min(transaction->SlabBscans(), volume.shape[0]);

  // One slab is copied from the device while the other is encoded. If memory is short, one slab
  // suffices. The stream is declared after them, because its end waits for the copies that an early
  // return leaves behind.
  std::shared_ptr<void> memory[2];
  const auto take = [&]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(
        memory[0], SlabMemory(*pool, *transaction, plane_bytes, job.options.writer.format, slab));
    auto second = pool->Get(slab * plane_bytes);
    memory[1] = second.ok() ? *std::move(second) : nullptr;
    return absl::OkStatus();
  };
  OCTAVO_ASSIGN_OR_RETURN(Stream stream, device->NewStream(StreamPriority::kLow));
  const auto fetch = [&](int64_t y, int buffer) {
    const int64_t count = std::min(slab, volume.shape[0] - y);
    if (hold.cursor != nullptr)
      return hold.cursor->Read(y * plane_bytes, count * plane_bytes, memory[buffer].get());
    return memory::CopyVolumeBytes(*device, stream.ref(), memory[buffer].get(), *hold.slot, volume,
                                   y * plane_bytes, count * plane_bytes);
  };
  const auto is_there = [&](int64_t y) {
    const int64_t end = std::min(y + slab, volume.shape[0]);
    return job.growth == nullptr || job.growth->Has(end * plane_bytes);
  };
  Reports reports{.control = job.control, .transaction = *transaction, .progress = progress};
  const auto unwanted = [&] { return job.stopped(); };
  int64_t waited_ns = 0;
  int buffer = 0;
  bool fetched = false;  // the slab of y, or its copy is under way
  for (int64_t y = 0; y < volume.shape[0]; y += slab) {
    if (job.stopped()) return Cancelled(job.left());
    if (!fetched && !is_there(y)) {
      // Others can use the memory meanwhile.
      memory[0] = memory[1] = nullptr;
      reports.Tell(model::WorkStage::kWaiting);
      const int64_t bytes = std::min(y + slab, volume.shape[0]) * plane_bytes;
      OCTAVO_RETURN_IF_ERROR(
          WaitForGrowth(&waited_ns, [&] { return job.growth->AwaitBytes(bytes, unwanted); }));
      if (job.stopped()) return Cancelled(job.left());
    }
    if (memory[0] == nullptr) {
      reports.Tell(model::WorkStage::kWriting);
      // Whoever heard of the report may have cancelled: then no memory is taken.
      if (job.stopped()) return Cancelled(job.left());
      OCTAVO_RETURN_IF_ERROR(take());  // of a smaller slab, perhaps
      buffer = 0;
    }
    const int64_t count = std::min(slab, volume.shape[0] - y);
    if (!fetched) OCTAVO_RETURN_IF_ERROR(fetch(y, buffer));
    OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
    fetched = memory[1] != nullptr && y + slab < volume.shape[0] && is_there(y + slab);
    if (fetched) OCTAVO_RETURN_IF_ERROR(fetch(y + slab, 1 - buffer));
    OCTAVO_RETURN_IF_ERROR(transaction->WriteSlab(y, count, memory[buffer].get()));
    if (fetched) buffer = 1 - buffer;
    reports.progress.done_bytes += count * plane_bytes;
    reports.Tell(model::WorkStage::kWriting);
  }
  memory[0] = memory[1] = nullptr;
  if (job.growth != nullptr) {
    OCTAVO_RETURN_IF_ERROR(
        WaitForGrowth(&waited_ns, [&] { return job.growth->AwaitSeal(unwanted); }));
    if (job.stopped()) return Cancelled(job.left());
    // What is known only now: the digest, the levels to show, warnings.
    OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus held, context_.volumes->Get(job.volume));
    OCTAVO_RETURN_IF_ERROR(transaction->Describe(context_.meta_of(held)));
  }
  if (job.stopped()) return Cancelled(job.left());
  return reports.Publish(*context_.clock, begun + waited_ns);
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
  int64_t slab = std::min(transaction->SlabBscans(), meta.shape[0]);
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                          SlabMemory(*context_.devices.frames(job.array->device), *transaction,
                                     plane_bytes, job.options.writer.format, slab));
  Reports reports{.control = job.control, .transaction = *transaction, .progress = progress};
  for (int64_t y = 0; y < meta.shape[0]; y += slab) {
    if (job.stopped()) return Cancelled(kNothing);
    const int64_t count = std::min(slab, meta.shape[0] - y);
    OCTAVO_RETURN_IF_ERROR(job.array->read(count * plane_bytes, memory.get()));
    OCTAVO_RETURN_IF_ERROR(transaction->WriteSlab(y, count, memory.get()));
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
  for (const auto& job : jobs_) {
    job->cancel = true;
    if (job->growth != nullptr) job->growth->Wake();
  }
}

void Committer::AddTo(model::Stats* stats) {
  MutexLock lock(mutex_);
  stats->commit_seconds = seconds_;
  stats->commit_bytes = bytes_;
  stats->commit_errors = errors_;
}

}  // namespace octavo::volume
