#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/model/stats.h"
#include "server/publish/subscriber_queue.h"
#include "server/publish/topic.h"
#include "server/publish/topic_table.h"

namespace octavo::publish {

/// The subscriptions that their consumers still keep, and what they want. Drops those that are
/// gone. Not thread-safe; the publisher's lock guards it, and comes before a queue's.
class SubscriptionTable {
 public:
  using Queues = std::vector<std::shared_ptr<SubscriberQueue>>;

  void Add(const std::shared_ptr<SubscriberQueue>& queue) { queues_.push_back(queue); }
  /// The queues that want `key` of this scan now.
  Queues Interested(const std::string& name, const TopicTable::Scan& scan, const TopicKey& key);
  /// The topics of this scan that subscribers want.
  std::vector<Wanted> WantedOf(const std::string& name, const TopicTable::Scan& scan) const;
  /// The queues that name this scan (without those that select by labels, which may get other
  /// scans).
  Queues Of(const std::string& name) const;
  /// The queues with frames that only a rate limit holds back.
  Queues HeldBack() const;
  /// Each queue forgets the scans that are not `known` any more.
  void ForgetScans(const std::function<bool(const std::string& scan)>& known) const;
  void AddTo(model::Stats* stats) const;

 private:
  std::vector<std::weak_ptr<SubscriberQueue>> queues_;
};

}  // namespace octavo::publish
