// Notifies watchers of buffers, and expires buffers.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"

namespace octavo::buffer {
namespace {

constexpr int64_t kTombstoneNs = int64_t{600} * 1'000'000'000;
constexpr size_t kMostTombstones = 10'000;
constexpr size_t kMostGone = 1000;  // that a watcher remembers

}  // namespace

std::shared_ptr<void> BufferStore::Watch(const model::Caller& caller, Told told) {
  auto watcher = std::make_shared<Watcher>(caller, std::move(told));
  std::vector<model::BufferStatus> now;
  {
    MutexLock lock(mutex_);
    for (const auto& buffer : buffers_) {
      if (!buffer->status.is_private || buffer->key == caller.key)
        now.push_back(StatusLocked(*buffer));
    }
    watchers_.push_back(watcher);
  }
  watcher->Begin(now);
  return watcher;
}

void BufferStore::Watcher::Begin(const std::vector<model::BufferStatus>& now) {
  {
    MutexLock lock(mutex_);
    for (auto status = now.rbegin(); status != now.rend(); ++status)
      events_.push_front({model::BufferEventKind::kExists, *status, ""});
  }
  Drain();
}

void BufferStore::Watcher::Tell(model::BufferEventKind kind, const model::BufferStatus& status,
                                const std::string& text) {
  {
    MutexLock lock(mutex_);
    events_.push_back({kind, status, text});
    if (telling_) return;
    telling_ = true;
  }
  Drain();
}

void BufferStore::Watcher::Drain() {
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
      telling_ = false;  // the next event is told by the thread that brings it
    };
    told_(event.kind, event.status, event.text);
    std::move(failed).Cancel();
  }
}

bool BufferStore::Watcher::IsOldLocked(Event& event) {
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

void BufferStore::Tell(model::BufferEventKind kind, const model::BufferStatus& status,
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

void BufferStore::Housekeep() {
  const int64_t now = context_.clock->Now().monotonic_ns;
  std::vector<std::string> overdue;
  std::vector<std::pair<model::BufferStatus, std::string>> warnings;  // with its key
  std::vector<std::shared_ptr<Reader>> readers;
  {
    MutexLock lock(mutex_);
    for (const auto& weak : readers_) {
      if (auto reader = weak.lock()) readers.push_back(std::move(reader));
    }
    for (const auto& buffer : buffers_) {
      if (buffer->expires_ns == 0) continue;
      const auto left = static_cast<double>(buffer->expires_ns - now) * 1e-9;
      if (left <= 0) {
        overdue.push_back(buffer->status.name);
      } else if (!buffer->warned && left <= std::min(60.0, buffer->ttl_seconds / 2)) {
        buffer->warned = true;
        warnings.emplace_back(StatusLocked(*buffer), buffer->key);
      }
    }
    while (!gone_order_.empty() && (now - gone_order_.front().first > kTombstoneNs ||
                                    gone_order_.size() > kMostTombstones)) {
      tombstones_.erase(gone_order_.front().second);
      gone_order_.pop_front();
    }
  }
  for (const auto& reader : readers) reader->CutIfSlow(now);
  for (const auto& [status, key] : warnings)
    Tell(model::BufferEventKind::kExpiring, status, key, "its time to live ends");
  for (const auto& name : overdue) {
    absl::StatusOr<std::function<void()>> tell = [] {};
    {
      BufferTurn turn(turn_mutex_, context_.leases);
      // A caller that is using the buffer now keeps it a little longer.
      if (!turn.Enter(name, session::LeaseMode::kExclusive, "", 0, "expiry").ok()) continue;
      tell = Remove(turn, name, "expired", "its time to live was over", [&](const Buffer& buffer) {
        // A client may have extended its time since, or may be writing to it under a lease that has
        // ended.
        const bool written =
            std::any_of(buffer.replicas.begin(), buffer.replicas.end(),
                        [](const auto& r) { return r->state == model::BufferState::kWriting; });
        return buffer.expires_ns != 0 && buffer.expires_ns <= now && !written
                   ? absl::OkStatus()
                   : absl::AbortedError("it lives on");
      });
    }
    if (tell.ok()) (*tell)();
  }
}

}  // namespace octavo::buffer
