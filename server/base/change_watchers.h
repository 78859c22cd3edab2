#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "server/base/change_teller.h"
#include "server/base/exception_to_status.h"

namespace octavo::base {

/// What a watcher is told. Values as in octavo.v1.WatchBuffersResponse.Kind.
enum class ChangeKind : uint8_t {
  kExists = 1,  // it was there when the watch began
  kCreated = 2,
  kChanged = 3,
  kExpiring = 4,  // its time to live ends soon
  kGone = 5       // the last news of it
};

/// The watchers of a kind of resource. A watcher hears of what exists before it hears of changes,
/// and never of an older state of a resource after a newer one, in whichever order the threads that
/// made the changes arrive: Status has a `name`, and a `revision` that grows with each change of
/// the resource. A thread that makes a change only queues it, however many watch; a ChangeTeller
/// calls the watchers. When it cannot keep up, several changes of a resource become one, so that
/// what waits is bounded. Thread-safe; callbacks run without locks. One thread at a time calls a
/// watcher.
template <class Status>
class ChangeWatchers {
 public:
  using StatusPtr = std::shared_ptr<const Status>;
  /// All watchers hear of a change with the same object.
  using Told = std::function<void(ChangeKind, const StatusPtr&, const std::string& text)>;

  /// `complete` adds to a status what is looked up once for all watchers, on the thread that tells
  /// of the change. It outlives this object's use.
  explicit ChangeWatchers(std::function<void(Status*)> complete = nullptr)
      : complete_(std::move(complete)) {}

  /// Calls `told` for each of the resources that `existing` returns, on this thread; then for each
  /// change, until the returned handle is destroyed. `existing` is called without locks. `key`:
  /// opens private resources.
  std::shared_ptr<void> Watch(std::string key, Told told,
                              const std::function<std::vector<Status>()>& existing) {
    auto watcher = std::make_shared<Watcher>(std::move(key), std::move(told));
    {
      MutexLock lock(mutex_);
      watcher->since_ = queued_;
      watchers_.push_back(watcher);
    }
    // A change made before the next line is among the existing resources; a later one finds the
    // watcher listed. One that is in both is told once more, or left out if it is old by then.
    watcher->Begin(existing());
    return watcher;
  }

  /// Queues a change that has been made. `only`: the key of a private resource, which other
  /// watchers do not hear of; null: all hear of it.
  void Tell(ChangeKind kind, const Status& status, const std::string& text,
            const std::string* only = nullptr) {
    MutexLock lock(mutex_);
    // The thread of an older change may come after the one that told of the end. A watch that has
    // begun in between would take the resource for a new one, and never hear that it is gone.
    if (gone_.count(status.name) > 0) return;
    if (kind == ChangeKind::kGone) RememberGone(status.name);
    if (watchers_.empty()) return;
    Queue({.kind = kind,
           .status = status,
           .text = text,
           .is_private = only != nullptr,
           .key = only == nullptr ? "" : *only});
    if (posted_) return;
    teller_.Post([this] { TellQueued(); });
    posted_ = true;
  }

  /// Returns when the watchers have heard of the changes told before, for tests.
  void Flush() { teller_.Flush(); }

  static constexpr size_t kMostSingle = 256;  // changes that wait; more become one per resource

 private:
  struct Change {
    ChangeKind kind = ChangeKind::kChanged;
    Status status;
    std::string text;
    bool is_private = false;
    std::string key;
    uint64_t number = 0;  // of the newest change in it, by the order of Tell
  };

  /// The events of one watcher wait in a queue; one thread at a time takes them out and calls the
  /// watcher, without locks.
  class Watcher {
   public:
    Watcher(std::string key, Told told) : key_(std::move(key)), told_(std::move(told)) {}
    uint64_t since_ = 0;  // the changes up to this number were made before the watch began
    const std::string& key() const { return key_; }

    /// Reports the existing resources, before any event of Tell.
    void Begin(std::vector<Status> now) {
      {
        MutexLock lock(mutex_);
        for (auto status = now.rbegin(); status != now.rend(); ++status)
          events_.push_front(
              {ChangeKind::kExists, std::make_shared<const Status>(std::move(*status)), ""});
      }
      Drain();
    }

    void Tell(ChangeKind kind, const StatusPtr& status, const std::string& text) {
      {
        MutexLock lock(mutex_);
        events_.push_back({kind, status, text});
        if (telling_) return;
        telling_ = true;
      }
      Drain();
    }

   private:
    struct Event {
      ChangeKind kind = ChangeKind::kExists;
      StatusPtr status;
      std::string text;
    };
    void Drain() {
      for (;;) {
        Event event;
        {
          MutexLock lock(mutex_);
          while (!events_.empty() && IsOld(events_.front())) events_.pop_front();
          if (events_.empty()) {
            telling_ = false;
            return;
          }
          event = std::move(events_.front());
          events_.pop_front();
        }
        absl::Cleanup failed = [this] {
          MutexLock lock(mutex_);
          telling_ = false;  // the next event is told by the thread that brings it
        };
        told_(event.kind, event.status, event.text);
        std::move(failed).Cancel();
      }
    }

    bool IsOld(Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const auto [known, first] = told_revisions_.try_emplace(event.status->name, 0);
      uint64_t& newest = known->second;
      if (event.status->revision < newest) return true;
      // A change may overtake the news that the resource was created.
      if (first && event.kind == ChangeKind::kChanged) event.kind = ChangeKind::kCreated;
      newest = event.status->revision;
      if (event.kind == ChangeKind::kGone) told_revisions_.erase(known);  // nothing follows
      return false;
    }

    const std::string key_;
    const Told told_;
    Mutex mutex_;
    bool telling_ ABSL_GUARDED_BY(mutex_) =
        true;  // a thread is calling; at first the thread that called Watch
    std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
    std::map<std::string, uint64_t> told_revisions_ ABSL_GUARDED_BY(mutex_);
  };

  static constexpr size_t kMostGone = 1000;  // that are remembered

  void RememberGone(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    gone_.insert(name);
    gone_in_order_.push_back(name);
    if (gone_in_order_.size() <= kMostGone) return;
    gone_.erase(gone_in_order_.front());
    gone_in_order_.pop_front();
  }

  void Queue(Change change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    change.number = ++queued_;
    if (waiting_.size() >= kMostSingle) {
      if (const auto it = newest_.find(change.status.name); it != newest_.end()) {
        Change& waiting = *it->second;
        if (change.status.revision < waiting.status.revision) return;
        if (waiting.kind == ChangeKind::kCreated && change.kind != ChangeKind::kGone)
          change.kind = ChangeKind::kCreated;
        waiting = std::move(change);
        return;
      }
    }
    waiting_.push_back(std::move(change));
    newest_[waiting_.back().status.name] = &waiting_.back();  // a deque moves none of the others
  }

  void TellQueued() {
    for (;;) {
      try {
        if (!TellNext()) return;
      } catch (...) {
        LogUntold("");
      }
    }
  }
  /// False if nothing waits.
  bool TellNext() {
    Change change;
    std::vector<std::shared_ptr<Watcher>> watchers;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) {
        posted_ = false;
        return false;
      }
      if (const auto it = newest_.find(waiting_.front().status.name);
          it != newest_.end() && it->second == &waiting_.front())
        newest_.erase(it);
      change = std::move(waiting_.front());
      waiting_.pop_front();
      for (auto it = watchers_.begin(); it != watchers_.end();) {
        if (auto watcher = it->lock()) {
          // A change that waited when the watch began is among the existing resources.
          if (change.number > watcher->since_ &&
              (!change.is_private || watcher->key() == change.key))
            watchers.push_back(std::move(watcher));
          ++it;
        } else {
          it = watchers_.erase(it);
        }
      }
    }
    if (complete_ != nullptr) complete_(&change.status);
    const auto status = std::make_shared<const Status>(std::move(change.status));
    for (const auto& watcher : watchers) {
      try {
        (void)Failpoint("change_told");
        watcher->Tell(change.kind, status, change.text);
      } catch (...) {  // the other watchers hear of it all the same
        LogUntold(status->name);
      }
    }
    return true;
  }
  /// In a catch clause.
  static void LogUntold(const std::string& name) {
    Log(LogLevel::kError, "a change is not told to a watcher",
        {{"of", name}, {"error", StatusOfException().ToString()}});
  }

  const std::function<void(Status*)> complete_;
  Mutex mutex_;
  std::list<std::weak_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::deque<Change> waiting_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Change*> newest_
      ABSL_GUARDED_BY(mutex_);                   // by name: the last change that waits
  uint64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;  // changes so far
  bool posted_ ABSL_GUARDED_BY(mutex_) = false;
  // The names of the last resources that went; names are never used again.
  std::unordered_set<std::string> gone_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> gone_in_order_ ABSL_GUARDED_BY(mutex_);  // oldest first
  ChangeTeller teller_;                                            // last: its thread uses the rest
};

}  // namespace octavo::base
