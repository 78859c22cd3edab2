#include "server/publish/publisher.h"

#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/publish/first_frames.h"
#include "server/publish/frames.h"
#include "server/publish/plane_frame.h"

namespace octavo::publish {
namespace {

void NotifyAll(const SubscriptionTable::Queues& queues) {
  for (const auto& queue : queues) queue->Notify();
}

}  // namespace

void Publisher::ScanStarted(const std::string& scan,
                            const std::map<std::string, std::string>& labels, const Show& show) {
  MutexLock lock(mutex_);
  topics_.ForgetOld(clock_->Now().monotonic_ns);
  // A subscriber that selects by labels may have seen many scans.
  const TopicTable* const topics = &topics_;
  subscriptions_.ForgetScans([topics](const std::string& name) { return topics->Has(name); });
  topics_.Start(scan, labels, show);
}

void Publisher::ScanEnding(const std::string& scan) {
  MutexLock lock(mutex_);
  topics_.End(scan, clock_->Now().monotonic_ns);
}

void Publisher::ScanEnded(const std::string& scan) {
  ScanEnding(scan);
  SubscriptionTable::Queues ended;
  {
    MutexLock lock(mutex_);
    ended = subscriptions_.Of(scan);
    for (const auto& queue : ended) queue->End();
  }
  NotifyAll(ended);
}

bool Publisher::HasEnded(const std::string& scan) {
  MutexLock lock(mutex_);
  const TopicTable::Scan* const entry = topics_.Find(scan);
  return entry == nullptr || entry->ended;
}

std::vector<Wanted> Publisher::WantedOf(const std::string& scan) {
  MutexLock lock(mutex_);
  const TopicTable::Scan* const entry = topics_.Find(scan);
  return entry == nullptr ? std::vector<Wanted>() : subscriptions_.WantedOf(scan, *entry);
}

void Publisher::Publish(const TopicKey& key, model::Frame frame) {
  frame.published = clock_->Now();
  const double latency =
      static_cast<double>(frame.published.monotonic_ns - frame.acquired.monotonic_ns) * 1e-9;
  SubscriptionTable::Queues news;
  {
    MutexLock lock(mutex_);
    TopicTable::Scan* const scan = topics_.Find(frame.parent);
    if (scan == nullptr) return;
    const model::FramePtr published = topics_.Add(*scan, key, std::move(frame));
    news = subscriptions_.Interested(published->parent, *scan, key);
    std::erase_if(news, [&](const auto& queue) { return !queue->Push(key, published); });
  }
  counters_->Published(key.product, latency);
  NotifyAll(news);
}

void Publisher::Lost(const std::string& scan, const TopicKey& key, Loss loss) {
  SubscriptionTable::Queues news;
  {
    MutexLock lock(mutex_);
    TopicTable::Scan* const entry = topics_.Find(scan);
    if (entry == nullptr) return;
    const uint64_t sequence = topics_.Skip(*entry, key);
    news = subscriptions_.Interested(scan, *entry, key);
    std::erase_if(news, [&](const auto& queue) { return !queue->Lose(scan, key, sequence, loss); });
  }
  counters_->Dropped(key.product, loss == Loss::kYielded      ? "yielded"
                                  : loss == Loss::kSuperseded ? "superseded"
                                                              : "no_memory");
  NotifyAll(news);
}

uint64_t Publisher::Announce(const TopicKey& key, model::Frame header) {
  header.published = clock_->Now();
  const double latency =
      static_cast<double>(header.published.monotonic_ns - header.acquired.monotonic_ns) * 1e-9;
  SubscriptionTable::Queues readers;
  uint64_t sequence = 0;
  bool data = false;  // the frame counts as published when it is delivered
  {
    MutexLock lock(mutex_);
    TopicTable::Scan* const scan = topics_.Find(header.parent);
    if (scan == nullptr) return 0;
    const model::FramePtr announced = topics_.Add(*scan, key, std::move(header));
    sequence = announced->sequence;
    readers = subscriptions_.Interested(announced->parent, *scan, key);
    data = std::erase_if(readers,
                         [&](const auto& queue) { return !IsRead(queue->spec(), scan->show); }) > 0;
    const model::FramePtr frame = ToBeRead(*announced);
    std::erase_if(readers, [&](const auto& queue) { return !queue->Push(key, frame); });
  }
  if (!data) counters_->Published(key.product, latency);
  NotifyAll(readers);
  return sequence;
}

void Publisher::Deliver(const TopicKey& key, model::Frame frame) {
  frame.published = clock_->Now();
  const double latency =
      static_cast<double>(frame.published.monotonic_ns - frame.acquired.monotonic_ns) * 1e-9;
  const auto delivered = std::make_shared<const model::Frame>(std::move(frame));
  SubscriptionTable::Queues news;
  {
    MutexLock lock(mutex_);
    news = WithoutReaders(delivered->parent, key);
    std::erase_if(news, [&](const auto& queue) { return !queue->Push(key, delivered); });
  }
  counters_->Published(key.product, latency);
  NotifyAll(news);
}

void Publisher::Undelivered(const std::string& scan, const TopicKey& key, uint64_t sequence) {
  SubscriptionTable::Queues news;
  {
    MutexLock lock(mutex_);
    news = WithoutReaders(scan, key);
    std::erase_if(news, [&](const auto& queue) {
      return !queue->Lose(scan, key, sequence, Loss::kNoMemory);
    });
  }
  counters_->Dropped(key.product, "no_memory");
  NotifyAll(news);
}

SubscriptionTable::Queues Publisher::WithoutReaders(const std::string& name, const TopicKey& key) {
  TopicTable::Scan* const scan = topics_.Find(name);
  if (scan == nullptr) return {};
  SubscriptionTable::Queues queues = subscriptions_.Interested(name, *scan, key);
  std::erase_if(queues, [&](const auto& queue) { return IsRead(queue->spec(), scan->show); });
  return queues;
}

absl::StatusOr<std::shared_ptr<model::Subscription>> Publisher::Subscribe(
    const model::SubscribeSpec& spec, std::function<void()> notify) {
  OCTAVO_RETURN_IF_ERROR(CheckSpec(spec));
  const auto queue =
      std::make_shared<SubscriberQueue>(spec, std::move(notify), held_frames_, clock_, counters_);
  const bool cuts = std::any_of(spec.products.begin(), spec.products.end(), IsCut);
  const bool asks = !spec.parent.empty() && cuts && held_frames_ != nullptr;
  for (bool complete = !asks || HasEnded(spec.parent);; complete = true) {
    std::vector<model::VolumeStatus> held;  // asked for without the lock
    if (asks) held = held_frames_->HeldBy(spec.parent);
    MutexLock lock(mutex_);
    FirstFrames first;
    if (!spec.parent.empty()) {
      TopicTable::Scan* scan = topics_.Find(spec.parent);
      // It ended meanwhile: its last volume may not be among them.
      if (!complete && (scan == nullptr || scan->ended)) continue;
      TopicTable::Scan forgotten;
      if (scan == nullptr && !held.empty()) {
        forgotten = EndedScanOf(held.front());
        scan = &forgotten;
      }
      if (scan == nullptr) return base::NoParent(spec.parent);
      OCTAVO_ASSIGN_OR_RETURN(first, FindFirstFrames(spec, *scan, held, *clock_));
      for (const auto& [key, frame] : first.at_once) (void)queue->Push(key, frame);
      if (IsRead(spec, scan->show)) {
        for (model::FramePtr& frame : first.replay) {
          if (frame->product == model::Product::kVolume) frame = ToBeRead(*frame);
        }
      }
      if (scan->ended) queue->End();
    }
    if (!first.replay.empty()) queue->Replay(std::move(first.replay));
    subscriptions_.Add(queue);
    break;
  }
  queue->Notify();
  return queue;
}

void Publisher::Tick() {
  SubscriptionTable::Queues due;
  {
    MutexLock lock(mutex_);
    topics_.ForgetOld(clock_->Now().monotonic_ns);  // a server without new scans forgets, too
    due = subscriptions_.HeldBack();
  }
  for (const auto& queue : due) queue->Tick();
  NotifyAll(due);
}

void Publisher::AddTo(model::Stats* stats) {
  {
    MutexLock lock(mutex_);
    subscriptions_.AddTo(stats);
  }
  counters_->AddTo(stats);
}

}  // namespace octavo::publish
