#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/frame.h"
#include "server/model/subscription.h"
#include "server/publish/frame_counters.h"
#include "server/publish/held_frame_source.h"
#include "server/publish/topic.h"

namespace octavo::publish {

/// The queue of one subscriber, by its delivery class: the publisher pushes, one consumer takes.
/// Frames that are replayed come before new ones; those of held volumes are loaded when their turn
/// comes. A frame that cannot be loaded because memory is short is tried again, at each Tick, for
/// 30 seconds. Thread-safe; may outlive the publisher. Push, Lose, Replay and End never call
/// `notify`: their caller does, with Notify, without locks.
class SubscriberQueue final : public model::Subscription,
                              public std::enable_shared_from_this<SubscriberQueue> {
 public:
  SubscriberQueue(model::SubscribeSpec spec, std::function<void()> notify,
                  HeldFrameSource* held_frames, const Clock* clock,
                  std::shared_ptr<FrameCounters> counters)
      : spec_(std::move(spec)),
        clock_(clock),
        held_frames_(held_frames),
        counters_(std::move(counters)),
        first_volume_(spec_.resume ? spec_.from_sequence : 0),
        notify_(std::move(notify)) {}

  const model::SubscribeSpec& spec() const { return spec_; }

  /// Returns whether the consumer should be notified.
  bool Push(const TopicKey& key, const model::FramePtr& frame);
  /// The server did not make the frame `sequence`. Returns whether the consumer should be notified.
  bool Lose(const std::string& scan, const TopicKey& key, uint64_t sequence, Loss loss);
  /// Frames to deliver before new ones.
  void Replay(std::vector<model::FramePtr> frames);
  /// Forgets the topics of scans that are not `known` any more, unless one of their frames waits in
  /// the queue.
  void ForgetScans(const std::function<bool(const std::string& scan)>& known);
  /// The publisher pushes no more frames.
  void End();
  bool closed();
  /// Whether a frame waits only for time to pass: for max_rate_hz, or for memory to load it.
  bool HeldBack();
  /// Tries again to load what memory was short for. Call it several times a second.
  void Tick();
  void Notify();

  bool Take(model::Delivered* out) override;
  bool Ended(absl::Status* status) override;
  void Close() override;

 private:
  struct TopicState {
    uint64_t next_sequence = 0;  // number that the consumer would get if nothing were dropped
    int64_t last_accepted_ns = 0;
  };

  /// The topic's state, which begins with the first frame this subscription could have had.
  TopicState& TopicOf(const std::string& scan, const TopicKey& key, uint64_t first_sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TopicKey KeyOf(const model::Frame& frame) const;
  bool TooEarly(const TopicState& topic) const;
  bool IsOldVolume(model::Product product, uint64_t sequence) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return product == model::Product::kVolume && sequence < first_volume_;
  }
  void CountDrop(model::Product product);
  /// Puts the frame behind those that are replayed. Returns whether the consumer should be
  /// notified.
  bool PushBehindReplay(const model::FramePtr& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Whether the queue has no room for `room` more frames of the product.
  bool IsFull(const std::deque<model::FramePtr>& frames, model::Product product,
              size_t room = 0) const;
  std::string FullQueue(model::Product product, const char* what) const;
  void Cut(Reason reason, model::Product product, uint64_t resume_from, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOlder(const model::Frame& newest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartLoad();
  /// Whether the frame to be loaded next shall be tried again after this error.
  bool IsWorthAnotherTry(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// An older frame than the one to be loaded next is at hand, and does.
  bool HasOlder() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The frame to be loaded next will not come.
  void IsMissing(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const model::SubscribeSpec spec_;
  const Clock* const clock_;
  HeldFrameSource* const held_frames_;
  const std::shared_ptr<FrameCounters> counters_;
  Mutex mutex_;
  std::deque<model::FramePtr> queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<model::FramePtr> replay_
      ABSL_GUARDED_BY(mutex_);  // older frames first; while not empty, new ones queue up behind
  std::map<model::Product, size_t> replayed_ ABSL_GUARDED_BY(mutex_);  // frames given to Replay
  model::FramePtr loaded_ ABSL_GUARDED_BY(mutex_);                     // payload of replay_.front()
  bool loading_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_for_memory_ ABSL_GUARDED_BY(mutex_) = false;  // to load replay_.front()
  int64_t short_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;     // first refusal of that frame; 0: none
  std::map<std::pair<std::string, TopicKey>, TopicState> topics_ ABSL_GUARDED_BY(mutex_);
  // Volumes of lower numbers are replayed, or were not asked for: their data may still come.
  uint64_t first_volume_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false, closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Mutex notify_mutex_;  // held while notify runs, so that Close can promise silence
  std::function<void()> notify_ ABSL_GUARDED_BY(notify_mutex_);
};

}  // namespace octavo::publish
