#include "client/cpp/lib/frame_stream.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "client/cpp/lib/convert.h"

namespace octavo::client {
namespace {

/// Reads by gRPC's callbacks, so that gRPC answers the server's keepalive while the caller is busy
/// with a frame. Synchronous calls poll only while they wait.
class CallFrames final : public FrameStream::Impl,
                         public grpc::ClientReadReactor<v1::SubscribeResponse> {
 public:
  CallFrames(v1::StreamService::Stub* stub, v1::SubscribeRequest request)
      : request_(std::move(request)) {
    stub->async()->Subscribe(&context_, &request_, this);
    AddHold();  // reads also start outside callbacks, so OnDone must wait for the last one
    StartRead(&part_);
    StartCall();
  }
  /// Cancels and waits until gRPC is done with it, so that it is never destroyed on gRPC's own
  /// thread, perhaps together with the channel.
  ~CallFrames() override {
    context_.TryCancel();
    try {
      Frame rest;
      while (Next(&rest)) {  // a waiting frame holds the call open
      }
    } catch (const Error&) {  // no caller waits any more
    }
  }

  bool Next(Frame* frame) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_.has_value() || ended_.has_value(); });
    if (ready_.has_value()) {
      *frame = *std::exchange(ready_, std::nullopt);
      lock.unlock();
      StartRead(&part_);
      return true;
    }
    if (ended_->error_code() == grpc::StatusCode::CANCELLED) return false;
    Check(*ended_);
    return false;
  }
  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      RemoveHold();
      return;
    }
    Add(part_);
    if (part_.offset() + part_.data().size() < part_.total_bytes()) {
      StartRead(&part_);
      return;
    }
    std::lock_guard lock(mutex_);
    ready_ = std::move(assembling_);
    changed_.notify_all();
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

  grpc::ClientContext context_;
  const v1::SubscribeRequest request_;
  v1::SubscribeResponse part_;  // of the read that is under way
  Frame assembling_;            // touched by the read callbacks only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Frame> ready_;         // guarded by mutex_; no read is in progress while it is set
  std::optional<grpc::Status> ended_;  // guarded by mutex_; set when gRPC is done
};

}  // namespace

std::unique_ptr<FrameStream::Impl> FramesOfCall(v1::StreamService::Stub* stub,
                                                v1::SubscribeRequest request) {
  return std::make_unique<CallFrames>(stub, std::move(request));
}

FrameStream::FrameStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FrameStream::FrameStream(FrameStream&&) noexcept = default;
FrameStream& FrameStream::operator=(FrameStream&&) noexcept = default;
FrameStream::~FrameStream() = default;

bool FrameStream::Next(Frame* frame) { return impl_->Next(frame); }
void FrameStream::Cancel() { impl_->Cancel(); }

}  // namespace octavo::client
