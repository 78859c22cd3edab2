#pragma once

// The way of frames from a subscription to one subscriber.
//
//   subscription --FrameCame--> FramePump --Send--> FrameSink: FrameMessages (gRPC) or
//        ^                        |  ^                  |      FrameFeedSink (shared memory)
//        +----------Take----------+  +-------Wake-------+
//
// Steps. A pump works in steps, one at a time. A step begins with FrameCame, or with Wake: the sink
// takes a frame again. It sends until the sink takes no more or no frame is there. `running_` says
// that a step runs or waits for a worker; `again_`, that another call came meanwhile, so that the
// step looks once more before it ends. So no call is lost, and no two steps run.
//
// Whose thread. Steps run on workers. But a thread must wake up for that, which takes longer than
// to send a small frame by shared memory. So FrameCame sends one frame in the thread that published
// it, if the sink says that this takes no time (FrameSink::SendsAtOnce). All else is left to a
// worker: further frames, events (their scan publishes them under its locks), pictures, and the
// end.
//
// Pictures. Where the subscriber wants pictures, the step runs on the workers that make them, and
// takes its frame there, so that it is a new one. A large picture goes on to workers of its own,
// with the frame that was taken.
//
// The last picture. A scan may end after a subscription has begun and before a picture of it was
// made, or after only an older one was there to show. The subscription then ends without its last
// picture, although whoever subscribes a moment later gets that of a held volume. So at a good end
// the pump asks once for pictures newer than those it showed, and goes on with the subscription
// that it gets. An error of that one is none of the stream, which has ended well: the volume may
// have left memory meanwhile. The pump asks in a worker, because a subscription ends under the
// locks of its scan or job.
//
// The end. A subscription that has ended, a picture that cannot be made, a sink that fails and an
// exception end the stream (FrameSink::End): `running_` then stays true, and no step follows. Close
// ends the subscription at any time; a step that runs then finds nothing more to send. Close waits
// for a notification that is under way, so nothing that a notification calls may call it.
//
// Who keeps whom. The stream of gRPC, or the feed, keeps the pump. The pump keeps its sink, which
// may keep the pump, too: Close, which each of them calls at its end, breaks the circle.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"

#include "octavo/v1/stream.pb.h"

#include "gpu/base/mutex.h"
#include "server/base/worker_pool.h"
#include "server/model/frame.h"
#include "server/model/subscription.h"
#include "server/picture/picture_cache.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/services.h"

namespace octavo::rpc {

/// A frame on its way to one subscriber.
struct OutgoingFrame {
  v1::Frame about;    // stages.sent_ns is now, where stages are known
  model::Bytes data;  // as the subscriber gets them: the array or the picture
};

/// The way to one subscriber. The pump calls it in its steps, one at a time.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// Calls `step`; what it throws ends the stream. Does nothing once the subscriber has gone.
  virtual void Guard(const std::function<void()>& step) = 0;
  /// Whether it takes a frame now. Who makes that true calls FramePump::Wake.
  virtual bool Ready() = 0;
  /// Whether Send of a frame with so many bytes of data waits for nobody and takes less time than a
  /// thread needs to wake up.
  virtual bool SendsAtOnce(int64_t bytes) = 0;
  /// Whether it can be told of the end now: also if it takes no frame.
  virtual bool TakesEnd() = 0;
  /// An error ends the stream.
  virtual absl::Status Send(OutgoingFrame frame) = 0;
  /// Tells the subscriber that no frame comes any more. Waits for nobody and closes nothing: it may
  /// be called while a subscription notifies the pump.
  virtual void End(const absl::Status& why) = 0;
};

/// Takes the frames of one subscription, makes the pictures that it wants, and gives them to a sink
/// as that takes them: what it does not take waits in the subscription, whose delivery decides what
/// is dropped. Thread-safe.
class FramePump final : public std::enable_shared_from_this<FramePump> {
 public:
  using Notify = std::function<void()>;
  /// Gives pictures of later volumes than were `shown` of each product, or an error.
  using LastPictures = std::function<absl::StatusOr<std::shared_ptr<model::Subscription>>(
      const std::map<model::Product, int64_t>& shown, Notify notify)>;

  /// `pictures`: shared by all pumps. `last_pictures`: null if nobody knows of any.
  FramePump(SubscribeOptions options, base::WorkerPool* workers, SlowWork* slow,
            std::shared_ptr<picture::PictureCache> pictures, LastPictures last_pictures);

  /// For a subscription of this pump: calls FrameCame while the pump exists.
  Notify NotifiesThis();

  void Start(std::shared_ptr<model::Subscription> subscription, std::shared_ptr<FrameSink> sink);
  /// Says that there may be a frame. Whoever publishes it calls this: may send it, and does not
  /// block.
  void FrameCame();
  /// Says that there may be room for a frame. Any thread, does not block.
  void Wake();
  /// Ends the subscription. No further step begins; one may still run.
  void Close();

 private:
  /// Whether a step begins now: none runs.
  bool Begins();
  base::WorkerPool* WorkersOfNext();
  /// Has a worker run a step.
  void Post(base::WorkerPool* to);
  void SendAll(FrameSink& sink);
  /// A step in the publishing thread.
  void SendOne(model::Subscription& subscription, FrameSink& sink);
  /// Ends the step, unless there is something to look at again.
  bool Rests();
  enum class Step : uint8_t {
    kSent = 0,
    kNothing = 1,    // no frame is there, or the sink takes none
    kElsewhere = 2,  // other workers go on with the frame that was taken
    kEnded = 3
  };
  Step SendNext(model::Subscription& subscription, FrameSink& sink);
  /// Whether a picture of this volume, or of a later one, was sent.
  bool WasShown(const model::Frame& frame) const;
  /// Whether the pump goes on with another subscription: of the last pictures.
  bool TurnsToLastPictures();

  const SubscribeOptions options_;
  base::WorkerPool* const workers_;
  base::WorkerPool &makers_, &makers_of_large_;
  const std::shared_ptr<picture::PictureCache> pictures_;
  Mutex mutex_;
  std::shared_ptr<model::Subscription> subscription_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<FrameSink> sink_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false, again_ ABSL_GUARDED_BY(mutex_) = false,
                closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Used by the running step only.
  model::Delivered frame_;                   // taken, and not sent yet
  std::map<model::Product, int64_t> shown_;  // the volumes of the last complete frames
  LastPictures last_pictures_;               // null once it was called
  bool at_last_pictures_ = false;            // the subscription is that of the last pictures
};

}  // namespace octavo::rpc
