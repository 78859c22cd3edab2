#include "server/security/audit_log.h"

#include <algorithm>
#include <deque>
#include <pthread.h>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/security/audit_file.h"

namespace octavo::security {
namespace {

using Time = std::chrono::steady_clock::time_point;
constexpr std::chrono::seconds kBetweenTries(1);
constexpr size_t kAtOnce = 1024;       // lines of one write
constexpr double kAtOnceSeconds = 10;  // failures of a principal that may come together
constexpr double kBytesOfALine = 512;
constexpr size_t kMostBuckets = 4096;  // principals whose failures are counted at a time

std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
}

// A line without time and number, which it gets when it is queued. It has a field at least.
std::string TextOf(const AuditLine& line) {
  return line.dump(-1, ' ', true, AuditLine::error_handler_t::replace) + "\n";
}

// What a principal may still say of failures: it fills with time, and a line empties it by one.
struct Bucket {
  double left = 0;
  Time filled;
  int64_t left_out = 0;  // lines since the last one that was written
};

}  // namespace

struct AuditLog::State {
  State(AuditFile opened, const Limits& given)
      : file(std::move(opened)),
        limits(given),
        most_left(given.failures_per_second * kAtOnceSeconds) {}

  // Of the thread.
  AuditFile file;
  bool rotation_fails = false;  // the log says so

  const Limits limits;
  const double most_left;
  Mutex mutex;
  CondVar wake, idle;
  std::deque<std::string> waiting ABSL_GUARDED_BY(mutex);
  std::unordered_map<std::string, Bucket> buckets ABSL_GUARDED_BY(mutex);  // by principal
  Time told_left_out ABSL_GUARDED_BY(mutex);
  size_t writing ABSL_GUARDED_BY(mutex) = 0;  // lines that the thread has taken
  int64_t number ABSL_GUARDED_BY(mutex) = 0, dropped_untold ABSL_GUARDED_BY(mutex) = 0;
  bool end ABSL_GUARDED_BY(mutex) = false, over ABSL_GUARDED_BY(mutex) = false;
  Counts counts ABSL_GUARDED_BY(mutex);

  void Queue(std::string text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (end || waiting.size() >= limits.most_waiting) {
      ++number;
      ++counts.dropped;
      ++dropped_untold;
      return;
    }
    QueueAnyway(std::move(text));
  }
  /// What the log says of itself has a place, in its last moments, too. `text`: of TextOf.
  void QueueAnyway(std::string text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    ++number;
    // The object goes on behind its time and number, which have the order of the lines.
    text.replace(0, 1, absl::StrCat("{\"time\":\"", Now(), "\",\"n\":", number, ","));
    waiting.push_back(std::move(text));
    wake.NotifyOne();
  }
  /// Whether a line about a failure of the principal is one too many.
  bool IsOneTooMany(const std::string& principal, size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const Time now = std::chrono::steady_clock::now();
    if (!buckets.contains(principal) && buckets.size() >= kMostBuckets) TellLeftOut(now, true);
    const auto [it, is_new] = buckets.try_emplace(principal);
    Bucket& bucket = it->second;
    if (is_new) {
      bucket.left = most_left;
    } else {
      const std::chrono::duration<double> since = now - bucket.filled;
      bucket.left = std::min(most_left, bucket.left + since.count() * limits.failures_per_second);
    }
    bucket.filled = now;
    if (bucket.left >= 1) {
      bucket.left -= std::max(1.0, static_cast<double>(bytes) / kBytesOfALine);
      return false;
    }
    ++bucket.left_out;
    ++counts.left_out;
    return true;
  }
  /// Says, once a second (or at once, of all), how many lines of whom were left out, and forgets
  /// principals that are quiet (or all).
  void TellLeftOut(Time now, bool all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!all && (now - told_left_out < std::chrono::seconds(1) ||
                 waiting.size() >= limits.most_waiting / 2))
      return;
    told_left_out = now;
    std::vector<std::pair<std::string, int64_t>> told;
    for (auto it = buckets.begin(); it != buckets.end();) {
      if (it->second.left_out > 0)
        told.emplace_back(it->first, std::exchange(it->second.left_out, 0));
      const std::chrono::duration<double> since = now - it->second.filled;
      it = all || since.count() > kAtOnceSeconds ? buckets.erase(it) : std::next(it);
    }
    for (const auto& [principal, lines] : told)
      QueueAnyway(
          TextOf({{"event", "lines left out"}, {"principal", principal}, {"lines", lines}}));
  }
  void TellDropped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (dropped_untold == 0 || waiting.size() >= limits.most_waiting / 2) return;
    const int64_t lines = std::exchange(dropped_untold, 0);
    QueueAnyway(TextOf({{"event", "lines lost"}, {"lines", lines}}));
  }
  absl::Status Append(const std::string& lines) {
    return base::ExceptionToStatus([&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(file.Append(lines, limits.fsync));
      // The lines are written, whatever becomes of the files that were put aside.
      std::vector<AuditFile::Removed> removed;
      const absl::Status rotated = file.Rotate(limits.bytes, limits.kept, &removed);
      // With the file go the oldest lines: whoever may make many can push out those of others.
      for (const AuditFile::Removed& one : removed) {
        MutexLock lock(mutex);
        QueueAnyway(TextOf({{"event", "file removed"}, {"file", one.name}, {"bytes", one.bytes}}));
      }
      if (!rotated.ok() && !std::exchange(rotation_fails, true))
        Log(LogLevel::kWarning, "the file of the audit log is not put aside",
            {{"error", std::string(rotated.message())}});
      if (rotated.ok()) rotation_fails = false;
      return absl::OkStatus();
    });
  }
};

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& folder,
                                                         const Limits& limits) {
  OCTAVO_ASSIGN_OR_RETURN(AuditFile file, AuditFile::Open(folder));
  return std::unique_ptr<AuditLog>(new AuditLog(std::make_shared<State>(std::move(file), limits)));
}

AuditLog::AuditLog(std::shared_ptr<State> state) : state_(std::move(state)) {
  std::thread([state = state_] { Run(state); }).detach();
}

AuditLog::~AuditLog() { (void)Close(std::chrono::seconds(1)); }

void AuditLog::Write(const AuditLine& line, const std::string* failing) {
  State& state = *state_;
  bool first_drop = false;
  // Where memory is short, a line is lost, and is counted.
  const absl::Status queued = base::ExceptionToStatus([&] {
    // Before the lock: others write, too.
    std::string text = TextOf(line);
    MutexLock lock(state.mutex);
    if (failing != nullptr && state.IsOneTooMany(*failing, text.size())) return absl::OkStatus();
    const bool dropped = state.dropped_untold > 0;
    state.Queue(std::move(text));
    first_drop = !dropped && state.dropped_untold > 0;
    return absl::OkStatus();
  });
  if (!queued.ok()) {
    MutexLock lock(state.mutex);
    ++state.counts.dropped;
    first_drop = ++state.dropped_untold == 1;
  }
  if (first_drop)
    Log(LogLevel::kError,
        "the audit log has no place for more lines; they are dropped and counted");
}

size_t AuditLog::Close(std::chrono::milliseconds patience) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (std::exchange(closed_, true)) return 0;
  state.TellLeftOut(std::chrono::steady_clock::now(), true);
  state.TellDropped();
  state.end = true;
  state.wake.NotifyAll();
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!state.over) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) break;
    (void)state.idle.WaitFor(lock, until - now);
  }
  return state.waiting.size() + state.writing;
}

AuditLog::Counts AuditLog::Count() const {
  MutexLock lock(state_->mutex);
  Counts counts = state_->counts;
  counts.waiting = static_cast<int64_t>(state_->waiting.size() + state_->writing);
  return counts;
}

void AuditLog::Run(const std::shared_ptr<State>& shared) {
  pthread_setname_np(pthread_self(), "oct-audit");
  State& state = *shared;
  std::string lines;  // that are not written yet
  size_t count = 0;   // of them
  for (;;) {
    bool end = false;
    {
      MutexLock lock(state.mutex);
      // Once a second it says what was left out, though nothing else comes.
      if (state.waiting.empty() && count == 0 && !state.end)
        (void)state.wake.WaitFor(lock, std::chrono::seconds(1));
      (void)base::GuardedTurn("a turn of oct-audit broke off",
                              [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                if (!state.end)
                                  state.TellLeftOut(std::chrono::steady_clock::now(), false);
                                state.TellDropped();
                                for (; count < kAtOnce && !state.waiting.empty(); ++count) {
                                  lines += state.waiting.front();
                                  state.waiting.pop_front();
                                }
                              });
      state.writing = count;
      end = state.end;
      if (count == 0 && end) break;
    }
    if (count == 0) continue;
    const absl::Status written = state.Append(lines);
    bool news = false;
    {
      MutexLock lock(state.mutex);
      news = state.counts.failing == written.ok();
      state.counts.failing = !written.ok();
      state.counts.error = std::string(written.message());
      if (written.ok()) {
        state.counts.written += static_cast<int64_t>(count);
        state.writing = 0;
      } else {
        ++state.counts.errors;
      }
    }
    if (news && written.ok()) Log(LogLevel::kInfo, "the audit log is written again");
    if (news && !written.ok())
      Log(LogLevel::kError, "the audit log cannot be written; its lines wait",
          {{"error", std::string(written.message())}});
    if (written.ok()) {
      lines.clear();
      count = 0;
      continue;
    }
    if (end) break;  // nobody will see a later attempt
    MutexLock lock(state.mutex);
    const Time again = std::chrono::steady_clock::now() + kBetweenTries;
    for (Time now; !state.end && (now = std::chrono::steady_clock::now()) < again;)
      (void)state.wake.WaitFor(lock, again - now);
  }
  MutexLock lock(state.mutex);
  state.over = true;
  state.idle.NotifyAll();
}

}  // namespace octavo::security
