#include "server/engine/earlier_runs.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "server/engine/history_rows.h"

namespace octavo::engine {
namespace {

using storage::HistoryKind;
using storage::HistoryRow;

constexpr char kDied[] = "the server died before its end";
constexpr char kHeldThen[] =
    "the server died while it was held, or spill.dir named another folder then: no file of it was "
    "in the folder of spill.dir when the next server started";

bool IsVolume(const HistoryRow& row) {
  return row.kind == HistoryKind::kVolume && absl::StartsWith(row.name, "volumes/");
}

template <class Status>
const Status* FindIn(const std::map<uint64_t, Status>& statuses,
                     const std::map<std::string, uint64_t>& numbers, const std::string& name) {
  const auto number = numbers.find(name);
  if (number == numbers.end()) return nullptr;
  const auto found = statuses.find(number->second);
  return found == statuses.end() || found->second.name != name ? nullptr : &found->second;
}

template <class Status>
std::vector<Status> Newest(const std::map<uint64_t, Status>& statuses, uint64_t before,
                           size_t most) {
  std::vector<Status> list;
  for (auto it = statuses.lower_bound(before); it != statuses.begin() && list.size() < most;)
    list.push_back((--it)->second);
  return list;
}

/// For people: "scans/… (scan 'eye', was RUNNING): LOST: …; owner: ada".
std::string LineOf(const HistoryRow& row, const std::string& was) {
  const std::string about = row.kind == HistoryKind::kVolume ? AboutVolume(row)
                            : row.title.empty()              ? ""
                                                             : absl::StrCat("'", row.title, "'");
  return absl::StrCat(row.name, " (", Name(row.kind), about.empty() ? "" : " ", about, ", was ",
                      was, "): LOST: ", row.reason,
                      row.owner.empty() ? "" : "; owner: ", row.owner);
}

/// Ends the row of a commit whose files are there. Whether they are.
bool SetPublished(HistoryRow* row, const std::vector<storage::PublishedCommit>& published,
                  const FindCommit& find) {
  auto details = ParseJson(row->details);
  if (!details.ok() || !details->is_object()) return false;
  const auto text = [&](const char* member) {
    const auto it = details->find(member);
    return it != details->end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const std::string id = text("commit_id");
  if (id.empty()) return false;
  std::optional<storage::PublishedCommit> made;
  for (const storage::PublishedCommit& commit : published) {
    if (commit.commit_id == id) made = commit;
  }
  // The journal keeps commits that have ended for a while only.
  if (!made.has_value() && find) made = find(id, text("volume"), text("destination"));
  if (!made.has_value()) return false;
  row->state = Name(operation::OperationState::kSucceeded);
  (*details)["path"] = made->path;
  (*details)["format"] = static_cast<int>(made->format);
  row->details = details->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return true;
}

/// The files of the commits that succeeded, by volume.
class CommittedVolumes {
 public:
  /// `rows`: commits that are settled.
  CommittedVolumes(const std::vector<HistoryRow>& rows,
                   const std::vector<storage::PublishedCommit>& published) {
    // A commit has the id of its volume. The row of one may be missing: it was slower than the
    // files.
    for (const storage::PublishedCommit& commit : published)
      paths_[absl::StrCat("volumes/", commit.commit_id)] = commit.path;
    for (const HistoryRow& row : rows) {
      if (row.kind != HistoryKind::kCommit ||
          row.state != Name(operation::OperationState::kSucceeded))
        continue;
      const operation::OperationStatus commit = EarlierCommit(row, {});
      if (commit.commit.has_value()) paths_[commit.target] = commit.commit->path;
    }
  }
  const std::string* PathOf(const std::string& volume) const {
    const auto it = paths_.find(volume);
    return it == paths_.end() ? nullptr : &it->second;
  }
  const std::map<std::string, std::string>& paths() const { return paths_; }

 private:
  std::map<std::string, std::string> paths_;
};

/// An earlier start did not find its files: their disk was not there.
void Regain(HistoryRow* row, Settled* settled) {
  row->ended = false;
  row->ended_unix_ns = 0;
  row->state = Name(model::VolumeState::kHeld);
  row->reason_code.clear();
  row->reason.clear();
  settled->changed.push_back(*row);
}

void SettleVolume(const VolumesAtStart& volumes, const CommittedVolumes& committed,
                  const TimePoint& now, HistoryRow* row, Settled* settled) {
  if (volumes.held.contains(row->name)) return;
  row->ended = true;
  row->ended_unix_ns = now.unix_ns;
  if (const std::string* const path = committed.PathOf(row->name); path != nullptr) {
    EndRowAsCommitted(*path, row);
    settled->changed.push_back(*row);
    return;
  }
  const std::string was = std::exchange(row->state, Name(model::ScanState::kLost));
  row->reason_code = std::string(Name(Reason::kLost));
  const auto stop = volumes.lost_at_stop.find(row->name);
  row->reason = stop == volumes.lost_at_stop.end()
                    ? kHeldThen
                    : absl::StrCat("the server ended without having kept it: ", stop->second);
  settled->changed.push_back(*row);
  if (stop != volumes.lost_at_stop.end()) return;
  ++settled->lost[Name(row->kind)];
  settled->lost_volumes.push_back(*row);
  settled->lines.push_back(LineOf(*row, was));
}

/// Tells the jobs of an earlier daemon what else is known of their volumes and commits: the last
/// changes of a job may be missing in its row.
class JobSettler {
 public:
  /// `rows`: settled, but for the volumes and commits of jobs.
  JobSettler(std::vector<HistoryRow>* rows, const VolumesAtStart& volumes,
             const CommittedVolumes& committed)
      : rows_(*rows), volumes_(volumes), committed_(committed) {
    for (HistoryRow& row : rows_) {
      if (row.kind == HistoryKind::kJob) jobs_[row.name] = &row;
      // Only a volume that was held has a row.
      if (row.kind == HistoryKind::kVolume) recorded_.insert(row.name);
    }
  }

  /// `lost`: names of the jobs and commits that this start found LOST. Adds the jobs that are not
  /// as they were to `changed`, once.
  void Settle(const std::set<std::string>& lost, std::vector<HistoryRow>* changed) {
    std::set<std::string> others;
    for (const auto& [name, job] : jobs_) {
      if (!lost.contains(name)) continue;
      const auto found = volumes_.held_of_jobs.find(name);
      SetHeldVolumes(
          [&](const std::string& volume) { return WasHeld(volume); },
          found == volumes_.held_of_jobs.end() ? std::vector<std::string>() : found->second, job);
      others.insert(name);
    }
    std::map<std::string, std::vector<std::string>> paths, failures;  // by job
    for (const HistoryRow* const row : CommitsByNumber()) {
      const CommitOfJob commit = CommitOfJobIn(*row);
      if (row->state == Name(operation::OperationState::kSucceeded)) {
        paths[commit.job].push_back(commit.path);
      } else if (lost.contains(row->name)) {
        failures[commit.job].push_back(
            absl::StrCat(commit.volume, " was not committed to ", commit.destination, ": ", kDied));
      }
    }
    for (const auto& [name, job] : jobs_) {
      if (AddCommits(paths[name], failures[name], job)) others.insert(name);
    }
    for (HistoryRow& row : *changed) {
      if (row.kind == HistoryKind::kJob && others.erase(row.name) > 0) row = *jobs_.at(row.name);
    }
    for (const std::string& name : others) changed->push_back(*jobs_.at(name));
  }

 private:
  bool WasHeld(const std::string& volume) const {
    return recorded_.contains(volume) || volumes_.held.contains(volume) ||
           committed_.PathOf(volume) != nullptr;
  }
  std::vector<const HistoryRow*> CommitsByNumber() const {
    std::vector<const HistoryRow*> commits;
    for (const HistoryRow& row : rows_)
      if (row.kind == HistoryKind::kCommit) commits.push_back(&row);
    std::sort(commits.begin(), commits.end(),
              [](const HistoryRow* a, const HistoryRow* b) { return a->number < b->number; });
    return commits;
  }

  std::vector<HistoryRow>& rows_;
  const VolumesAtStart& volumes_;
  const CommittedVolumes& committed_;
  std::map<std::string, HistoryRow*> jobs_;  // by name
  std::set<std::string> recorded_;           // volumes
};

}  // namespace

Settled SettleEarlier(std::vector<HistoryRow>* rows,
                      const std::vector<storage::PublishedCommit>& published, const TimePoint& now,
                      const FindCommit& find, const VolumesAtStart& volumes) {
  Settled settled;
  for (const HistoryKind kind : storage::kHistoryKinds) settled.lost[Name(kind)] = 0;
  std::erase_if(*rows, [](const HistoryRow& row) {
    return row.kind == HistoryKind::kVolume && !IsVolume(row);  // not ours
  });
  std::set<std::string> lost;
  for (HistoryRow& row : *rows) {
    if (row.ended || row.kind == HistoryKind::kVolume) continue;
    row.ended = true;
    row.ended_unix_ns = now.unix_ns;
    if (row.kind == HistoryKind::kCommit && SetPublished(&row, published, find)) {
      settled.changed.push_back(row);
      continue;
    }
    const std::string was = row.state;
    row.state = Name(model::ScanState::kLost);
    row.reason_code = std::string(Name(Reason::kLost));
    row.reason = absl::StrCat(kDied, "; it was ", was);
    settled.changed.push_back(row);
    lost.insert(row.name);
    ++settled.lost[Name(row.kind)];
    settled.lines.push_back(LineOf(row, was));
  }
  // Afterwards, because commits tell what became of their volumes.
  const CommittedVolumes committed(*rows, published);
  JobSettler(rows, volumes, committed).Settle(lost, &settled.changed);
  for (HistoryRow& row : *rows) {
    if (row.kind != HistoryKind::kVolume) continue;
    if (!row.ended)
      SettleVolume(volumes, committed, now, &row, &settled);
    else if (row.state == Name(model::ScanState::kLost) && volumes.held.contains(row.name))
      Regain(&row, &settled);
  }
  return settled;
}

void KeepNewest(const storage::HistoryLimits& limits, const TimePoint& now,
                std::vector<HistoryRow>* rows) {
  std::sort(rows->begin(), rows->end(), [](const HistoryRow& a, const HistoryRow& b) {
    return std::pair(a.kind, b.number) < std::pair(b.kind, a.number);  // newest first
  });
  const double oldest = static_cast<double>(now.unix_ns) - limits.days * 86'400e9;
  std::map<std::tuple<HistoryKind, std::string, std::string>, int64_t> kept;
  std::erase_if(*rows, [&](const HistoryRow& row) {
    if (!row.ended) return false;
    const std::string state = row.kind == HistoryKind::kVolume ? row.state : "";
    return (limits.days > 0 && static_cast<double>(row.ended_unix_ns) < oldest) ||
           ++kept[{row.kind, row.owner, state}] > limits.kept;
  });
}

EarlierRuns::EarlierRuns(const std::vector<HistoryRow>& rows, const TimePoint& now) {
  for (const HistoryRow& row : rows) {
    last_[row.kind] = std::max(last_[row.kind], row.number);
    if (!row.request_id.empty()) {
      // The newest answer counts: an id is free again when an operation is forgotten.
      requests_.try_emplace({row.kind, row.request_id},
                            Request{.digest = row.request_digest,
                                    .name = row.name,
                                    .owner = {.name = row.owner, .project = row.project}});
    }
    switch (row.kind) {
      case HistoryKind::kScan: scans_.emplace(row.number, EarlierScan(row, now)); break;
      case HistoryKind::kJob: jobs_.emplace(row.number, EarlierJob(row, now)); break;
      case HistoryKind::kCommit:
        if (!absl::StartsWith(row.name, "operations/")) continue;
        operations_.emplace(row.number, EarlierCommit(row, now));
        break;
      case HistoryKind::kVolume:
        if (row.ended) {
          volumes_.emplace(row.name, row);
        } else {
          held_.push_back(row);
        }
        continue;
    }
    numbers_.emplace(row.name, row.number);
  }
  // A volume that was committed before it had a row.
  const CommittedVolumes committed(rows, {});
  for (const auto& [volume, path] : committed.paths()) {
    if (!absl::StartsWith(volume, "volumes/") || volumes_.contains(volume)) continue;
    HistoryRow row{.kind = HistoryKind::kVolume, .name = volume, .ended = true};
    EndRowAsCommitted(path, &row);
    volumes_.emplace(volume, std::move(row));
  }
  CountLostVolumes();
}

void EarlierRuns::CountLostVolumes() {
  std::map<std::string, int64_t> lost;  // by parent
  for (const auto& [name, row] : volumes_)
    if (row.state == Name(model::ScanState::kLost)) ++lost[ParentOfVolume(row)];
  const auto warn = [&](auto& statuses) {
    for (auto& [number, status] : statuses) {
      if (const auto it = lost.find(status.name); it != lost.end())
        status.warnings.push_back(absl::StrCat(
            it->second, it->second == 1 ? " held volume of it is" : " held volumes of it are",
            " LOST"));
    }
  };
  warn(scans_);
  warn(jobs_);
}

const model::ScanStatus* EarlierRuns::FindScan(const std::string& name) const {
  return FindIn(scans_, numbers_, name);
}
const job::JobStatus* EarlierRuns::FindJob(const std::string& name) const {
  return FindIn(jobs_, numbers_, name);
}
const operation::OperationStatus* EarlierRuns::FindCommit(const std::string& operation) const {
  return FindIn(operations_, numbers_, operation);
}

absl::Status EarlierRuns::FindVolume(const std::string& name) const {
  const auto it = volumes_.find(name);
  return it == volumes_.end() ? absl::OkStatus() : GoneVolume(it->second);
}

std::vector<model::ScanStatus> EarlierRuns::Scans(uint64_t before, size_t most) const {
  return Newest(scans_, before, most);
}
std::vector<job::JobStatus> EarlierRuns::Jobs(uint64_t before, size_t most) const {
  return Newest(jobs_, before, most);
}
std::vector<operation::OperationStatus> EarlierRuns::Commits() const {
  return Newest(operations_, std::numeric_limits<uint64_t>::max(), operations_.size());
}

uint64_t EarlierRuns::LastNumber(HistoryKind kind) const {
  const auto it = last_.find(kind);
  return it == last_.end() ? 0 : it->second;
}

absl::StatusOr<std::string> EarlierRuns::AnswerTo(
    HistoryKind kind, const std::string& request_id, absl::string_view digest,
    const std::optional<security::Owner>& owner) const {
  const auto it = requests_.find({kind, request_id});
  if (request_id.empty() || it == requests_.end()) return std::string();
  const Request& first = it->second;
  if (first.digest == digest && (!owner.has_value() || *owner == first.owner)) return first.name;
  return WithInfo(
      absl::AlreadyExistsError(absl::StrCat("request_id: is '", request_id,
                                            "', and an earlier call used it with another body (",
                                            first.name, ", of an earlier run of the server)")),
      {.reason = Reason::kIdempotencyMismatch,
       .field = "request_id",
       .numbers = {{kind == HistoryKind::kCommit ? "operation" : Name(kind), first.name}}});
}

}  // namespace octavo::engine
