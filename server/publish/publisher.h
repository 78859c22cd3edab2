#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/frame.h"
#include "server/model/stats.h"
#include "server/model/subscription.h"
#include "server/publish/frame_counters.h"
#include "server/publish/held_frame_source.h"
#include "server/publish/subscription_table.h"
#include "server/publish/topic.h"
#include "server/publish/topic_table.h"

namespace octavo::publish {

/// Topics and their subscribers: the publisher puts each frame into every queue that wants it,
/// without waiting for any. Thread-safe. Lock order: publisher before subscription; notify
/// callbacks run without its lock, under that of their subscription and those of whoever publishes.
class Publisher {
 public:
  using Show = publish::Show;
  using Wanted = publish::Wanted;
  using Loss = publish::Loss;

  /// Past images take at most `remembered_bytes` of page-locked memory; the rest that is remembered
  /// of ended scans, mainly their events, takes at most `ended_bytes`.
  explicit Publisher(const Clock* clock, int64_t remembered_bytes = int64_t{128} << 20,
                     int64_t ended_bytes = int64_t{32} << 20)
      : clock_(clock), topics_(remembered_bytes, ended_bytes) {}

  /// The source of frames of held volumes. Call it before the first subscription; `source` must
  /// outlive all subscriptions that have not ended.
  void SetHeldFrames(HeldFrameSource* source) { held_frames_ = source; }

  void ScanStarted(const std::string& scan, const std::map<std::string, std::string>& labels,
                   const Show& show);
  /// The scan publishes one more event, its last: later subscribers find an ended scan.
  void ScanEnding(const std::string& scan);
  /// The scan publishes nothing more; its subscriptions end when their queues are empty.
  void ScanEnded(const std::string& scan);

  /// Topics of `scan` that have subscribers now.
  std::vector<Wanted> WantedOf(const std::string& scan);

  /// Publishes `frame` under the topic's next sequence number.
  void Publish(const TopicKey& key, model::Frame frame);
  /// The server did not make a frame of the topic. The frame takes a sequence number and counts as
  /// dropped.
  void Lost(const std::string& scan, const TopicKey& key, Loss loss = Loss::kNoMemory);

  // -- volumes, whose data some subscribers read and others get
  /// Publishes `header`, without data but with their size, under the topic's next sequence number,
  /// which it returns. Those who read volumes get it now; the others wait for Deliver or
  /// Undelivered. 0 if the scan is not known.
  uint64_t Announce(const TopicKey& key, model::Frame header);
  /// The frame of that number with its data, for those who do not read them. In the order of the
  /// numbers, also with Undelivered.
  void Deliver(const TopicKey& key, model::Frame frame);
  /// The data of that number will not come.
  void Undelivered(const std::string& scan, const TopicKey& key, uint64_t sequence);

  /// For an ended scan: the kept frames, and B-scans of its held volumes (LATEST: of the newest).
  /// FailedPrecondition (NOTHING_KEPT) if frames are requested and there are none.
  absl::StatusOr<std::shared_ptr<model::Subscription>> Subscribe(const model::SubscribeSpec& spec,
                                                                 std::function<void()> notify);
  /// Delivers frames that max_rate_hz has held back long enough, and loads what memory was short
  /// for. Call several times a second.
  void Tick();
  void AddTo(model::Stats* stats);
  /// The server ended a stream with these subscriptions.
  void CountCut(const std::string& reason) { counters_->Cut(reason); }

 private:
  /// The queues that want the topic of this scan with its data.
  SubscriptionTable::Queues WithoutReaders(const std::string& name, const TopicKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  /// Whether it publishes no more pictures.
  bool HasEnded(const std::string& scan);

  const Clock* const clock_;
  HeldFrameSource* held_frames_ = nullptr;
  Mutex mutex_;
  TopicTable topics_ ABSL_GUARDED_BY(mutex_);
  SubscriptionTable subscriptions_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<FrameCounters> counters_ = std::make_shared<FrameCounters>();
};

}  // namespace octavo::publish
