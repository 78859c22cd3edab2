#include "server/publish/subscription_table.h"

#include <algorithm>
#include <map>
#include <utility>

namespace octavo::publish {

SubscriptionTable::Queues SubscriptionTable::Interested(const std::string& name,
                                                        const TopicTable::Scan& scan,
                                                        const TopicKey& key) {
  Queues list;
  std::erase_if(queues_, [&](const std::weak_ptr<SubscriberQueue>& weak) {
    auto queue = weak.lock();
    if (queue == nullptr || queue->closed()) return true;
    if (Matches(queue->spec(), name, scan)) {
      const auto keys = KeysOf(queue->spec(), scan);
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) list.push_back(std::move(queue));
    }
    return false;
  });
  return list;
}

std::vector<Wanted> SubscriptionTable::WantedOf(const std::string& name,
                                                const TopicTable::Scan& scan) const {
  std::map<TopicKey, Wanted> wanted;
  for (const auto& weak : queues_) {
    const auto queue = weak.lock();
    if (queue == nullptr || !Matches(queue->spec(), name, scan)) continue;
    for (const TopicKey& key : KeysOf(queue->spec(), scan)) {
      Wanted& topic = wanted[key];
      topic.key = key;
      topic.previews |= queue->spec().previews;
      topic.data |= key.product != model::Product::kVolume || !IsRead(queue->spec(), scan.show);
    }
  }
  std::vector<Wanted> list;
  list.reserve(wanted.size());
  for (const auto& [key, topic] : wanted) list.push_back(topic);
  return list;
}

SubscriptionTable::Queues SubscriptionTable::Of(const std::string& name) const {
  Queues list;
  for (const auto& weak : queues_) {
    auto queue = weak.lock();
    if (queue != nullptr && queue->spec().parent == name) list.push_back(std::move(queue));
  }
  return list;
}

SubscriptionTable::Queues SubscriptionTable::HeldBack() const {
  Queues list;
  for (const auto& weak : queues_) {
    if (auto queue = weak.lock(); queue != nullptr && queue->HeldBack())
      list.push_back(std::move(queue));
  }
  return list;
}

void SubscriptionTable::ForgetScans(
    const std::function<bool(const std::string& scan)>& known) const {
  for (const auto& weak : queues_) {
    if (const auto queue = weak.lock(); queue != nullptr) queue->ForgetScans(known);
  }
}

void SubscriptionTable::AddTo(model::Stats* stats) const {
  for (const auto& weak : queues_) {
    const auto queue = weak.lock();
    if (queue == nullptr || queue->closed()) continue;
    for (model::Product product : queue->spec().products) ++stats->subscribers[Name(product)];
  }
}

}  // namespace octavo::publish
