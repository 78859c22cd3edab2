#include "server/engine/history_recorder.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <pthread.h>
#include <utility>

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/engine/history_rows.h"

namespace octavo::engine {
namespace {

constexpr std::chrono::milliseconds kShortest(10);  // between turns for held volumes

/// What makes a commit one of the running ones.
std::string KeyOf(const volume::CommitNews& commit) {
  return commit.origin.operation.empty() ? commit.volume : commit.origin.operation;
}

// A row that cannot be made for lack of memory must not end a thread of the server.
void Guarded(const char* what, const std::function<void()>& act) {
  const absl::Status status = base::ExceptionToStatus([&] {
    act();
    return absl::OkStatus();
  });
  if (!status.ok())
    Log(LogLevel::kError, "the history lacks a change",
        {{"of", what}, {"error", status.ToString()}});
}

}  // namespace

void HistoryRecorder::Start(Sources sources) {
  if (!on()) return;
  sources_ = std::move(sources);
  volumes_.Start(sources_.volume, [this] {
    MutexLock lock(mutex_);
    volumes_due_ = true;
    wake_.NotifyOne();
  });
  thread_ = std::thread([this] { Run(); });
}

void HistoryRecorder::Stop() {
  {
    MutexLock lock(mutex_);
    end_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void HistoryRecorder::OnScanChanged(const std::string& scan) {
  if (!on()) return;
  Guarded("a scan", [&] {
    MutexLock lock(mutex_);
    if (end_) return;
    scans_.insert(scan);
    wake_.NotifyOne();
  });
}

void HistoryRecorder::OnScanWithdrawn(const std::string& scan) {
  if (!on()) return;
  Guarded("a scan", [&] {
    MutexLock lock(mutex_);
    withdrawn_.insert(scan);
  });
  OnScanChanged(scan);
}

void HistoryRecorder::OnJobsChanged() {
  if (!on()) return;
  MutexLock lock(mutex_);
  jobs_ = true;
  wake_.NotifyOne();
}

void HistoryRecorder::OnCommitBegun(const volume::CommitNews& commit) {
  if (!on()) return;
  Guarded("a commit", [&] {
    uint64_t number = 0;
    {
      MutexLock lock(mutex_);
      number = ++commits_;
      commit_numbers_[KeyOf(commit)] = number;
    }
    Put(RowOf(commit, number, nullptr, clock_->Now()));
  });
}

void HistoryRecorder::OnCommitEnded(const volume::CommitNews& commit,
                                    const absl::StatusOr<storage::CommitOutcome>& outcome) {
  if (!on()) return;
  Guarded("a commit", [&] {
    uint64_t number = 0;
    {
      MutexLock lock(mutex_);
      const auto it = commit_numbers_.find(KeyOf(commit));
      number = it == commit_numbers_.end() ? ++commits_ : it->second;
      if (it != commit_numbers_.end()) commit_numbers_.erase(it);
    }
    Put(RowOf(commit, number, &outcome, clock_->Now()));
    if (!commit.scan.empty()) OnScanChanged(commit.scan);  // it counts its commits
  });
}

void HistoryRecorder::Put(storage::HistoryRow row) {
  audit_->OnRow(row);
  if (writer_ != nullptr) writer_->Put(std::move(row));
}

void HistoryRecorder::PutScan(const std::string& name) {
  auto scan = sources_.scan(name);
  if (scan.ok()) {
    storage::HistoryRow row = RowOf(*scan);
    if (row.ended) {
      open_.erase(name);
    } else {
      open_[name] = row;
    }
    Put(std::move(row));
    return;
  }
  bool withdrawn = false;
  {
    MutexLock lock(mutex_);
    withdrawn = withdrawn_.erase(name) > 0;
  }
  const auto it = open_.find(name);
  if (it == open_.end()) return;
  storage::HistoryRow row = std::move(it->second);
  open_.erase(it);
  row.state = Name(model::ScanState::kFailed);
  row.reason_code = std::string(Name(Reason::kInternal));
  if (withdrawn) {
    row.reason = "it could not begin";
    row.request_id.clear();  // the id is free again
  } else {
    row.reason = "it ended, and the server forgot how before the history had it";
  }
  row.ended = true;
  row.ended_unix_ns = clock_->Now().unix_ns;
  Put(std::move(row));
}

void HistoryRecorder::Collect(const std::set<std::string>& scans, bool jobs) {
  for (const std::string& name : scans) Guarded("a scan", [&] { PutScan(name); });
  if (!jobs) return;
  Guarded("jobs", [&] {
    uint64_t seen = jobs_seen_;
    for (const job::JobStatus& job : sources_.jobs(&seen)) Put(RowOf(job));
    jobs_seen_ = seen;
  });
}

void HistoryRecorder::Run() {
  pthread_setname_np(pthread_self(), "oct-history");
  std::optional<std::chrono::nanoseconds> pause;  // until held volumes are due
  for (bool end = false; !end;) {
    std::set<std::string> scans;
    bool jobs = false;
    {
      MutexLock lock(mutex_);
      while (scans_.empty() && !jobs_ && !volumes_due_ && !end_) {
        if (!pause.has_value()) {
          wake_.Wait(lock);
        } else if (!wake_.WaitFor(lock, std::max<std::chrono::nanoseconds>(*pause, kShortest))) {
          break;
        }
      }
      volumes_due_ = false;
      scans.swap(scans_);
      jobs = std::exchange(jobs_, false);
      end = end_;
      // Nothing may be told after the last look, but jobs are looked at in any case.
      jobs |= end;
    }
    Collect(scans, jobs);
    pause = kShortest;  // where memory is short
    Guarded("held volumes", [&] { pause = volumes_.Turn(end); });
  }
}

}  // namespace octavo::engine
