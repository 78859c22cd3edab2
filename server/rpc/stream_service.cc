#include <algorithm>
#include <atomic>

#include "octavo/v1/stream.grpc.pb.h"

#include "gpu/base/clock.h"
#include "gpu/base/status.h"
#include "server/model/checksum.h"
#include "server/picture/image.h"
#include "server/picture/picture_cache.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/handler.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/payload.h"

namespace octavo::rpc {
namespace {

constexpr uint32_t kDataField = v1::SubscribeResponse::kDataFieldNumber;

using picture::PictureCache, picture::PicturePtr;

/// Whether a picture of the frame takes long: seconds, if it is of an exact kind.
bool IsLarge(const model::Frame& frame) {
  constexpr int64_t kLargeValues = int64_t{1} << 21;
  return frame.shape[0] > kLargeValues / std::max<int64_t>(frame.shape[1], 1);
}

/// One subscriber: takes a frame when the last one is written, in chunks. Runs on the workers, but
/// for the steps that make pictures; at most one step at a time.
class FrameStream final : public std::enable_shared_from_this<FrameStream> {
 public:
  FrameStream(SubscribeOptions options,
              const std::shared_ptr<QueuedWriter<grpc::ByteBuffer>>& writer,
              base::WorkerPool* workers, SlowWork* slow, std::shared_ptr<PictureCache> pictures)
      : options_(std::move(options)),
        writer_(writer),
        workers_(workers),
        makers_(slow->pictures),
        makers_of_large_(slow->large_pictures),
        pictures_(std::move(pictures)) {}

  void Start(std::shared_ptr<model::Subscription> subscription) {
    {
      MutexLock lock(mutex_);
      subscription_ = std::move(subscription);
    }
    Wake();
  }
  /// Signals that there may be a new frame. Any thread, does not block.
  void Wake() {
    {
      MutexLock lock(mutex_);
      again_ = true;
      if (running_ || subscription_ == nullptr) return;
      running_ = true;
    }
    Post(WorkersOfNext());
  }
  void Close() {
    std::shared_ptr<model::Subscription> subscription;
    {
      MutexLock lock(mutex_);
      subscription = subscription_;
    }
    if (subscription != nullptr) subscription->Close();
  }

 private:
  // A step that takes a frame and makes a picture of it waits with others of its kind: the frame is
  // taken when it is its turn, so that it is a new one.
  base::WorkerPool* WorkersOfNext() {
    return options_.image.has_value() && frame_.frame == nullptr ? &makers_ : workers_;
  }
  // An exception in a step ends the stream; no other step follows.
  void Post(base::WorkerPool* to) {
    auto writer = writer_.lock();
    if (writer == nullptr) return;
    writer->Feed([&] {
      to->Post([self = shared_from_this()] {
        if (auto open = self->writer_.lock()) open->Feed([&] { self->Run(); });
      });
    });
  }
  // Runs until a chunk is being written (its completion continues) or there is nothing to send.
  void Run() {
    for (;;) {
      std::shared_ptr<model::Subscription> subscription;
      {
        MutexLock lock(mutex_);
        again_ = false;
        subscription = subscription_;
      }
      if (SendNext(*subscription)) return;
      MutexLock lock(mutex_);
      if (again_) continue;
      running_ = false;
      return;
    }
  }

  // True if a chunk was handed over, the step goes on elsewhere, or the stream has ended.
  bool SendNext(model::Subscription& subscription) {
    auto writer = writer_.lock();
    if (writer == nullptr) return true;
    if (!begun_) {
      if (frame_.frame == nullptr && !subscription.Take(&frame_)) {
        absl::Status end;
        if (!subscription.Ended(&end)) return false;
        writer->End(ToGrpc(end));
        return true;
      }
      payload_ = frame_.frame->payload;
      encoding_ = v1::ENCODING_RAW;
      picture_ = nullptr;
      if (options_.image.has_value() && model::IsImage(frame_.frame->product)) {
        if (IsLarge(*frame_.frame) && !large_) {
          large_ = true;
          Post(&makers_of_large_);
          return true;
        }
        large_ = false;
        auto picture = pictures_->Get(frame_.frame, *options_.image);
        if (!picture.ok()) {
          writer->End(ToGrpc(picture.status()));
          return true;
        }
        picture_ = *std::move(picture);
        payload_ = picture_->data;
        encoding_ = options_.encoding;
      }
      offset_ = 0;
      crc_ = 0;
      begun_ = true;
    }
    const model::Frame& frame = *frame_.frame;
    v1::SubscribeResponse header;
    if (offset_ == 0) {
      v1::Frame& about = *header.mutable_frame();
      EncodeFrameHeader(frame, frame_.dropped_before, &about);
      if (picture_ != nullptr) EncodePictureHeader(*picture_, &about);
      about.set_encoding(encoding_);
      if (about.has_stages()) about.mutable_stages()->set_sent_ns(SystemClock().Now().monotonic_ns);
    }
    header.set_offset(static_cast<uint64_t>(offset_));
    header.set_total_bytes(static_cast<uint64_t>(payload_.size));
    const int64_t size = std::min(options_.chunk_bytes, payload_.size - offset_);
    const auto sum = [&, at = static_cast<const char*>(payload_.data) + offset_] {
      crc_ = model::Crc32c(at, static_cast<size_t>(size), crc_);
    };
    const bool last = offset_ + size == payload_.size;
    if (last) {
      sum();
      header.set_crc32c(crc_);
    }
    grpc::ByteBuffer message = WithPayload(header, kDataField, payload_, offset_, size);
    offset_ += size;
    if (last) {
      frame_ = {};
      payload_ = {};
      picture_ = nullptr;
      begun_ = false;
    }
    // Chosen now: another step may run when the message is written.
    base::WorkerPool* const next = WorkersOfNext();
    if (last) {
      writer->PushThen(std::move(message), [self = shared_from_this(), next] { self->Post(next); });
      return true;
    }
    // gRPC sends the chunk while its checksum is computed; whichever ends last continues.
    undone_ = 2;
    const auto one_done = [self = shared_from_this(), next] {
      if (--self->undone_ == 0) self->Post(next);
    };
    writer->PushThen(std::move(message), one_done);
    sum();
    one_done();
    return true;
  }

  const SubscribeOptions options_;
  const std::weak_ptr<QueuedWriter<grpc::ByteBuffer>> writer_;
  base::WorkerPool* const workers_;
  base::WorkerPool &makers_, &makers_of_large_;
  const std::shared_ptr<PictureCache> pictures_;
  Mutex mutex_;
  std::shared_ptr<model::Subscription> subscription_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false, again_ ABSL_GUARDED_BY(mutex_) = false;
  // Used by the running step only.
  model::Delivered frame_;
  bool begun_ = false;  // to send it
  bool large_ = false;  // its picture is made by the makers of large ones
  model::Bytes payload_;
  PicturePtr picture_;
  v1::Encoding encoding_ = v1::ENCODING_RAW;
  int64_t offset_ = 0;
  uint32_t crc_ = 0;
  std::atomic<int> undone_{0};  // of the chunk under way: its write, its checksum
};

class StreamServiceImpl final
    : public v1::StreamService::WithRawCallbackMethod_Subscribe<v1::StreamService::Service> {
 public:
  StreamServiceImpl(engine::Engine* engine, base::WorkerPool* workers, SlowWork* slow)
      : streams_(engine->streams()), workers_(workers), slow_(slow) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Subscribe(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* bytes) override {
    return RawStream<v1::SubscribeRequest>(
        context, bytes, [&](const auto& request, const auto& writer) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(SubscribeOptions options, DecodeSubscribe(*request));
          const model::SubscribeSpec spec = options.spec;
          auto stream =
              std::make_shared<FrameStream>(std::move(options), writer, workers_, slow_, pictures_);
          OCTAVO_ASSIGN_OR_RETURN(auto subscription,
                                  streams_.Subscribe(spec, [weak = std::weak_ptr(stream)] {
                                    if (auto to = weak.lock()) to->Wake();
                                  }));
          writer->OnOver([stream] { stream->Close(); });
          stream->Start(std::move(subscription));
          return absl::OkStatus();
        });
  }

 private:
  engine::Streams& streams_;
  base::WorkerPool* const workers_;
  SlowWork* const slow_;
  const std::shared_ptr<PictureCache> pictures_ = std::make_shared<PictureCache>();
};

}  // namespace

std::unique_ptr<grpc::Service> MakeStreamService(engine::Engine* engine, base::WorkerPool* workers,
                                                 SlowWork* slow) {
  return std::make_unique<StreamServiceImpl>(engine, workers, slow);
}

}  // namespace octavo::rpc
