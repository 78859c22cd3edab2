#include "server/publish/topic_table.h"

#include <algorithm>
#include <memory>

#include "server/memory/frame_pool.h"
#include "server/publish/frames.h"

namespace octavo::publish {
namespace {

constexpr size_t kRecentImages = 64, kRecentEvents = 256, kRecentVolumes = 4096;
constexpr int64_t kRecentBytes = 32 << 20;
constexpr int64_t kEndedScanNs = int64_t{600} * 1'000'000'000;
// A smaller volume is with its subscriber sooner in the stream than after two more calls.
constexpr int64_t kLeastBytesToRead = 16 << 20;
constexpr int64_t kScanBytes = 512, kTopicBytes = 1536;  // about, of an empty one

/// About how many bytes a remembered frame takes, without its image.
int64_t BytesOf(const model::Frame& frame) {
  size_t bytes = sizeof frame + frame.parent.size() + frame.volume.size() +
                 frame.event.text.size() + frame.event.marker.size() +
                 8 * (frame.shape.size() + frame.spacing_um.size());
  for (const std::string& axis : frame.axes) bytes += sizeof axis + axis.size();
  return static_cast<int64_t>(bytes);
}

}  // namespace

void TopicTable::Start(const std::string& scan, const std::map<std::string, std::string>& labels,
                       const Show& show) {
  Scan& entry = scans_[scan];
  entry.labels = labels;
  entry.show = show;
  entry.bytes = kScanBytes + 2 * std::ssize(scan);
  for (const auto& [key, value] : labels)
    entry.bytes += static_cast<int64_t>(2 * sizeof key + key.size() + value.size());
}

void TopicTable::End(const std::string& scan, int64_t now_ns) {
  Scan* const entry = Find(scan);
  if (entry == nullptr) return;
  if (entry->ended) {
    ended_.splice(ended_.end(), ended_, entry->place);
  } else {
    entry->place = ended_.insert(ended_.end(), scan);
    entry->ended = true;
    ended_bytes_ += entry->bytes;
  }
  entry->ended_ns = now_ns;
}

void TopicTable::ForgetOld(int64_t now_ns) {
  while (!ended_.empty()) {
    const auto it = scans_.find(ended_.front());
    Scan& old = it->second;
    const bool too_many = ended_bytes_ > most_ended_bytes_ && ended_.size() > 1;
    if (!too_many && now_ns - old.ended_ns <= kEndedScanNs) return;
    for (auto& [key, topic] : old.topics) {
      while (!topic.recent.empty()) ForgetOldest(old, topic);
    }
    ended_bytes_ -= old.bytes;
    ended_.pop_front();
    scans_.erase(it);
  }
}

TopicTable::Scan* TopicTable::Find(const std::string& scan) {
  const auto it = scans_.find(scan);
  return it == scans_.end() ? nullptr : &it->second;
}

void TopicTable::Count(Scan& scan, int64_t bytes) {
  scan.bytes += bytes;
  if (scan.ended) ended_bytes_ += bytes;
}

TopicTable::Topic& TopicTable::TopicOf(Scan& scan, const TopicKey& key) {
  const auto known = scan.topics.find(key);
  if (known == scan.topics.end()) {
    if (scan.topics.size() >= scan.most_topics) ForgetEmptyTopics(scan);
    scan.topics[key].next_sequence = scan.first_sequence;
    Count(scan, kTopicBytes);
  }
  Topic& topic = known == scan.topics.end() ? scan.topics[key] : known->second;
  topic.used = ++scan.uses;
  return topic;
}

// A viewer that moves through the planes or slabs of a scan leaves a topic of each.
void TopicTable::ForgetEmptyTopics(Scan& scan) {
  const auto forgotten = std::erase_if(scan.topics, [&](const auto& entry) {
    const Topic& topic = entry.second;
    if (!topic.recent.empty() || topic.used + kMostTopics / 2 > scan.uses) return false;
    scan.first_sequence = std::max(scan.first_sequence, topic.next_sequence);
    return true;
  });
  Count(scan, -kTopicBytes * static_cast<int64_t>(forgotten));
  scan.most_topics = std::max(kMostTopics, 2 * scan.topics.size());
}

model::FramePtr TopicTable::Add(Scan& scan, const TopicKey& key, model::Frame frame) {
  Topic& topic = TopicOf(scan, key);
  frame.sequence = topic.next_sequence++;
  auto added = std::make_shared<const model::Frame>(std::move(frame));
  Remember(scan, topic, added);
  return added;
}

void TopicTable::ForgetOldest(Scan& scan, Topic& topic) {
  const model::FramePtr frame = std::move(topic.recent.front());
  topic.recent.pop_front();
  Count(scan, -BytesOf(*frame));
  if (!IsImage(frame->product) && !IsLine(frame->product)) return;
  topic.recent_bytes -= frame->payload.size;
  remembered_bytes_ -= memory::FramePool::BlockBytes(frame->payload.size);
  order_.erase(topic.order.front());
  topic.order.pop_front();
}

void TopicTable::Remember(Scan& scan, Topic& topic, const model::FramePtr& frame) {
  topic.recent.push_back(frame->product == model::Product::kVolume ? WithoutPayload(*frame)
                                                                   : frame);
  Count(scan, BytesOf(*frame));
  const size_t most = frame->product == model::Product::kVolume  ? kRecentVolumes
                      : frame->product == model::Product::kEvent ? kRecentEvents
                                                                 : kRecentImages;
  if (IsImage(frame->product) || IsLine(frame->product)) {
    topic.recent_bytes += frame->payload.size;
    remembered_bytes_ += memory::FramePool::BlockBytes(frame->payload.size);
    topic.order.push_back(order_.insert(order_.end(), {&scan, &topic}));
  }
  while (topic.recent.size() > most ||
         (topic.recent.size() > 1 && topic.recent_bytes > kRecentBytes))
    ForgetOldest(scan, topic);
  // Frames, reads and commits share this memory, so remembered frames must not fill it. A viewer
  // that moves through the planes of a scan leaves a last image of each.
  ForgetImages(most_remembered_bytes_, /*last=*/false);
  ForgetImages(2 * most_remembered_bytes_, /*last=*/true);
}

void TopicTable::ForgetImages(int64_t most, bool last) {
  for (auto it = order_.begin(); remembered_bytes_ > most && it != order_.end();) {
    const auto [of, oldest] = *it++;
    if (last || of->ended || oldest->recent.size() > 1) ForgetOldest(*of, *oldest);
  }
}

bool Matches(const model::SubscribeSpec& spec, const std::string& name,
             const TopicTable::Scan& scan) {
  if (!spec.parent.empty()) return spec.parent == name;
  return std::all_of(spec.labels.begin(), spec.labels.end(), [&](const auto& label) {
    auto it = scan.labels.find(label.first);
    return it != scan.labels.end() && it->second == label.second;
  });
}

bool IsRead(const model::SubscribeSpec& spec, const Show& show) {
  if (!spec.volumes_by_read || show.volume_bytes < kLeastBytesToRead) return false;
  switch (show.volumes_stay) {
    case VolumesStay::kUntilAsked: return true;
    case VolumesStay::kAWhile:
      return spec.DeliveryOf(model::Product::kVolume) != model::Delivery::kLossless;
    case VolumesStay::kNot: return false;
  }
  return false;
}

std::vector<TopicKey> KeysOf(const model::SubscribeSpec& spec, const TopicTable::Scan& scan) {
  std::vector<TopicKey> keys;
  for (model::Product product : spec.products) {
    TopicKey key{.product = product};
    if (product == model::Product::kMip && spec.axis_given) key.axis = spec.axis;
    if (product == model::Product::kMip) key.slab = spec.slab;
    if (product == model::Product::kBscan) {
      key.axis = spec.axis_given ? spec.axis : scan.show.bscan_axis;
      key.plane_index = spec.plane_index;
    }
    if (model::IsLine(product)) key.plane_index = spec.plane_index;
    key.corrected = product == model::Product::kSpectrum && spec.corrected;
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

}  // namespace octavo::publish
