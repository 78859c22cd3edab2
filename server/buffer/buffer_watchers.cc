#include "server/buffer/buffer_watchers.h"

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace octavo::buffer {
namespace {

constexpr size_t kMostGone = 1000;  // that a watcher remembers

}  // namespace

/// The events of one watcher wait in a queue; one thread at a time takes them out and calls the
/// watcher, without locks.
class BufferWatchers::Watcher {
 public:
  Watcher(const model::Caller& caller, Told told) : caller_(caller), told_(std::move(told)) {}
  const model::Caller& caller() const { return caller_; }
  /// Reports the existing buffers, before any event of Tell.
  void Begin(const std::vector<model::BufferStatus>& now);
  void Tell(model::BufferEventKind kind, const model::BufferStatus& status,
            const std::string& text);

 private:
  struct Event {
    model::BufferEventKind kind;
    model::BufferStatus status;
    std::string text;
  };
  bool IsOldLocked(Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drain();

  const model::Caller caller_;
  const Told told_;
  Mutex mutex_;
  bool telling_ ABSL_GUARDED_BY(mutex_) =
      true;  // a thread is calling; at first the thread that called Watch
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> told_revisions_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> gone_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

void BufferWatchers::Watcher::Begin(const std::vector<model::BufferStatus>& now) {
  {
    MutexLock lock(mutex_);
    for (auto status = now.rbegin(); status != now.rend(); ++status)
      events_.push_front({model::BufferEventKind::kExists, *status, ""});
  }
  Drain();
}

void BufferWatchers::Watcher::Tell(model::BufferEventKind kind, const model::BufferStatus& status,
                                   const std::string& text) {
  {
    MutexLock lock(mutex_);
    events_.push_back({kind, status, text});
    if (telling_) return;
    telling_ = true;
  }
  Drain();
}

void BufferWatchers::Watcher::Drain() {
  for (;;) {
    Event event;
    {
      MutexLock lock(mutex_);
      while (!events_.empty() && IsOldLocked(events_.front())) events_.pop_front();
      if (events_.empty()) {
        telling_ = false;
        return;
      }
      event = std::move(events_.front());
      events_.pop_front();
    }
    absl::Cleanup failed = [this] {
      MutexLock lock(mutex_);
      telling_ = false;  // the thread of the next event tells it
    };
    told_(event.kind, event.status, event.text);
    std::move(failed).Cancel();
  }
}

bool BufferWatchers::Watcher::IsOldLocked(Event& event) {
  const auto [known, first] = told_revisions_.try_emplace(event.status.name, 0);
  uint64_t& newest = known->second;
  if (event.status.revision < newest) return true;
  // A change may overtake the news that the buffer was created.
  if (first && event.kind == model::BufferEventKind::kChanged)
    event.kind = model::BufferEventKind::kCreated;
  newest = event.status.revision;
  if (event.kind == model::BufferEventKind::kGone) {
    newest = std::numeric_limits<uint64_t>::max();
    gone_.push_back(event.status.name);
    if (gone_.size() > kMostGone) {
      told_revisions_.erase(gone_.front());
      gone_.pop_front();
    }
  }
  return false;
}

std::shared_ptr<void> BufferWatchers::Watch(
    const model::Caller& caller, Told told,
    const std::function<std::vector<model::BufferStatus>()>& existing) {
  auto watcher = std::make_shared<Watcher>(caller, std::move(told));
  {
    MutexLock lock(mutex_);
    watchers_.push_back(watcher);
  }
  // A change made before the next line is among the existing buffers; a later one finds the watcher
  // listed. The watcher hears twice of a change that is in both, or once if it is old by then.
  watcher->Begin(existing());
  return watcher;
}

void BufferWatchers::Tell(model::BufferEventKind kind, const model::BufferStatus& status,
                          const std::string& key, const std::string& text) {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    MutexLock lock(mutex_);
    for (auto it = watchers_.begin(); it != watchers_.end();) {
      if (auto watcher = it->lock()) {
        if (!status.is_private || watcher->caller().key == key)
          watchers.push_back(std::move(watcher));
        ++it;
      } else {
        it = watchers_.erase(it);
      }
    }
  }
  for (const auto& watcher : watchers) watcher->Tell(kind, status, text);
}

}  // namespace octavo::buffer
