#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/frame.h"
#include "server/model/stats.h"
#include "server/model/subscription.h"
#include "server/publish/held_frame_source.h"

namespace octavo::publish {

/// The content of a topic; together with a scan it identifies a topic.
struct TopicKey {
  model::Product product = model::Product::kMip;
  model::FrameAxis axis = model::FrameAxis::kZ;
  int64_t plane_index = -1;  // kBscan only; -1 = middle
  auto operator<=>(const TopicKey&) const = default;
};

/// Topics and their subscribers: the publisher puts each frame into every queue that wants it,
/// without waiting for any. Thread-safe. Lock order: publisher before subscription; notify
/// callbacks run without locks.
class Publisher {
 public:
  /// Past images take at most `remembered_bytes` of page-locked memory; the oldest are dropped
  /// first, except the last one of each topic of a running scan.
  explicit Publisher(const Clock* clock, int64_t remembered_bytes = int64_t{128} << 20)
      : clock_(clock), most_remembered_bytes_(remembered_bytes) {}
  ~Publisher();

  /// Where frames of held volumes come from. Before the first subscription; `source` must outlive
  /// all subscriptions that have not ended.
  void SetHeldFrames(HeldFrameSource* source) { held_frames_ = source; }

  /// The products that a scan or job publishes.
  struct Show {
    std::array<int64_t, 3> extents{};                    // along y, x, z: bounds of plane indices
    model::FrameAxis bscan_axis = model::FrameAxis::kY;  // default axis of BSCAN planes
    bool has_aip = false, has_angiogram = false;
    // Volumes lie on several devices, so only products that lie on one of them are published.
    bool striped = false;
  };
  void ScanStarted(const std::string& scan, const std::map<std::string, std::string>& labels,
                   const Show& show);
  /// Only the last event is still to come: later subscribers find an ended scan.
  void ScanEnding(const std::string& scan);
  /// No frames will come any more; its subscriptions end when their queues are empty.
  void ScanEnded(const std::string& scan);

  /// Topics of `scan` that have subscribers now.
  struct Wanted {
    TopicKey key;
    bool previews = false;
  };
  std::vector<Wanted> WantedOf(const std::string& scan);

  /// Publishes `frame` under the topic's next sequence number.
  void Publish(const TopicKey& key, model::Frame frame);
  /// A frame of the topic was not made: it takes a sequence number and counts as dropped.
  enum class Loss { kNoMemory, kYielded };  // kYielded: making it would have cost the scan records
  void Lost(const std::string& scan, const TopicKey& key, Loss loss = Loss::kNoMemory);

  /// For an ended scan: the kept frames, and B-scans of its held volumes (LATEST: of the newest).
  /// FailedPrecondition (NOTHING_KEPT) if frames are requested and there are none.
  absl::StatusOr<std::shared_ptr<model::Subscription>> Subscribe(const model::SubscribeSpec& spec,
                                                                 std::function<void()> notify);
  /// Delivers frames that max_rate_hz has held back long enough. Call several times a second.
  void Tick();
  void AddTo(model::Stats* stats);
  /// The server ended a stream with these subscriptions.
  void CountCut(const std::string& reason);

 private:
  class SubscriptionImpl;
  struct Counters {  // shared with subscriptions, which may outlive the publisher
    Mutex mutex;
    std::map<std::string, int64_t> published ABSL_GUARDED_BY(mutex), sent ABSL_GUARDED_BY(mutex),
        cut ABSL_GUARDED_BY(mutex);
    std::map<std::pair<std::string, std::string>, int64_t> dropped ABSL_GUARDED_BY(mutex);
    std::map<std::string, model::Histogram> latency ABSL_GUARDED_BY(mutex);
  };
  struct Scan;
  struct Topic;
  // Topics of the remembered images, oldest image first.
  using Order = std::list<std::pair<Scan*, Topic*>>;
  struct Topic {
    uint64_t next_sequence = 0;
    std::deque<model::FramePtr>
        recent;  // for resume and for a first picture; volume frames without payload
    std::deque<Order::iterator> order;  // of each image in `recent`
    int64_t recent_bytes = 0;
  };
  struct Scan {
    std::map<std::string, std::string> labels;
    Show show;
    bool ended = false;
    int64_t ended_ns = 0;
    std::map<TopicKey, Topic> topics;
  };
  static bool Matches(const model::SubscribeSpec& spec, const std::string& name, const Scan& scan);
  static std::vector<TopicKey> KeysOf(const model::SubscribeSpec& spec, const Scan& scan);
  std::vector<model::FramePtr> BscansOfEnded(const model::SubscribeSpec& spec, const TopicKey& key,
                                             const Topic& topic,
                                             const std::vector<model::VolumeStatus>& held) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(Scan& scan, Topic& topic, const model::FramePtr& frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldest(Topic& topic) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Subscriptions that want `key` of `scan` now; drops those that are gone.
  std::vector<std::shared_ptr<SubscriptionImpl>> Interested(const std::string& scan,
                                                            const TopicKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  HeldFrameSource* held_frames_ = nullptr;
  const int64_t most_remembered_bytes_;
  Mutex mutex_;
  std::map<std::string, Scan> scans_ ABSL_GUARDED_BY(mutex_);
  Order order_ ABSL_GUARDED_BY(mutex_);
  int64_t remembered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<SubscriptionImpl>> subscriptions_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
};

}  // namespace octavo::publish
