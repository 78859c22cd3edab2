#include "server/engine/resume_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/security/role.h"
#include "server/storage/resume/resume_folder.h"

namespace octavo::engine {
namespace {

constexpr int64_t kRetryNs = 10'000'000'000;  // after an error of the disk

}  // namespace

absl::Status ResumeBook::CheckRoom(const security::Owner& owner) {
  MutexLock lock(mutex_);
  return CheckRoomLocked(owner);
}

absl::Status ResumeBook::CheckRoomLocked(const security::Owner& owner) {
  if (folder_ == nullptr) {
    return WithInfo(absl::FailedPreconditionError(
                        "on_restart: is RESUME, but the server has no folder for the records of "
                        "such scans (resume below state.dir; its log says why); allowed END"),
                    {.reason = Reason::kIoError, .field = "on_restart", .numbers = {}});
  }
  const auto has = std::count_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.owner.name == owner.name;
  });
  if (!owner.name.empty() && has >= kMostOfOwner && owner.role != security::Role::kAdmin) {
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        "on_restart: is RESUME, and ", owner.name, " has ", has,
                        " such scans already; allowed ", kMostOfOwner, " for each principal, of ",
                        kMost, " in all; stop one, or submit this one with END")),
                    {.reason = Reason::kQuota,
                     .field = "on_restart",
                     .numbers = {{"principal", owner.name},
                                 {"kind", "resumes"},
                                 {"used", absl::StrCat(has)},
                                 {"wanted", "1"},
                                 {"allowed", absl::StrCat(kMostOfOwner)},
                                 {"retryable", "true"}}});
  }
  if (std::ssize(entries_) < kMost) return absl::OkStatus();
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat(
          "on_restart: is RESUME, and the server keeps the records of ", entries_.size(),
          " such scans already; allowed ", kMost, "; stop one, or submit this one with END")),
      {.reason = Reason::kBusy,
       .field = "on_restart",
       .numbers = {{"waiting", absl::StrCat(entries_.size())}, {"retryable", "true"}}});
}

absl::Status ResumeBook::Begin(const std::string& scan, const security::Owner& owner,
                               const std::string& request) {
  const std::string record(absl::StripPrefix(scan, "scans/"));
  const TimePoint now = clock_->Now();
  const Mark mark{.scan = scan, .early_deaths = 0, .early = true, .begun_unix_ns = now.unix_ns};
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(CheckRoomLocked(owner));
    entries_[record] = {
        .want = mark, .have = mark, .owner = owner, .busy = true, .begun_ns = now.monotonic_ns};
  }
  const absl::Status written = base::ExceptionToStatus([&] {
    return folder_->Put({.id = record,
                         .scan = scan,
                         .owner = owner.name,
                         .project = owner.project,
                         .role = std::string(security::Name(owner.role)),
                         .early_deaths = mark.early_deaths,
                         .early = mark.early,
                         .begun_unix_ns = mark.begun_unix_ns,
                         .request = request});
  });
  // A folder that could not be synced may have the file.
  const bool left =
      !written.ok() && !base::ExceptionToStatus([&] { return folder_->Remove(record); }).ok();
  MutexLock lock(mutex_);
  const auto it = entries_.find(record);
  it->second.busy = false;
  if (left) it->second.over = true;  // Tend tries again
  if (!written.ok() && !left) entries_.erase(it);
  settled_.NotifyAll();
  return written.ok() ? written
                      : Annotate(written, "on_restart: the scan's record cannot be written");
}

ResumeBook::Entries::iterator ResumeBook::FindScan(const std::string& scan) {
  auto it = entries_.begin();
  while (it != entries_.end() && it->second.want.scan != scan) ++it;
  return it;
}

void ResumeBook::Began(const std::string& scan) {
  MutexLock lock(mutex_);
  if (const auto it = FindScan(scan); it != entries_.end()) {
    it->second.begun = true;
    it->second.begun_ns = clock_->Now().monotonic_ns;
  }
}

bool ResumeBook::Has(const std::string& scan) {
  MutexLock lock(mutex_);
  return FindScan(scan) != entries_.end();
}

std::optional<security::Owner> ResumeBook::OwnerOfWaiting(const std::string& scan) {
  MutexLock lock(mutex_);
  const auto it = FindScan(scan);
  if (it == entries_.end() || !it->second.refused) return std::nullopt;
  return it->second.owner;
}

std::string ResumeBook::SuccessorOf(const std::string& scan) {
  const absl::string_view id = absl::StripPrefix(scan, "scans/");
  MutexLock lock(mutex_);
  for (const auto& [record, entry] : entries_) {
    if (!entry.over && entry.want.scan != scan && (record == id || entry.from == scan))
      return entry.want.scan;
  }
  return "";
}

void ResumeBook::Drop(const std::string& scan) {
  std::string record;
  {
    MutexLock lock(mutex_);
    const auto it = FindScan(scan);
    if (it == entries_.end()) return;
    it->second.over = true;
    record = it->first;
  }
  (void)Settle(record);  // the log has the error
}

absl::Status ResumeBook::Rewrite(const std::string& record, const Mark& mark) {
  OCTAVO_ASSIGN_OR_RETURN(storage::ResumeRecord said, folder_->Get(record));
  said.scan = mark.scan;
  said.early_deaths = mark.early_deaths;
  said.early = mark.early;
  said.begun_unix_ns = mark.begun_unix_ns;
  return folder_->Put(said);
}

absl::Status ResumeBook::Settle(const std::string& record) {
  Mark want;
  bool over = false;
  {
    MutexLock lock(mutex_);
    for (;;) {
      const auto it = entries_.find(record);
      if (it == entries_.end()) return absl::OkStatus();
      if (!it->second.busy) {
        if (!it->second.over && it->second.want == it->second.have) return absl::OkStatus();
        want = it->second.want;
        over = it->second.over;
        it->second.busy = true;
        break;
      }
      settled_.Wait(lock);
    }
  }
  const absl::Status done = base::ExceptionToStatus(
      [&] { return over ? folder_->Remove(record) : Rewrite(record, want); });
  bool news = false;
  {
    MutexLock lock(mutex_);
    const auto it = entries_.find(record);  // nobody else removes it while it is busy
    Entry& entry = it->second;
    entry.busy = false;
    news = !done.ok() && !entry.failing;
    entry.failing = !done.ok();
    entry.retry_ns = clock_->Now().monotonic_ns + kRetryNs;
    if (done.ok() && over) {
      if (entry.refused) --not_resumed_;  // it waits no more
      entries_.erase(it);
    } else if (done.ok()) {
      entry.have = std::move(want);
    }
    settled_.NotifyAll();
  }
  if (news) {
    Log(LogLevel::kError,
        over ? "the record of a scan that is over is not removed: if the daemon died now, the next "
               "one would resume the scan"
             : "the record of a scan is not brought up to date",
        {{"record", record}, {"scan", want.scan}, {"error", std::string(done.message())}});
  }
  return done;
}

absl::StatusOr<ScanToResume> ResumeBook::TakeUp(const std::string& record, std::string* given_up) {
  const auto counted = [&](absl::Status why) {
    MutexLock lock(mutex_);
    ++not_resumed_;
    return why;
  };
  auto read = folder_->Get(record);
  if (absl::IsDataLoss(read.status()))
    return counted(absl::DataLossError(folder_->PutAside(record, read.status().message())));
  if (!read.ok()) return counted(read.status());
  storage::ResumeRecord& said = *read;
  const security::Owner owner{
      .name = said.owner,
      .project = said.project,
      .role = security::RoleNamed(said.role).value_or(security::Role::kNone)};
  const int64_t deaths = said.early_deaths + (said.early ? 1 : 0);
  if (deaths >= kMostEarlyDeaths) {
    // A record that cannot be removed is given up by the next start again.
    const absl::Status removed = folder_->Remove(record);
    *given_up = said.scan;
    return counted(absl::AbortedError(
        absl::StrCat(deaths, " daemons in a row died less than a minute after they had begun it",
                     removed.ok() ? "" : absl::StrCat("; its record stays: ", removed.message()))));
  }
  const TimePoint now = clock_->Now();
  {
    MutexLock lock(mutex_);
    if (std::ssize(entries_) >= kMost) {
      ++not_resumed_;
      return absl::ResourceExhaustedError(
          absl::StrCat(said.scan, " is one of more than ", kMost, " scans to resume"));
    }
    entries_[record] = {.want = {.scan = said.scan,
                                 .early_deaths = deaths,
                                 .early = true,
                                 .begun_unix_ns = now.unix_ns},
                        .have = {.scan = said.scan,
                                 .early_deaths = said.early_deaths,
                                 .early = said.early,
                                 .begun_unix_ns = said.begun_unix_ns},
                        .from = said.scan,
                        .owner = owner};
  }
  // Before the scan begins: if it kills this daemon at once, the next one has to know.
  if (const absl::Status noted = Settle(record); !noted.ok()) {
    Refused(record);
    return Annotate(noted, absl::StrCat(said.scan, ": its record cannot be written"));
  }
  return ScanToResume{.record = record,
                      .scan = std::move(said.scan),
                      .owner = owner,
                      .request = std::move(said.request)};
}

void ResumeBook::Resumed(const std::string& record, const std::string& scan) {
  {
    MutexLock lock(mutex_);
    const auto it = entries_.find(record);
    if (it == entries_.end()) return;
    it->second.want.scan = scan;
    it->second.begun = true;
    it->second.begun_ns = clock_->Now().monotonic_ns;
    ++resumed_;
  }
  (void)Settle(record);  // Tend tries again; until then the next start would name the earlier scan
}

void ResumeBook::Refused(const std::string& record) {
  {
    MutexLock lock(mutex_);
    const auto it = entries_.find(record);
    if (it == entries_.end()) return;
    it->second.want.early = false;
    it->second.refused = true;
    ++not_resumed_;
  }
  (void)Settle(record);
}

void ResumeBook::Tend(const std::function<Fate(const std::string& scan)>& fate, bool draining) {
  if (folder_ == nullptr) return;
  std::map<std::string, std::string> scans;  // by record
  {
    MutexLock lock(mutex_);
    for (const auto& [record, entry] : entries_) {
      if (entry.begun && !entry.over) scans.emplace(record, entry.want.scan);
    }
  }
  std::map<std::string, Fate> fates;
  for (const auto& [record, scan] : scans) fates.emplace(record, fate(scan));
  const int64_t now = clock_->Now().monotonic_ns;
  std::vector<std::string> due;
  {
    MutexLock lock(mutex_);
    for (auto& [record, entry] : entries_) {
      if (const auto it = fates.find(record); it != fates.end()) {
        entry.over |= it->second == Fate::kOver;
        if (draining || it->second == Fate::kEndedByDaemon || now - entry.begun_ns >= kEarlyNs) {
          entry.want.early = false;
          entry.want.early_deaths = 0;
        }
      }
      const bool differs = entry.over || entry.want != entry.have;
      if (differs && !entry.busy && (!entry.failing || now >= entry.retry_ns))
        due.push_back(record);
    }
  }
  for (const std::string& record : due) (void)Settle(record);
}

void ResumeBook::AddTo(model::Stats* stats) {
  MutexLock lock(mutex_);
  stats->scans_resumed = resumed_;
  stats->scans_not_resumed = not_resumed_;
}

}  // namespace octavo::engine
