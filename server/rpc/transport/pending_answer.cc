#include "server/rpc/transport/pending_answer.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/call_gate.h"

namespace octavo::rpc {
namespace {

/// Bytes of the answers that wait, by peer.
class WaitingBytes {
 public:
  static WaitingBytes& Get() {
    static auto& bytes = *new WaitingBytes;
    return bytes;
  }
  /// Whether there is room; otherwise sets the bytes that wait for the peer.
  bool Take(const std::string& peer, int64_t bytes, int64_t* waiting) {
    MutexLock lock(mutex_);
    int64_t& of_peer = of_peer_[peer];
    *waiting = of_peer;
    const bool room = of_peer == 0 || bytes <= PendingAnswer::kSmall ||
                      (of_peer + bytes <= PendingAnswer::kMostOfPeer &&
                       all_ + bytes <= PendingAnswer::kMostOfAll);
    if (room) {
      of_peer += bytes;
      all_ += bytes;
    }
    return room;
  }
  void Give(const std::string& peer, int64_t bytes) {
    MutexLock lock(mutex_);
    all_ -= bytes;
    const auto it = of_peer_.find(peer);
    if ((it->second -= bytes) == 0) of_peer_.erase(it);
  }

 private:
  Mutex mutex_;
  std::unordered_map<std::string, int64_t> of_peer_ ABSL_GUARDED_BY(mutex_);
  int64_t all_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

PendingAnswer::PendingAnswer(grpc::CallbackServerContext* context,
                             const google::protobuf::Message* response)
    : context_(context), response_(response), timer_(std::make_shared<WriteTimer>(context)) {
  StallWatch::Add(timer_);
}

grpc::Status PendingAnswer::Begin(grpc::Status status) {
  // gRPC keeps the message in addition to its unsent bytes.
  auto bytes = status.ok() ? static_cast<int64_t>(response_->ByteSizeLong()) : 0;
  if (bytes > kSmall) bytes += static_cast<int64_t>(response_->SpaceUsedLong());
  if (bytes > 0) {
    const absl::Status taken = base::ExceptionToStatus([&]() -> absl::Status {
      int64_t waiting = 0;
      if (WaitingBytes::Get().Take(timer_->peer(), bytes, &waiting)) return absl::OkStatus();
      return WithInfo(
          absl::ResourceExhaustedError(
              absl::StrCat("the client does not read its answers: ", SizeText(waiting),
                           " wait for it, and this answer has ", SizeText(bytes), " more")),
          {.reason = Reason::kSlowClient,
           .field = "",
           .numbers = {{"waiting_bytes", absl::StrCat(waiting)}, {"retryable", "true"}}});
    });
    if (taken.ok()) {
      bytes_ = bytes;
    } else {
      status = ToGrpc(taken);
    }
  }
  timer_->Begin();
  EndCall(context_, status, response_);
  return status;
}

void PendingAnswer::Done() {
  timer_->Done();
  if (bytes_ > 0) WaitingBytes::Get().Give(timer_->peer(), std::exchange(bytes_, 0));
}

}  // namespace octavo::rpc
