#include "client/cpp/lib/frame_stream.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "client/cpp/lib/convert.h"
#include "client/cpp/lib/frame_queue.h"

namespace octavo::client {
namespace {

/// Whether a volume whose read failed so is not there any more, or the server has no memory to send
/// it: as if the server had made no frame of it.
bool IsGone(const Error& error) {
  return error.code == Code::kNotFound || error.reason == "VOLUME_STATE" ||
         error.reason == "LOST" || error.reason == "NO_STAGING";
}

/// A LOSSLESS subscriber waits so long for memory of the server that others have, as the server
/// does where it sends the volumes itself.
constexpr std::chrono::seconds kPatience(30);
constexpr std::chrono::milliseconds kBetweenTries(50);

bool IsShortage(const Error& error) {
  const auto retryable = error.numbers.find("retryable");
  return error.code == Code::kResourceExhausted && retryable != error.numbers.end() &&
         retryable->second == "true";
}

/// Reads by gRPC's callbacks, so that gRPC answers the server's keepalive while the caller is busy
/// with a frame. Synchronous calls poll only while they wait.
class CallFrames final : public FrameStream::Impl,
                         public grpc::ClientReadReactor<v1::SubscribeResponse> {
 public:
  CallFrames(v1::StreamService::Stub* stub, v1::SubscribeRequest request,
             std::shared_ptr<VolumeReader> reader)
      : request_(std::move(request)), reader_(std::move(reader)), frames_(request_) {
    stub->async()->Subscribe(&context_, &request_, this);
    AddHold();  // reads also start outside callbacks, so OnDone must wait for the last one
    StartRead(&part_);
    StartCall();
  }
  /// Cancels and waits until gRPC is done with it, so that it is never destroyed on gRPC's own
  /// thread, perhaps together with the channel.
  ~CallFrames() override {
    Cancel();
    try {
      Frame rest;
      while (Next(&rest)) {  // a waiting frame holds the call open
      }
    } catch (const Error&) {  // no caller waits any more
    }
  }

  bool Next(Frame* frame) override {
    while (Take(frame)) {
      if (!FrameQueue::IsToBeRead(*frame)) return true;
      if (!stop_.stop_requested() && Read(frame)) return true;
    }
    return false;
  }
  void Cancel() override {
    stop_.request_stop();
    context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      RemoveHold();
      return;
    }
    Add(part_);
    bool more = part_.offset() + part_.data().size() < part_.total_bytes();
    if (!more) {
      std::lock_guard lock(mutex_);
      frames_.Push(std::move(assembling_));
      more = frames_.HasRoom();
      waits_ = !more;
      changed_.notify_all();
    }
    if (more) StartRead(&part_);
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    ended_ = status;
    // under the lock, because the waiter may destroy this object once the lock is free
    changed_.notify_all();
  }

 private:
  void Add(const v1::SubscribeResponse& part) {
    if (part.has_frame()) {
      assembling_ = Decode(part.frame());
      assembling_.array.data.resize(part.total_bytes());
    }
    auto& data = assembling_.array.data;
    if (!part.data().empty() && part.offset() + part.data().size() <= data.size()) {
      std::memcpy(data.data() + part.offset(), part.data().data(), part.data().size());
    }
  }

  /// The next frame as it came; false at the end.
  bool Take(Frame* frame) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !frames_.empty() || ended_.has_value(); });
    if (!frames_.empty()) {
      *frame = frames_.Pop();
      const bool read = waits_ && frames_.HasRoom();
      if (read) waits_ = false;
      lock.unlock();
      if (read) StartRead(&part_);
      return true;
    }
    if (failed_ || ended_->error_code() == grpc::StatusCode::CANCELLED) return false;
    Check(*ended_);
    return false;
  }

  /// Reads the volume, again while a LOSSLESS subscriber may hope for memory.
  void ReadData(Frame* frame) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      try {
        return ReadOnce(frame);
      } catch (const Error& error) {
        if (!IsShortage(error) || !frames_.lossless() || stop_.stop_requested() ||
            std::chrono::steady_clock::now() >= end)
          throw;
      }
      std::unique_lock lock(mutex_);
      stopped_.wait_for(lock, stop_.get_token(), kBetweenTries, [] { return false; });
    }
  }
  void ReadOnce(Frame* frame) {
    v1::ReadVolumeRequest request;
    request.set_name(frame->volume);
    Array& array = frame->array;
    const ArrayLayout whole{.dtype = array.dtype, .shape = array.shape};
    reader_->Read(
        request, 0,
        [&](const ArrayLayout& layout) {
          array.dtype = layout.dtype;
          array.shape = layout.shape;
          array.data.resize(BytesOf(layout));
          return std::span(array.data);
        },
        stop_.get_token(), &whole);
  }

  /// Reads the volume of the frame; false if it has gone. What ends the stream is thrown.
  bool Read(Frame* frame) {
    try {
      ReadData(frame);
      return true;
    } catch (const Error& error) {
      if (stop_.stop_requested()) return false;
      std::lock_guard lock(mutex_);
      if (IsGone(error) && !frames_.lossless()) {
        frames_.Lost(*frame);
        return false;
      }
      failed_ = true;
      frames_.Clear();
      context_.TryCancel();
      if (!IsGone(error)) throw;
      throw LostVolume(*frame, error);
    }
  }
  static Error LostVolume(const Frame& frame, const Error& why) {
    Error lost(why.code,
               frame.volume + " (frame " + std::to_string(frame.sequence) + " of " + frame.parent +
                   ") could not be read, and delivery is LOSSLESS: " + why.what() +
                   "; allowed: delivery LATEST or DROP_OLDEST, which count what is dropped, or "
                   "volumes_by_read false");
    lost.reason = why.reason;
    lost.field = why.field;
    lost.numbers = why.numbers;
    lost.numbers["resume_from"] = std::to_string(frame.sequence + 1);
    return lost;
  }

  grpc::ClientContext context_;
  const v1::SubscribeRequest request_;
  const std::shared_ptr<VolumeReader> reader_;
  std::stop_source stop_;       // ends the read of a volume
  v1::SubscribeResponse part_;  // of the read that is under way
  Frame assembling_;            // touched by the read callbacks only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable_any stopped_;  // waits for the stop alone
  FrameQueue frames_;                    // guarded by mutex_
  bool waits_ = false;                 // guarded by mutex_; no read is in progress while it is set
  bool failed_ = false;                // guarded by mutex_; the caller has heard why
  std::optional<grpc::Status> ended_;  // guarded by mutex_; set when gRPC is done
};

}  // namespace

std::unique_ptr<FrameStream::Impl> FramesOfCall(v1::StreamService::Stub* stub,
                                                v1::SubscribeRequest request,
                                                std::shared_ptr<VolumeReader> reader) {
  return std::make_unique<CallFrames>(stub, std::move(request), std::move(reader));
}

FrameStream::FrameStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FrameStream::FrameStream(FrameStream&&) noexcept = default;
FrameStream& FrameStream::operator=(FrameStream&&) noexcept = default;
FrameStream::~FrameStream() = default;

bool FrameStream::Next(Frame* frame) { return impl_->Next(frame); }
void FrameStream::Cancel() { impl_->Cancel(); }

}  // namespace octavo::client
