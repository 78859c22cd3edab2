#include "server/publish/publisher.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/memory/frame_pool.h"
#include "server/publish/plane_frame.h"
#include "server/publish/publisher_subscription.h"

namespace octavo::publish {
namespace {

constexpr size_t kRecentImages = 64, kRecentEvents = 256, kRecentVolumes = 4096;
constexpr int64_t kRecentBytes = 32 << 20;
constexpr int64_t kEndedScanNs = int64_t{600} * 1'000'000'000;
// B-scans of held volumes that LATEST tries, the newest first, because a volume may be gone
// meanwhile.
constexpr size_t kMostTried = 16;

bool Wants(const model::SubscribeSpec& spec, model::Product product) {
  return std::count(spec.products.begin(), spec.products.end(), product) > 0;
}

// The error of a subscription to an ended scan that would get nothing, and what to do.
// `first_kept`: the oldest frame that resume could give.
absl::Status NothingKept(const model::SubscribeSpec& spec, std::optional<uint64_t> first_kept) {
  const std::string names = absl::StrJoin(
      spec.products, ", ",
      [](std::string* out, model::Product product) { absl::StrAppend(out, Name(product)); });
  const std::string why =
      first_kept.has_value()
          ? absl::StrCat("; its frames of ", names,
                         " that are kept come with resume from sequence ", *first_kept,
                         ", one product at a time")
          : absl::StrCat(
                " and no frame of ", names, " is kept",
                Wants(spec, model::Product::kBscan) ? ", nor is one of its volumes held; subscribe "
                                                      "while it runs, or open a committed file"
                : Wants(spec, model::Product::kVolume) ? "; read its volumes while they are held "
                                                         "(ReadVolume), or subscribe while it runs"
                : Wants(spec, model::Product::kEvent)
                    ? "; subscribe while it runs (of a scan, Scan.events has the last ones)"
                    : "; derive one from a volume while that is held (DeriveVolume), or subscribe "
                      "while it runs");
  return WithInfo(absl::FailedPreconditionError(absl::StrCat(spec.scan, " has ended", why)),
                  {.reason = Reason::kNothingKept, .field = "scan", .numbers = {}});
}

bool IsImage(model::Product p) {
  return p == model::Product::kMip || p == model::Product::kAip || p == model::Product::kBscan ||
         p == model::Product::kAngiogram;
}

}  // namespace

Publisher::~Publisher() = default;

bool Publisher::Matches(const model::SubscribeSpec& spec, const std::string& name,
                        const Scan& scan) {
  if (!spec.scan.empty()) return spec.scan == name;
  return std::all_of(spec.labels.begin(), spec.labels.end(), [&](const auto& label) {
    auto it = scan.labels.find(label.first);
    return it != scan.labels.end() && it->second == label.second;
  });
}

std::vector<TopicKey> Publisher::KeysOf(const model::SubscribeSpec& spec, const Scan& scan) {
  std::vector<TopicKey> keys;
  for (model::Product product : spec.products) {
    TopicKey key{.product = product};
    if (product == model::Product::kMip && spec.axis_given) key.axis = spec.axis;
    if (product == model::Product::kBscan) {
      key.axis = spec.axis_given ? spec.axis : scan.show.bscan_axis;
      key.plane_index = spec.plane_index;
    }
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

void Publisher::ScanStarted(const std::string& scan,
                            const std::map<std::string, std::string>& labels, const Show& show) {
  MutexLock lock(mutex_);
  const int64_t now = clock_->Now().monotonic_ns;
  for (auto it = scans_.begin(); it != scans_.end();) {
    Scan& old = it->second;
    if (!old.ended || now - old.ended_ns <= kEndedScanNs) {
      ++it;
      continue;
    }
    for (auto& [key, topic] : old.topics) {
      while (!topic.recent.empty()) ForgetOldest(topic);
    }
    it = scans_.erase(it);
  }
  // A subscriber by labels has seen many scans.
  const auto known = [&scans = scans_](const std::string& name) { return scans.count(name) > 0; };
  for (const auto& weak : subscriptions_) {
    if (const auto subscription = weak.lock(); subscription != nullptr)
      subscription->ForgetScans(known);
  }
  Scan& entry = scans_[scan];
  entry.labels = labels;
  entry.show = show;
}

void Publisher::ScanEnding(const std::string& scan) {
  MutexLock lock(mutex_);
  const auto it = scans_.find(scan);
  if (it == scans_.end()) return;
  it->second.ended = true;
  it->second.ended_ns = clock_->Now().monotonic_ns;
}

void Publisher::ScanEnded(const std::string& scan) {
  ScanEnding(scan);
  std::vector<std::shared_ptr<SubscriptionImpl>> ended;
  {
    MutexLock lock(mutex_);
    for (const auto& weak : subscriptions_) {
      auto subscription = weak.lock();
      if (subscription != nullptr && subscription->spec().scan == scan)
        ended.push_back(std::move(subscription));
    }
    for (const auto& subscription : ended) subscription->End();
  }
  for (const auto& subscription : ended) subscription->Notify();
}

std::vector<std::shared_ptr<Publisher::SubscriptionImpl>> Publisher::Interested(
    const std::string& scan, const TopicKey& key) {
  std::vector<std::shared_ptr<SubscriptionImpl>> list;
  const Scan& entry = scans_[scan];
  std::erase_if(subscriptions_, [&](const std::weak_ptr<SubscriptionImpl>& weak) {
    auto subscription = weak.lock();
    if (subscription == nullptr || subscription->closed()) return true;
    if (Matches(subscription->spec(), scan, entry)) {
      const auto keys = KeysOf(subscription->spec(), entry);
      if (std::find(keys.begin(), keys.end(), key) != keys.end())
        list.push_back(std::move(subscription));
    }
    return false;
  });
  return list;
}

std::vector<Publisher::Wanted> Publisher::WantedOf(const std::string& scan) {
  MutexLock lock(mutex_);
  std::map<TopicKey, bool> wanted;
  const auto entry = scans_.find(scan);
  if (entry == scans_.end()) return {};
  for (const auto& weak : subscriptions_) {
    auto subscription = weak.lock();
    if (subscription == nullptr || !Matches(subscription->spec(), scan, entry->second)) continue;
    for (const TopicKey& key : KeysOf(subscription->spec(), entry->second))
      wanted[key] |= subscription->spec().previews;
  }
  std::vector<Wanted> list;
  list.reserve(wanted.size());
  for (const auto& [key, previews] : wanted) list.push_back({.key = key, .previews = previews});
  return list;
}

void Publisher::ForgetOldest(Topic& topic) {
  const model::FramePtr frame = std::move(topic.recent.front());
  topic.recent.pop_front();
  if (!IsImage(frame->product)) return;
  topic.recent_bytes -= frame->payload.size;
  remembered_bytes_ -= memory::FramePool::BlockBytes(frame->payload.size);
  order_.erase(topic.order.front());
  topic.order.pop_front();
}

void Publisher::Remember(Scan& scan, Topic& topic, const model::FramePtr& frame) {
  topic.recent.push_back(frame->product == model::Product::kVolume ? WithoutPayload(*frame)
                                                                   : frame);
  const size_t most = frame->product == model::Product::kVolume  ? kRecentVolumes
                      : frame->product == model::Product::kEvent ? kRecentEvents
                                                                 : kRecentImages;
  if (IsImage(frame->product)) {
    topic.recent_bytes += frame->payload.size;
    remembered_bytes_ += memory::FramePool::BlockBytes(frame->payload.size);
    topic.order.push_back(order_.insert(order_.end(), {&scan, &topic}));
  }
  while (topic.recent.size() > most ||
         (topic.recent.size() > 1 && topic.recent_bytes > kRecentBytes))
    ForgetOldest(topic);
  // Remembered frames must not fill the memory that frames, reads and commits share.
  for (auto it = order_.begin();
       remembered_bytes_ > most_remembered_bytes_ && it != order_.end();) {
    const auto [of, oldest] = *it++;
    if (oldest->recent.size() > 1 || of->ended) ForgetOldest(*oldest);
  }
}

void Publisher::Publish(const TopicKey& key, model::Frame frame) {
  frame.published = clock_->Now();
  const double latency =
      static_cast<double>(frame.published.monotonic_ns - frame.acquired.monotonic_ns) * 1e-9;
  std::vector<std::shared_ptr<SubscriptionImpl>> news;
  {
    MutexLock lock(mutex_);
    auto entry = scans_.find(frame.scan);
    if (entry == scans_.end()) return;
    Topic& topic = entry->second.topics[key];
    frame.sequence = topic.next_sequence++;
    const auto published = std::make_shared<const model::Frame>(std::move(frame));
    Remember(entry->second, topic, published);
    for (auto& subscription : Interested(published->scan, key)) {
      if (subscription->Push(key, published)) news.push_back(std::move(subscription));
    }
  }
  {
    MutexLock lock(counters_->mutex);
    ++counters_->published[Name(key.product)];
    if (key.product != model::Product::kEvent) counters_->latency[Name(key.product)].Add(latency);
  }
  for (const auto& subscription : news) subscription->Notify();
}

void Publisher::Lost(const std::string& scan, const TopicKey& key, Loss loss) {
  std::vector<std::shared_ptr<SubscriptionImpl>> news;
  {
    MutexLock lock(mutex_);
    auto entry = scans_.find(scan);
    if (entry == scans_.end()) return;
    const uint64_t sequence = entry->second.topics[key].next_sequence++;
    for (auto& subscription : Interested(scan, key)) {
      if (subscription->Lose(scan, key, sequence, loss)) news.push_back(std::move(subscription));
    }
  }
  {
    MutexLock lock(counters_->mutex);
    ++counters_->dropped[{Name(key.product), loss == Loss::kYielded ? "yielded" : "no_memory"}];
  }
  for (const auto& subscription : news) subscription->Notify();
}

// The kept complete frames of a B-scan topic, and those that its held volumes can still give, in
// the order of their volumes; for LATEST the newest first. Frames of held volumes have no payload
// yet (it is loaded when their turn comes), and their numbers follow those of the topic.
std::vector<model::FramePtr> Publisher::BscansOfEnded(
    const model::SubscribeSpec& spec, const TopicKey& key, const Topic& topic,
    const std::vector<model::VolumeStatus>& held) const {
  std::vector<model::FramePtr> frames;
  std::set<std::string> kept;
  for (const model::FramePtr& frame : topic.recent) {
    if (!frame->complete) continue;
    frames.push_back(frame);
    kept.insert(frame->volume);
  }
  uint64_t sequence = topic.next_sequence;
  for (const model::VolumeStatus& volume : held) {
    if (kept.contains(volume.name)) continue;
    std::optional<model::Frame> frame = PlaneFrame(spec.scan, volume, key);
    if (!frame.has_value()) continue;
    frame->sequence = sequence++;
    frame->published = clock_->Now();
    frames.push_back(std::make_shared<const model::Frame>(*std::move(frame)));
  }
  std::stable_sort(frames.begin(), frames.end(),
                   [](const model::FramePtr& a, const model::FramePtr& b) {
                     return a->volume_index < b->volume_index;
                   });
  if (spec.delivery != model::Delivery::kLatest || spec.resume) return frames;
  std::reverse(frames.begin(), frames.end());
  const auto at_hand = std::find_if(frames.begin(), frames.end(), [](const model::FramePtr& frame) {
    return frame->payload.data != nullptr;
  });
  // The frame at hand is certain; try newer ones first, if they are not too many.
  const model::FramePtr sure = at_hand == frames.end() ? nullptr : *at_hand;
  frames.erase(at_hand, frames.end());
  frames.resize(std::min(frames.size(), kMostTried));
  if (sure != nullptr) frames.push_back(sure);
  return frames;
}

absl::StatusOr<std::shared_ptr<model::Subscription>> Publisher::Subscribe(
    const model::SubscribeSpec& spec, std::function<void()> notify) {
  if (spec.products.empty()) return InvalidField("products", "is empty; name at least one product");
  if (spec.queue_length < 1 || spec.queue_length > 1024) {
    return FieldOutOfRange("queue_length", spec.queue_length, 1, 1024);
  }
  if (!(spec.max_rate_hz >= 0)) return FieldNotAllowed("max_rate_hz", spec.max_rate_hz, ">= 0");
  const bool wants_aip = Wants(spec, model::Product::kAip);
  if (wants_aip && spec.axis_given && spec.axis != model::FrameAxis::kZ) {
    return InvalidField("axis", "AIP is made over z only");
  }
  if (spec.resume && (spec.scan.empty() || spec.products.size() != 1)) {
    return InvalidField("resume", "needs one scan and one product");
  }
  auto subscription =
      std::make_shared<SubscriptionImpl>(spec, std::move(notify), held_frames_, clock_, counters_);
  std::vector<model::FramePtr> replay;
  bool given = false;
  std::optional<uint64_t> first_kept;
  std::vector<model::VolumeStatus> held;  // asked for without the lock
  if (!spec.scan.empty() && Wants(spec, model::Product::kBscan) && held_frames_ != nullptr)
    held = held_frames_->HeldBy(spec.scan);
  const auto wanted = [&](const model::FramePtr& frame) {
    return frame->complete || spec.previews;
  };
  {
    MutexLock lock(mutex_);
    if (!spec.scan.empty()) {
      auto entry = scans_.find(spec.scan);
      if (entry == scans_.end()) {
        return WithInfo(absl::NotFoundError(absl::StrCat("no scan ", spec.scan)),
                        {.reason = Reason::kNoScan, .field = "scan", .numbers = {}});
      }
      Scan& scan = entry->second;
      if (wants_aip && !scan.show.has_aip) {
        return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                            spec.scan, " computes no AIP; submit it with products.aip")),
                        {.reason = Reason::kNoAip, .field = "products", .numbers = {}});
      }
      if (Wants(spec, model::Product::kAngiogram) && !scan.show.has_angiogram) {
        return WithInfo(
            absl::FailedPreconditionError(absl::StrCat(
                spec.scan, " computes no angiogram; submit it with products.angiography")),
            {.reason = Reason::kNoAngiogram, .field = "products", .numbers = {}});
      }
      for (const TopicKey& key : KeysOf(spec, scan)) {
        const bool across =
            (key.product == model::Product::kBscan && key.axis != model::FrameAxis::kY) ||
            (key.product == model::Product::kMip && key.axis != model::FrameAxis::kZ);
        if (scan.show.striped && across) {
          return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                              "axis: goes across the devices of ", spec.scan,
                              ", whose volumes are striped; allowed are B-scans along y "
                              "and MIPs along z, or a scan with spread and without striped")),
                          {.reason = Reason::kStriped, .field = "axis", .numbers = {}});
        }
        const size_t dim = key.axis == model::FrameAxis::kY   ? 0
                           : key.axis == model::FrameAxis::kX ? 1
                                                              : 2;
        if (key.product == model::Product::kBscan && key.plane_index >= scan.show.extents[dim]) {
          return WithInfo(absl::OutOfRangeError(absl::StrCat("index is ", key.plane_index,
                                                             "; the axis has 0 to ",
                                                             scan.show.extents[dim] - 1)),
                          {.reason = Reason::kBadRange,
                           .field = "index",
                           .numbers = {{"extent", absl::StrCat(scan.show.extents[dim])}}});
        }
        Topic& topic = scan.topics[key];
        const bool all_of_ended = scan.ended && key.product == model::Product::kBscan &&
                                  (!spec.resume || spec.from_sequence == 0);
        if (spec.resume && !all_of_ended) {
          const uint64_t first =
              topic.recent.empty() ? topic.next_sequence : topic.recent.front()->sequence;
          if (spec.from_sequence < first || spec.from_sequence > topic.next_sequence) {
            return WithInfo(absl::OutOfRangeError(absl::StrCat("from_sequence is ",
                                                               spec.from_sequence, "; kept are ",
                                                               first, " to ", topic.next_sequence)),
                            {.reason = Reason::kSequenceGone,
                             .field = "from_sequence",
                             .numbers = {{"first_available", absl::StrCat(first)},
                                         {"next", absl::StrCat(topic.next_sequence)}}});
          }
        }
        const auto newest = std::find_if(topic.recent.rbegin(), topic.recent.rend(), wanted);
        const bool at_once = !spec.resume && spec.delivery == model::Delivery::kLatest &&
                             newest != topic.recent.rend();
        const std::vector<model::FramePtr> frames =
            all_of_ended ? BscansOfEnded(spec, key, topic, held) : std::vector<model::FramePtr>();
        if (!frames.empty()) {
          replay.insert(replay.end(), frames.begin(), frames.end());
        } else if (spec.resume) {
          std::copy_if(topic.recent.begin(), topic.recent.end(), std::back_inserter(replay),
                       [&](const model::FramePtr& frame) {
                         return frame->sequence >= spec.from_sequence && wanted(frame);
                       });
        } else if (at_once && IsImage(key.product)) {
          given |=
              subscription->Push(key, *newest);  // a picture at once, not only at the next volume
        } else if (at_once && scan.ended && key.product == model::Product::kVolume) {
          replay.push_back(*newest);
        }
        if (newest != topic.recent.rend()) first_kept = topic.recent.front()->sequence;
      }
      if (scan.ended) {
        if (!given && replay.empty() && (!spec.resume || spec.from_sequence == 0))
          return NothingKept(spec, first_kept);
        subscription->End();
      }
    }
    if (!replay.empty()) subscription->Replay(std::move(replay));
    subscriptions_.push_back(subscription);
  }
  subscription->Notify();
  return subscription;
}

void Publisher::Tick() {
  std::vector<std::shared_ptr<SubscriptionImpl>> due;
  {
    MutexLock lock(mutex_);
    for (const auto& weak : subscriptions_) {
      if (auto subscription = weak.lock(); subscription != nullptr && subscription->HeldBack())
        due.push_back(subscription);
    }
  }
  for (const auto& subscription : due) subscription->Notify();
}

void Publisher::CountCut(const std::string& reason) {
  MutexLock lock(counters_->mutex);
  ++counters_->cut[reason];
}

void Publisher::AddTo(model::Stats* stats) {
  {
    MutexLock lock(mutex_);
    for (const auto& weak : subscriptions_) {
      auto subscription = weak.lock();
      if (subscription == nullptr || subscription->closed()) continue;
      for (model::Product product : subscription->spec().products)
        ++stats->subscribers[Name(product)];
    }
  }
  MutexLock lock(counters_->mutex);
  stats->frames_published = counters_->published;
  stats->frames_sent = counters_->sent;
  stats->frames_dropped = counters_->dropped;
  stats->streams_cut = counters_->cut;
  stats->frame_latency_seconds = counters_->latency;
}

}  // namespace octavo::publish
