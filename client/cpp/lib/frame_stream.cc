#include "client/cpp/lib/frame_stream.h"

#include <cstring>
#include <utility>

#include "client/cpp/lib/convert.h"

namespace octavo::client {

FrameStream::Impl::Impl(v1::StreamService::Stub* stub, v1::SubscribeRequest request)
    : request_(std::move(request)) {
  stub->async()->Subscribe(&context_, &request_, this);
  AddHold();  // reads also start outside callbacks, so OnDone must wait for the last one
  StartRead(&part_);
  StartCall();
}

FrameStream::Impl::~Impl() {
  context_.TryCancel();
  try {
    Frame rest;
    while (Next(&rest)) {  // a waiting frame holds the call open
    }
  } catch (const Error&) {  // no caller waits any more
  }
}

void FrameStream::Impl::Add(const v1::SubscribeResponse& part) {
  if (part.has_frame()) {
    assembling_ = Decode(part.frame());
    assembling_.array.data.resize(part.total_bytes());
  }
  auto& data = assembling_.array.data;
  if (!part.data().empty() && part.offset() + part.data().size() <= data.size()) {
    std::memcpy(data.data() + part.offset(), part.data().data(), part.data().size());
  }
}

void FrameStream::Impl::OnReadDone(bool ok) {
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

void FrameStream::Impl::OnDone(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  ended_ = status;
  // under the lock, because the waiter may destroy this object once the lock is free
  changed_.notify_all();
}

bool FrameStream::Impl::Next(Frame* frame) {
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

FrameStream::FrameStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FrameStream::FrameStream(FrameStream&&) noexcept = default;
FrameStream& FrameStream::operator=(FrameStream&&) noexcept = default;
FrameStream::~FrameStream() = default;

bool FrameStream::Next(Frame* frame) { return impl_->Next(frame); }
void FrameStream::Cancel() { impl_->Cancel(); }

}  // namespace octavo::client
