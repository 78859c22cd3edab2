#include "client/cpp/cli/recon_batch.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/axis_text.h"
#include "client/cpp/cli/field_flags.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/job_flags.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/pending_result.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/error_details.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

constexpr char kDestinationExists[] = "DESTINATION_EXISTS";
// A result that could not be written must not take memory from all scans that follow.
constexpr double kHeldSeconds = 3600;

std::string AxisOf(const v1::TomographyReport& report) {
  if (report.centers().empty()) return "-";
  const std::string column = report.centers_size() == 1
                                 ? absl::StrFormat("%.2f", report.centers(0))
                                 : absl::StrFormat("%.2f ... %.2f", report.centers(0),
                                                   report.centers(report.centers_size() - 1));
  return absl::StrCat(column, " (", HowAxisWasFound(report), ")");
}

}  // namespace

ReconBatch::ReconBatch(Session& session, const ReconFlags& flags)
    : session_(session), flags_(flags) {
  for (const std::string& file : flags.files()) {
    Scan scan{.file = file, .spec = flags.Spec(file)};
    *scan.spec.mutable_commit() = flags.CommitInFolder(file);
    if (!scan.spec.has_ttl()) *scan.spec.mutable_ttl() = DurationOf(kHeldSeconds);
    scans_.push_back(std::move(scan));
  }
}

void ReconBatch::Plan() {
  for (const Scan& scan : scans_) {
    if (!session_.json) std::cout << scan.file << "\n";
    (void)flags_.job().Submit(session_, scan.spec);
  }
}

void ReconBatch::Run() {
  (void)session_.channel();  // refuses an address before any work begins
  {
    const OnInterrupt interrupt([this] { Interrupt(); });
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::min(flags_.jobs_at_a_time(), scans_.size()); ++i)
      threads.emplace_back([this] { Work(); });
  }
  for (Scan& scan : scans_) {
    if (scan.state != State::kNotBegun) continue;
    scan.problem = interrupted_ ? "interrupted before it began"
                   : no_server_ ? "not begun, because the server does not answer any more"
                                : "not begun, because another scan failed (--stop-on-error)";
    if (!interrupted_) Say(scan, scan.problem);
  }
  if (session_.json) {
    for (const Scan& scan : scans_) PrintJsonOf(scan);
  } else {
    PrintTable();
  }
  const bool failed = std::any_of(scans_.begin(), scans_.end(), [](const Scan& scan) {
    return scan.state != State::kDone && scan.state != State::kExists;
  });
  session_.exit_code = interrupted_ ? kInterrupted
                       : no_server_ ? kUnavailable
                       : failed     ? kFailed
                                    : kOk;
}

void ReconBatch::Work() {
  Session session = session_;
  session.json = false;  // errors are told as text; the objects on standard output are the scans'
  while (Scan* const scan = Next()) {
    const auto begun = std::chrono::steady_clock::now();
    Make(session, *scan);
    scan->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (scan->state == State::kFailed && flags_.stop_on_error()) {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
  }
}

ReconBatch::Scan* ReconBatch::Next() {
  const std::lock_guard lock(mutex_);
  if (ends_ || next_ == scans_.size()) return nullptr;
  Scan& scan = scans_[next_++];
  scan.state = State::kBegun;
  return &scan;
}

void ReconBatch::Make(Session& session, Scan& scan) {
  if (flags_.skip_existing() && Join(session, scan)) return;
  if (!Begin(session, scan)) return;
  Follow(session, scan);
  {
    const std::lock_guard lock(mutex_);
    std::erase(running_, scan.job.operation());
  }
  End(session, scan);
}

bool ReconBatch::Join(Session& session, Scan& scan) {
  const std::string& destination = scan.spec.commit().destination();
  std::optional<v1::Job> found;
  if (!Fine(session, scan, FindPendingResult(session, destination, &found))) return true;
  if (!found.has_value()) return false;
  if (!SamePath(found->spec().tomography().file().path(), scan.spec.tomography().file().path())) {
    scan.state = State::kFailed;
    scan.problem =
        absl::StrCat(found->name(), " makes '", destination,
                     "' of something else: wait for it, or octavo job cancel ", found->name());
    Say(scan, scan.problem);
    return true;
  }
  scan.job.Swap(&*found);
  scan.joined = true;
  Say(scan,
      absl::StrCat(scan.job.name(), " of an earlier call makes '", destination, "': waits for it"));
  Follow(session, scan);
  const bool again = scan.job.state() == v1::JOB_STATE_CANCELLED && scan.state == State::kBegun;
  if (!again || Interrupted()) {
    End(session, scan);
    return true;
  }
  Say(scan, absl::StrCat(scan.job.name(), " was cancelled: the scan is made again"));
  scan.job.Clear();
  scan.joined = false;
  return false;
}

void ReconBatch::End(Session& session, Scan& scan) {
  if (scan.state != State::kBegun) return;
  if (scan.job.state() == v1::JOB_STATE_DONE) return AwaitCommit(session, scan);
  scan.state = scan.job.state() == v1::JOB_STATE_CANCELLED ? State::kCancelled : State::kFailed;
  scan.problem = scan.job.reason();
  if (scan.problem.empty()) {
    scan.problem = scan.state == State::kCancelled
                       ? absl::StrCat(scan.job.name(), " was cancelled")
                       : absl::StrCat("the server told nothing more of ", scan.job.name(),
                                      ": octavo job show ", scan.job.name());
  }
  Say(scan, absl::StrCat(InWords(scan.job.state()), ": ", Printable(scan.problem),
                         FlagsFor(session.app, "", scan.problem)));
}

// Whether there is a job now.
bool ReconBatch::Begin(Session& session, Scan& scan) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = scan.spec;
  v1::SubmitJobResponse answer;
  const grpc::Status status = v1::JobService::NewStub(session.channel())
                                  ->SubmitJob(session.Context().get(), request, &answer);
  if (flags_.skip_existing() && ReasonOf(status) == kDestinationExists) {
    Skip(scan, status);
    return false;
  }
  if (!Fine(session, scan, status)) return false;
  scan.job = answer.job();
  bool too_late = false;
  {
    const std::lock_guard lock(mutex_);
    too_late = interrupted_;
    running_.push_back(scan.job.operation());
  }
  if (too_late) (void)CancelOperation(session, scan.job.operation());
  Say(scan, scan.job.name());
  return true;
}

// Only a result of this scan that was written whole is its end.
void ReconBatch::Skip(Scan& scan, const grpc::Status& exists) {
  const std::map<std::string, std::string> there = DetailsOf(exists).numbers;
  const auto value = [&](const char* key) {
    const auto found = there.find(key);
    return found == there.end() ? "" : found->second;
  };
  const std::string result = absl::StrCat("'", scan.spec.commit().destination(), "'");
  const bool whole = value("whole") == "true";
  if (whole && !there.contains("differs")) {
    scan.state = State::kExists;
    return Say(scan, absl::StrCat(result, " exists, and is left as it is"));
  }
  scan.state = State::kFailed;
  scan.problem =
      absl::StrCat(result, " exists and is not skipped, because it is ",
                   whole                     ? "another result: " + Printable(value("differs"))
                   : there.contains("lacks") ? "not known to be whole: " + Printable(value("lacks"))
                                             : "not known to be whole: the server does not tell",
                   "; it is left as it is: remove it, or give another --output-dir");
  Say(scan, scan.problem);
}

// To the end of its job, with each warning once.
void ReconBatch::Follow(Session& session, Scan& scan) {
  std::set<std::string> told;
  const auto warn = [&] {
    for (const std::string& warning : scan.job.warnings()) {
      if (told.insert(warning).second)
        Say(scan, absl::StrCat("warning: ", WithFlags(session, warning)));
    }
  };
  warn();
  v1::WatchJobRequest request;
  request.set_name(scan.job.name());
  grpc::ClientContext context;
  if (scan.joined) {
    const std::lock_guard lock(mutex_);
    waits_.insert(&context);
    if (interrupted_) context.TryCancel();
  }
  const auto reader = v1::JobService::NewStub(session.channel())->WatchJob(&context, request);
  for (v1::WatchJobResponse step; reader->Read(&step);) {
    scan.job.Swap(step.mutable_job());
    warn();
  }
  const grpc::Status status = reader->Finish();
  if (scan.joined) {
    const std::lock_guard lock(mutex_);
    waits_.erase(&context);
  }
  if (scan.joined && status.error_code() == grpc::StatusCode::CANCELLED && Interrupted()) {
    scan.state = State::kLeft;
    scan.problem =
        absl::StrCat(scan.job.name(), " goes on: octavo job cancel ", scan.job.name(), " ends it");
    Say(scan, scan.problem);
    return;
  }
  (void)Fine(session, scan, status);
}

bool ReconBatch::LookAtVolume(Session& session, Scan& scan) {
  v1::GetVolumeRequest request;
  request.set_name(scan.job.volumes(0));
  v1::GetVolumeResponse answer;
  if (!Fine(session, scan,
            v1::VolumeService::NewStub(session.channel())
                ->GetVolume(session.Context().get(), request, &answer)))
    return false;
  scan.volume = answer.volume();
  return true;
}

bool ReconBatch::Interrupted() {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

// The job is done before its result is written.
void ReconBatch::AwaitCommit(Session& session, Scan& scan) {
  const auto stub = v1::JobService::NewStub(session.channel());
  const int warnings = scan.job.warnings_size();
  constexpr int kTellTurns = 20;  // in which the job has told of a commit that is done
  int left = 0;
  while (scan.job.commits().empty() && scan.job.commit_failures() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    v1::GetJobRequest request;
    request.set_name(scan.job.name());
    v1::GetJobResponse answer;
    if (!Fine(session, scan, stub->GetJob(session.Context().get(), request, &answer))) return;
    scan.job.Swap(answer.mutable_job());
    if (!LookAtVolume(session, scan)) return;
    // Another client may have been faster: then the server commits nothing, and tells nothing.
    const bool waits = scan.volume.state() == v1::VOLUME_STATE_HELD ||
                       scan.volume.state() == v1::VOLUME_STATE_COMMITTING;
    if (waits && !Interrupted()) continue;
    if (!waits && ++left < kTellTurns) continue;
    scan.state = State::kFailed;
    scan.problem = waits ? "interrupted while the server began to write the result"
                   : scan.volume.state() == v1::VOLUME_STATE_COMMITTED
                       ? "another client committed the result elsewhere"
                       : "another client discarded the result before it was written";
    Say(scan, scan.problem);
    return;
  }
  if (!LookAtVolume(session, scan)) return;
  if (scan.job.commits().empty()) {
    scan.state = State::kFailed;
    scan.problem = scan.volume.last_error();
    if (scan.problem.empty()) scan.problem = "the result could not be written";
    for (int i = warnings; i < scan.job.warnings_size(); ++i)
      Say(scan, WithFlags(session, scan.job.warnings(i)));
    Say(scan, absl::StrCat("the server holds the result for ", Seconds(SecondsOf(scan.spec.ttl())),
                           ": octavo volume commit ", scan.volume.name()));
    return;
  }
  scan.state = State::kDone;
  Say(scan, scan.job.commits(0));
}

void ReconBatch::Interrupt() {
  std::vector<std::string> running;
  {
    const std::lock_guard lock(mutex_);
    ends_ = interrupted_ = true;
    running = running_;
    for (grpc::ClientContext* const context : waits_) context->TryCancel();
    std::cerr << "octavo: interrupted: " << running.size()
              << " jobs are cancelled; what is written stays\n";
  }
  Session session = session_;
  session.json = false;
  // A job that is done stays, and what the server writes of it goes on.
  for (const std::string& operation : running) (void)CancelOperation(session, operation);
}

void ReconBatch::Say(const Scan& scan, const std::string& text) {
  const std::lock_guard lock(mutex_);
  std::cerr << "octavo: " << scan.file << ": " << text << "\n";
}

// Notes a failed call as the end of the scan, and prints it. Without a server no scan can be made.
bool ReconBatch::Fine(Session& session, Scan& scan, const grpc::Status& status) {
  if (status.ok()) return true;
  const std::lock_guard lock(mutex_);
  scan.state = State::kFailed;
  scan.problem = status.error_message();
  if (scan.problem.empty()) scan.problem = "the server gave no reason";
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    ends_ = true;
    if (std::exchange(no_server_, true)) {  // what follows of it was told once
      std::cerr << "octavo: " << scan.file << ": " << Printable(scan.problem) << "\n";
      return false;
    }
  }
  std::cerr << "octavo: " << scan.file << ":\n";
  (void)CheckJob(session, scan.spec, status);
  if (ReasonOf(status) == kDestinationExists)
    std::cerr << "  --skip-existing leaves this scan out\n";
  return false;
}

const char* ReconBatch::WordOf(State state) {
  switch (state) {
    case State::kNotBegun:
    case State::kBegun: return "not begun";
    case State::kDone: return "done";
    case State::kExists: return "exists";
    case State::kFailed: return "failed";
    case State::kCancelled: return "cancelled";
    case State::kLeft: return "running";
  }
  return "";
}

void ReconBatch::PrintTable() const {
  std::vector<std::vector<std::string>> lines = {
      {"scan", "slices x size", "axis", "seconds", "warnings", "where"}};
  for (const Scan& scan : scans_) {
    const auto& shape = scan.volume.shape();
    const bool worked = !scan.job.name().empty();
    lines.push_back(
        {scan.file,
         shape.size() == 3 ? absl::StrCat(shape[0], " x ", shape[1], " x ", shape[2]) : "-",
         AxisOf(scan.job.tomography()), worked ? absl::StrFormat("%.1f", scan.seconds) : "-",
         worked ? absl::StrCat(scan.job.warnings_size()) : "-",
         scan.state == State::kDone     ? scan.job.commits(0)
         : scan.state == State::kExists ? absl::StrCat("exists: ", scan.spec.commit().destination())
                                        : WordOf(scan.state)});
  }
  std::vector<size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : lines) {
    for (size_t i = 0; i + 1 < line.size(); ++i)
      std::cout << absl::StrFormat("%-*s  ", widths[i], line[i]);
    std::cout << line.back() << "\n";
  }
  std::cout << std::flush;
}

void ReconBatch::PrintJsonOf(const Scan& scan) const {
  const v1::TomographyReport& report = scan.job.tomography();
  nlohmann::json object = {
      {"scan", scan.file},       {"state", WordOf(scan.state)},
      {"job", scan.job.name()},  {"destination", scan.spec.commit().destination()},
      {"seconds", scan.seconds}, {"warnings", nlohmann::json::array()}};
  for (const std::string& warning : scan.job.warnings()) object["warnings"].push_back(warning);
  if (scan.volume.shape_size() == 3) {
    object["slices"] = scan.volume.shape(0);
    object["size"] = {scan.volume.shape(1), scan.volume.shape(2)};
  }
  if (!report.centers().empty()) {
    object["axis"] = report.centers(0);
    object["axis_method"] = InOneWord(report.center_source());
  }
  if (report.centers_size() > 1)
    object["axes"] = std::vector<double>(report.centers().begin(), report.centers().end());
  if (report.center_uncertainty() > 0) object["axis_uncertainty"] = report.center_uncertainty();
  if (report.center_check_method() != v1::RotationCenter::METHOD_UNSPECIFIED) {
    object["axis_check"] = report.center_check();
    object["axis_check_method"] = InOneWord(report.center_check_method());
  }
  if (scan.state == State::kDone) object["path"] = scan.job.commits(0);
  if (!scan.problem.empty()) object["problem"] = scan.problem;
  std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n"
            << std::flush;
}

}  // namespace octavo::cli
