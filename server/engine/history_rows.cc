#include "server/engine/history_rows.h"

#include <algorithm>
#include <concepts>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "gpu/base/json.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "server/base/sha256.h"
#include "server/security/token.h"
#include "server/volume/left_memory.h"

namespace octavo::engine {
namespace {

using storage::HistoryKind;
using storage::HistoryRow;

std::string Dump(const nlohmann::json& details) {
  return details.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json Details(const HistoryRow& row) {
  auto details = ParseJson(row.details);
  return details.ok() && details->is_object() ? *std::move(details) : nlohmann::json::object();
}

// Members of an unexpected type are left out, as missing ones are: a row says what it can.
void Take(const nlohmann::json& from, const char* member, std::string* to) {
  if (const auto it = from.find(member); it != from.end() && it->is_string())
    *to = it->get<std::string>();
}
void Take(const nlohmann::json& from, const char* member, double* to) {
  if (const auto it = from.find(member); it != from.end() && it->is_number())
    *to = it->get<double>();
}
template <std::integral Number>
void Take(const nlohmann::json& from, const char* member, Number* to) {
  if (const auto it = from.find(member); it != from.end() && it->is_number_integer())
    *to = it->get<Number>();
}
void Take(const nlohmann::json& from, const char* member, std::vector<std::string>* to) {
  const auto it = from.find(member);
  if (it == from.end() || !it->is_array()) return;
  for (const auto& one : *it) {
    if (one.is_string()) to->push_back(one.get<std::string>());
  }
}
void Take(const nlohmann::json& from, const char* member, std::map<std::string, std::string>* to) {
  const auto it = from.find(member);
  if (it == from.end() || !it->is_object()) return;
  for (const auto& [key, value] : it->items()) {
    if (value.is_string()) to->emplace(key, value.get<std::string>());
  }
}

TimePoint Then(int64_t unix_ns, const TimePoint& now) {
  if (unix_ns == 0) return {};
  return {.monotonic_ns = now.monotonic_ns - (now.unix_ns - unix_ns), .unix_ns = unix_ns};
}

const char* NameOf(
    const decltype(model::ScanSpec::source)& source) {  // as the fields of ScanSpec.source
  constexpr const char* kNames[] = {"", "simulated", "replay", "push", "camera", "ring"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(model::ScanSpec::source)>);
  return kNames[source.index()];
}

template <size_t index = 0>
void SetSource(const std::string& name, decltype(model::ScanSpec::source)* source) {
  using Source = std::remove_reference_t<decltype(*source)>;
  if constexpr (index < std::variant_size_v<Source>) {
    Source kind(std::in_place_index<index>);
    if (NameOf(kind) == name) {
      *source = std::move(kind);
      return;
    }
    SetSource<index + 1>(name, source);
  }
}

// The counts of a scan, by the names of the contract.
template <class Status, class Do>
void EachCount(Status& scan, Do act) {
  act("records", scan.records);
  act("volumes_done", scan.volumes_done);
  act("volumes_dropped", scan.volumes_dropped);
  act("volumes_overwritten", scan.volumes_overwritten);
  act("volumes_committed", scan.volumes_committed);
  act("volumes_discarded", scan.volumes_discarded);
  act("volumes_expired", scan.volumes_expired);
  act("commit_failures", scan.commit_failures);
  act("spill_failures", scan.spill_failures);
  act("blocks_dropped", scan.blocks_dropped);
  act("missing_ascans", scan.missing_ascans);
  act("duplicate_records", scan.duplicate_records);
  act("out_of_range_records", scan.out_of_range_records);
  act("non_finite_records", scan.non_finite_records);
  act("voxels", scan.voxels);
  act("clipped_below", scan.clipped_below);
  act("clipped_above", scan.clipped_above);
}

Reason ReasonOf(const HistoryRow& row) {
  return ReasonNamed(row.reason_code).value_or(Reason::kNone);
}

/// The error with which the work ended.
absl::Status ErrorOf(const HistoryRow& row, const nlohmann::json& details) {
  int code = static_cast<int>(absl::StatusCode::kUnknown);
  Take(details, "code", &code);
  if (code == 0) code = static_cast<int>(absl::StatusCode::kUnknown);  // it has failed
  return WithInfo(absl::Status(static_cast<absl::StatusCode>(code), row.reason),
                  {.reason = ReasonOf(row), .field = "", .numbers = {}});
}

}  // namespace

std::string LastingDigest(absl::string_view digest, absl::string_view session) {
  return absl::BytesToHexString(base::Sha256(absl::StripSuffix(digest, session)));
}

absl::StatusOr<std::string> EarlierCommitOf(const EarlierRuns& earlier,
                                            const operation::RequestKey& request) {
  if (request.id.empty()) return std::string();
  return earlier.AnswerTo(HistoryKind::kCommit, request.id, LastingDigest(request.body, ""),
                          request.owner);
}

absl::Status LostError(const char* kind, const std::string& name, const std::string& reason) {
  return WithInfo(absl::DataLossError(absl::StrCat(name, " is LOST: ", reason)),
                  {.reason = Reason::kLost, .field = "", .numbers = {{kind, name}}});
}

HistoryRow RowOf(const model::ScanStatus& scan) {
  nlohmann::json details = {{"labels", scan.spec.labels},
                            {"session", scan.spec.session},
                            {"queue", scan.spec.queue.name},
                            {"device", scan.device},
                            {"source", NameOf(scan.spec.source)},
                            {"warnings", scan.warnings},
                            {"spread", scan.spread_devices},
                            {"trace_id", scan.spec.trace_id},
                            {"resumed_from", scan.spec.resumed_from}};
  EachCount(scan, [&](const char* name, int64_t count) { details[name] = count; });
  return {.kind = HistoryKind::kScan,
          .name = scan.name,
          .number = scan.number,
          .state = Name(scan.state),
          .ended = IsFinal(scan.state),
          .reason_code = std::string(Name(scan.reason_code)),
          .reason = scan.reason,
          .title = scan.spec.title,
          .owner = scan.spec.owner.name,
          .project = scan.spec.owner.project,
          .request_id = scan.spec.request_id,
          .request_digest = LastingDigest(scan.spec.request_digest, scan.spec.session),
          .created_unix_ns = scan.created.unix_ns,
          .started_unix_ns = scan.started.unix_ns,
          .ended_unix_ns = scan.ended.unix_ns,
          .details = Dump(details)};
}

HistoryRow RowOf(const job::JobStatus& job) {
  nlohmann::json details = {{"labels", job.spec.labels},
                            {"session", job.spec.session},
                            {"group", job.spec.group},
                            {"priority", job.spec.priority},
                            {"kind", static_cast<int>(job.kind)},
                            {"device", job.device},
                            {"memory_bytes", job.memory_bytes},
                            {"fraction", job.fraction},
                            {"step", job.step},
                            {"steps", job.steps},
                            {"volumes", job.volumes},
                            {"commits", job.commits},
                            {"commit_failures", job.commit_failures},
                            {"buffer", job.buffer},
                            {"plan", job.plan},
                            {"warnings", job.warnings},
                            {"trace_id", job.spec.caller.trace_id}};
  if (!job.error.ok()) details["code"] = static_cast<int>(job.error.code());
  const model::Caller& caller = job.spec.caller;
  return {.kind = HistoryKind::kJob,
          .name = job.name,
          .number = job.number,
          .state = Name(job.state),
          .ended = IsFinal(job.state),
          .reason_code = std::string(Name(job.reason_code)),
          .reason = job.reason,
          .title = job.spec.title,
          .owner = caller.principal.name,
          .project = caller.principal.project,
          .request_id = job.spec.request_id,
          .request_digest = LastingDigest(job.spec.request_digest, job.spec.session),
          .created_unix_ns = job.created.unix_ns,
          .started_unix_ns = job.started.unix_ns,
          .ended_unix_ns = job.ended.unix_ns,
          .details = Dump(details)};
}

HistoryRow RowOf(const volume::CommitNews& commit, uint64_t number,
                 const absl::StatusOr<storage::CommitOutcome>* outcome, const TimePoint& now) {
  nlohmann::json details = {{"volume", commit.volume},
                            {"scan", commit.scan},
                            {"job", commit.job},
                            {"destination", commit.destination},
                            {"commit_id", commit.commit_id},
                            {"trace_id", commit.origin.trace_id}};
  HistoryRow row{.kind = HistoryKind::kCommit,
                 // A commit of the server's own may be no operation. A volume has one at a time.
                 .name = commit.origin.operation.empty() ? commit.volume : commit.origin.operation,
                 .number = number,
                 .state = Name(operation::OperationState::kRunning),
                 .title = commit.title,
                 .owner = commit.origin.owner.name,
                 .project = commit.origin.owner.project,
                 .request_id = commit.origin.request_id,
                 .request_digest = commit.origin.request_digest,
                 .created_unix_ns = commit.begun.unix_ns,
                 .started_unix_ns = commit.begun.unix_ns};
  if (outcome != nullptr) {
    row.ended = true;
    row.ended_unix_ns = now.unix_ns;
    const absl::Status& status = outcome->status();
    row.state = Name(status.ok()                 ? operation::OperationState::kSucceeded
                     : absl::IsCancelled(status) ? operation::OperationState::kCancelled
                                                 : operation::OperationState::kFailed);
    if (status.ok()) {
      details["path"] = (*outcome)->path;
      details["format"] = static_cast<int>((*outcome)->format);
      details["raw_bytes"] = (*outcome)->raw_bytes;
      details["disk_bytes"] = (*outcome)->disk_bytes;
      details["seconds"] = (*outcome)->seconds;
      details["checksum"] = (*outcome)->checksum;
    } else {
      details["code"] = static_cast<int>(status.code());
      row.reason_code = std::string(Name(ReasonOrCode(status)));
      row.reason = std::string(status.message());
    }
  }
  row.details = Dump(details);
  return row;
}

HistoryRow RowOf(const model::VolumeStatus& volume, uint64_t number) {
  const nlohmann::json details = {
      {"parent", model::ParentOf(volume)},   {"index", volume.index}, {"shape", volume.shape},
      {"dtype", Info(volume.dtype).name},    {"bytes", volume.bytes}, {"device", volume.device},
      {"derived_from", volume.derived_from}, {"raw", volume.is_raw}};
  const int64_t acquired = volume.acquired_begin.unix_ns;
  return {.kind = HistoryKind::kVolume,
          .name = volume.name,
          .number = number,
          // COMMITTING is no other state here: the commit has a row of its own.
          .state = Name(model::VolumeState::kHeld),
          .title = volume.title,
          .owner = volume.owner.name,
          .project = volume.owner.project,
          .created_unix_ns = acquired > 0 ? acquired : volume.held_unix_ns,
          .started_unix_ns = volume.held_unix_ns,
          .details = Dump(details)};
}

void EndRow(const model::VolumeStatus& volume, const TimePoint& now, HistoryRow* row) {
  row->state = Name(volume.state);
  row->ended = true;
  row->ended_unix_ns = now.unix_ns;
  row->reason_code = std::string(Name(volume.reason_code));
  row->reason = volume.reason;
  if (volume.has_commit) EndRowAsCommitted(volume.commit.path, row);
}

void EndRowAsCommitted(const std::string& path, HistoryRow* row) {
  row->state = Name(model::VolumeState::kCommitted);
  nlohmann::json details = Details(*row);
  details["path"] = path;
  row->details = Dump(details);
}

void SetHeldVolumes(const std::function<bool(const std::string&)>& complete,
                    const std::vector<std::string>& further, HistoryRow* row) {
  nlohmann::json details = Details(*row);
  std::vector<std::string> held;
  Take(details, "volumes", &held);
  std::erase_if(held, [&](const std::string& volume) { return !complete(volume); });
  const std::set<std::string> known(held.begin(), held.end());
  std::copy_if(further.begin(), further.end(), std::back_inserter(held),
               [&](const std::string& volume) { return !known.contains(volume); });
  details["held_volumes"] = held;
  row->details = Dump(details);
}

CommitOfJob CommitOfJobIn(const HistoryRow& row) {
  CommitOfJob commit;
  // One that the job's request asked for may be an operation, too, but no request of its own.
  const bool asked = absl::StartsWith(row.name, "operations/") && !row.request_digest.empty();
  if (row.kind != HistoryKind::kCommit || asked) return commit;
  const nlohmann::json details = Details(row);
  Take(details, "job", &commit.job);
  Take(details, "volume", &commit.volume);
  Take(details, "destination", &commit.destination);
  Take(details, "path", &commit.path);
  return commit;
}

bool AddCommits(const std::vector<std::string>& paths, const std::vector<std::string>& failures,
                HistoryRow* row) {
  nlohmann::json details = Details(*row);
  std::vector<std::string> commits, warnings;
  int64_t failed = 0;
  Take(details, "commits", &commits);
  Take(details, "warnings", &warnings);
  Take(details, "commit_failures", &failed);
  const std::set<std::string> known(commits.begin(), commits.end());
  const size_t before = commits.size();
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(commits),
               [&](const std::string& path) { return !known.contains(path); });
  if (commits.size() == before && failures.empty()) return false;
  const size_t room = job::kJobWarningsKept - std::min(job::kJobWarningsKept, warnings.size());
  warnings.insert(
      warnings.end(), failures.begin(),
      failures.begin() + std::min(std::ssize(failures), static_cast<std::ptrdiff_t>(room)));
  details["commits"] = commits;
  details["warnings"] = warnings;
  details["commit_failures"] = failed + std::ssize(failures);
  row->details = Dump(details);
  return true;
}

int64_t BytesOfVolume(const HistoryRow& row) {
  int64_t bytes = 0;
  Take(Details(row), "bytes", &bytes);
  return bytes;
}

std::string ParentOfVolume(const HistoryRow& row) {
  std::string parent;
  Take(Details(row), "parent", &parent);
  return parent;
}

std::string AboutVolume(const HistoryRow& row) {
  const std::string parent = ParentOfVolume(row);
  return absl::StrCat(row.title.empty() ? "" : absl::StrCat("'", row.title, "', "),
                      SizeText(BytesOfVolume(row)), parent.empty() ? "" : ", of ", parent);
}

absl::Status GoneVolume(const HistoryRow& row) {
  if (row.state == Name(model::ScanState::kLost)) {
    const std::string since =
        row.started_unix_ns == 0
            ? ""
            : absl::StrCat(", held since ",
                           security::TimeText(row.started_unix_ns / 1'000'000'000));
    return WithInfo(absl::DataLossError(absl::StrCat(row.name, " is LOST (", AboutVolume(row),
                                                     since, "): ", row.reason)),
                    {.reason = Reason::kLost, .field = "name", .numbers = {{"volume", row.name}}});
  }
  std::string path;
  Take(Details(row), "path", &path);
  return volume::HasLeftMemory(row.name, row.state, row.reason,
                               absl::StrCat(path.empty() ? "" : absl::StrCat(" (", path, ")"),
                                            ", in an earlier run of the server"));
}

model::ScanStatus EarlierScan(const HistoryRow& row, const TimePoint& now) {
  const nlohmann::json details = Details(row);
  model::ScanStatus scan;
  scan.earlier_run = true;
  scan.name = row.name;
  scan.number = row.number;
  scan.state = row.state == Name(model::ScanState::kDone)        ? model::ScanState::kDone
               : row.state == Name(model::ScanState::kFailed)    ? model::ScanState::kFailed
               : row.state == Name(model::ScanState::kCancelled) ? model::ScanState::kCancelled
                                                                 : model::ScanState::kLost;
  scan.reason = row.reason;
  scan.reason_code = ReasonOf(row);
  scan.created = Then(row.created_unix_ns, now);
  scan.started = Then(row.started_unix_ns, now);
  scan.ended = Then(row.ended_unix_ns, now);
  scan.spec.request_id = row.request_id;
  scan.spec.title = row.title;
  scan.spec.owner = {.name = row.owner, .project = row.project};
  Take(details, "labels", &scan.spec.labels);
  Take(details, "session", &scan.spec.session);
  Take(details, "queue", &scan.spec.queue.name);
  Take(details, "resumed_from", &scan.spec.resumed_from);
  Take(details, "device", &scan.device);
  Take(details, "spread", &scan.spread_devices);
  Take(details, "warnings", &scan.warnings);
  std::string source;
  Take(details, "source", &source);
  SetSource(source, &scan.spec.source);
  EachCount(scan, [&](const char* name, int64_t& count) { Take(details, name, &count); });
  return scan;
}

job::JobStatus EarlierJob(const HistoryRow& row, const TimePoint& now) {
  const nlohmann::json details = Details(row);
  job::JobStatus job;
  job.earlier_run = true;
  job.name = row.name;
  job.number = row.number;
  job.state = row.state == Name(job::JobState::kDone)        ? job::JobState::kDone
              : row.state == Name(job::JobState::kFailed)    ? job::JobState::kFailed
              : row.state == Name(job::JobState::kCancelled) ? job::JobState::kCancelled
                                                             : job::JobState::kLost;
  job.reason = row.reason;
  job.reason_code = ReasonOf(row);
  job.created = Then(row.created_unix_ns, now);
  job.started = Then(row.started_unix_ns, now);
  job.ended = Then(row.ended_unix_ns, now);
  job.spec.request_id = row.request_id;
  job.spec.title = row.title;
  job.spec.caller.principal.name = row.owner;
  job.spec.caller.principal.project = row.project;
  Take(details, "labels", &job.spec.labels);
  Take(details, "session", &job.spec.session);
  Take(details, "group", &job.spec.group);
  Take(details, "priority", &job.spec.priority);
  int kind = 0;
  Take(details, "kind", &kind);
  if (kind >= 0 && kind <= static_cast<int>(job::kLastJobKind))
    job.kind = static_cast<job::JobKind>(kind);
  Take(details, "device", &job.device);
  Take(details, "memory_bytes", &job.memory_bytes);
  Take(details, "fraction", &job.fraction);
  Take(details, "step", &job.step);
  Take(details, "steps", &job.steps);
  // One that was killed had some that were not complete; SettleEarlier knows which were.
  Take(details, job.state == job::JobState::kLost ? "held_volumes" : "volumes", &job.volumes);
  Take(details, "commits", &job.commits);
  Take(details, "commit_failures", &job.commit_failures);
  Take(details, "buffer", &job.buffer);
  Take(details, "plan", &job.plan);
  Take(details, "warnings", &job.warnings);
  if (job.state == job::JobState::kFailed) job.error = ErrorOf(row, details);
  if (job.state == job::JobState::kLost) job.error = LostError("job", row.name, row.reason);
  return job;
}

operation::OperationStatus EarlierCommit(const HistoryRow& row, const TimePoint& now) {
  using operation::OperationState;
  const nlohmann::json details = Details(row);
  operation::OperationStatus out;
  out.earlier_run = true;
  out.name = row.name;
  out.kind = operation::OperationKind::kCommit;
  out.request_id = row.request_id;
  out.owner = {.name = row.owner, .project = row.project};
  out.created = Then(row.created_unix_ns, now);
  out.ended = Then(row.ended_unix_ns, now);
  out.elapsed_seconds = static_cast<double>(row.ended_unix_ns - row.created_unix_ns) * 1e-9;
  Take(details, "volume", &out.target);
  out.state = OperationState::kFailed;
  if (row.state == Name(OperationState::kSucceeded)) {
    out.state = OperationState::kSucceeded;
    storage::CommitOutcome commit;
    int format = 0;
    Take(details, "path", &commit.path);
    Take(details, "format", &format);
    if (const auto* known = std::find(std::begin(storage::kFormats), std::end(storage::kFormats),
                                      static_cast<storage::Format>(format));
        known != std::end(storage::kFormats))
      commit.format = *known;
    Take(details, "raw_bytes", &commit.raw_bytes);
    Take(details, "disk_bytes", &commit.disk_bytes);
    Take(details, "seconds", &commit.seconds);
    Take(details, "checksum", &commit.checksum);
    out.commit = std::move(commit);
    out.progress.fraction = 1;
    out.progress.stage = model::WorkStage::kSyncing;
  } else if (row.state == Name(OperationState::kFailed)) {
    out.error = ErrorOf(row, details);
  } else if (row.state == Name(OperationState::kCancelled)) {
    out.state = OperationState::kCancelled;
    out.error = ErrorOf(row, details);
  } else {
    out.error = LostError("operation", row.name, row.reason);
  }
  return out;
}

}  // namespace octavo::engine
