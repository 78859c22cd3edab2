#include "server/storage/history/history_writer.h"

#include <algorithm>
#include <list>
#include <map>
#include <pthread.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"

#include "gpu/base/clock.h"
#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::storage {
namespace {

constexpr size_t kAtOnce = 512;  // rows of one transaction
constexpr std::chrono::seconds kBetweenTries(1);
constexpr int64_t kRowsBetweenPrunes = 200;
using Key = std::pair<HistoryKind, std::string>;

Key KeyOf(const HistoryRow& row) { return {row.kind, row.name}; }

}  // namespace

struct HistoryWriter::State {
  State(std::unique_ptr<HistoryDatabase> opened, const HistoryLimits& kept, size_t most)
      : database(std::move(opened)), limits(kept), most_waiting(most) {}

  // Of the thread.
  std::unique_ptr<HistoryDatabase> database;
  const HistoryLimits limits;
  int64_t since_prune = kRowsBetweenPrunes;  // the first rows are followed by a prune

  const size_t most_waiting;
  Mutex mutex;
  CondVar wake, idle;
  std::list<HistoryRow> waiting ABSL_GUARDED_BY(mutex);  // the one to write first in front
  std::map<Key, std::list<HistoryRow>::iterator> by_key ABSL_GUARDED_BY(mutex);
  size_t writing ABSL_GUARDED_BY(mutex) = 0;  // rows that the thread has taken
  bool end ABSL_GUARDED_BY(mutex) = false, over ABSL_GUARDED_BY(mutex) = false;
  Counts counts ABSL_GUARDED_BY(mutex);
  bool dropping ABSL_GUARDED_BY(mutex) = false;  // the log says so

  std::vector<HistoryRow> Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::vector<HistoryRow> rows;
    rows.reserve(std::min(waiting.size(), kAtOnce));
    while (!waiting.empty() && rows.size() < kAtOnce) {
      by_key.erase(KeyOf(waiting.front()));
      rows.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
    writing = rows.size();
    return rows;
  }
  /// Rows that could not be written wait again, in front, unless newer ones have come. Where memory
  /// is short, those that find no place are dropped and counted.
  void GiveBack(std::vector<HistoryRow> rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      const absl::Status placed = base::ExceptionToStatus([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const Key key = KeyOf(*row);
        const auto placed_at = by_key.try_emplace(key);
        const auto place = placed_at.first;
        if (!placed_at.second) return absl::OkStatus();
        absl::Cleanup withdrawn = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { by_key.erase(place); };
        waiting.push_front(std::move(*row));
        place->second = waiting.begin();
        std::move(withdrawn).Cancel();
        return absl::OkStatus();
      });
      if (!placed.ok()) ++counts.dropped;
    }
  }
  absl::Status Write(const std::vector<HistoryRow>& rows) {
    return base::ExceptionToStatus([&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(database->Write(rows));
      since_prune += static_cast<int64_t>(rows.size());
      if (since_prune < kRowsBetweenPrunes) return absl::OkStatus();
      since_prune = 0;
      // The rows are written, whatever becomes of the old ones.
      const auto pruned = database->Prune(limits, SystemClock().Now().unix_ns);
      if (!pruned.ok())
        Log(LogLevel::kWarning, "old rows of the history are not removed",
            {{"error", std::string(pruned.status().message())}});
      return absl::OkStatus();
    });
  }
};

HistoryWriter::HistoryWriter(std::unique_ptr<HistoryDatabase> database, const HistoryLimits& limits,
                             size_t most_waiting)
    : state_(std::make_shared<State>(std::move(database), limits, most_waiting)) {
  std::thread([state = state_] { Run(state); }).detach();
}

HistoryWriter::~HistoryWriter() { (void)Close(std::chrono::seconds(1)); }

void HistoryWriter::Put(HistoryRow row) {
  State& state = *state_;
  bool first_drop = false;
  std::string name;
  {
    MutexLock lock(state.mutex);
    const auto found = state.by_key.find(KeyOf(row));
    if (state.end || (found == state.by_key.end() && state.waiting.size() >= state.most_waiting)) {
      ++state.counts.dropped;
      first_drop = !std::exchange(state.dropping, true);
      name = row.name;
    } else if (found != state.by_key.end()) {
      *found->second = std::move(row);
    } else {
      Key key = KeyOf(row);
      state.waiting.push_back(std::move(row));
      state.by_key.emplace(std::move(key), std::prev(state.waiting.end()));
      state.wake.NotifyOne();
    }
  }
  if (first_drop)
    Log(LogLevel::kError, "the history has no place for more rows; they are dropped and counted",
        {{"first", name}});
}

size_t HistoryWriter::Close(std::chrono::milliseconds patience) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (std::exchange(closed_, true)) return 0;
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

HistoryWriter::Counts HistoryWriter::Count() const {
  MutexLock lock(state_->mutex);
  Counts counts = state_->counts;
  counts.waiting = static_cast<int64_t>(state_->waiting.size() + state_->writing);
  return counts;
}

void HistoryWriter::Run(const std::shared_ptr<State>& shared) {
  pthread_setname_np(pthread_self(), "oct-history-io");
  State& state = *shared;
  for (;;) {
    std::vector<HistoryRow> rows;
    {
      MutexLock lock(state.mutex);
      while (state.waiting.empty() && !state.end) state.wake.Wait(lock);
      if (state.waiting.empty()) break;
      // Where memory is short, the rows wait.
      if (!base::GuardedTurn("a turn of oct-history-io broke off",
                             [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { rows = state.Take(); }))
        continue;
    }
    const absl::Status written = state.Write(rows);
    bool news = false;
    {
      MutexLock lock(state.mutex);
      state.writing = 0;
      news = state.counts.failing == written.ok();
      state.counts.failing = !written.ok();
      (void)base::ExceptionToStatus([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        state.counts.error = std::string(written.message());
        return absl::OkStatus();
      });
      if (written.ok()) {
        state.counts.written += static_cast<int64_t>(rows.size());
        state.dropping = false;
      } else {
        ++state.counts.errors;
        state.GiveBack(std::move(rows));
      }
    }
    if (news && written.ok()) Log(LogLevel::kInfo, "the history is written again");
    if (news && !written.ok())
      Log(LogLevel::kError, "the history cannot be written; its rows wait",
          {{"error", std::string(written.message())}});
    if (written.ok()) continue;
    MutexLock lock(state.mutex);
    const auto again = std::chrono::steady_clock::now() + kBetweenTries;
    for (auto now = again - kBetweenTries; !state.end && now < again;
         now = std::chrono::steady_clock::now())
      (void)state.wake.WaitFor(lock, again - now);
    if (state.end) break;  // nobody will see a later attempt
  }
  state.database.reset();  // the log is put into the database
  MutexLock lock(state.mutex);
  state.over = true;
  state.idle.NotifyAll();
}

}  // namespace octavo::storage
