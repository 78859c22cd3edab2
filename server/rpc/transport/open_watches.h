#pragma once

#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/status.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/reactor.h"

namespace octavo::rpc {

/// The streams that only their clients and the end of the server end. Without EndAll, they
/// would hold the server up until it cuts them. Thread-safe.
class OpenWatches {
 public:
  static constexpr size_t kMost = 256;  // each costs work with every change

  /// A watch that begins now. ResourceExhausted (BUSY) while there are kMost.
  template <class Message>
  absl::Status Add(const std::shared_ptr<QueuedWriter<Message>>& writer) {
    const auto end = [weak = std::weak_ptr(writer)] {
      const auto to = weak.lock();
      if (to != nullptr) to->End(Ended());
      return to != nullptr;
    };
    bool over = false, full = false;
    {
      MutexLock lock(mutex_);
      watches_.remove_if([](const Watch& watch) { return watch.stream.expired(); });
      over = over_;
      full = watches_.size() >= kMost;
      if (!over && !full) watches_.push_back({.stream = writer, .end = end});
    }
    if (over) {
      end();
    } else if (full) {
      return WithInfo(
          absl::ResourceExhaustedError(absl::StrCat(
              "there are ", kMost, " watches of volumes and buffers; end one, or try again")),
          {.reason = Reason::kBusy,
           .field = "",
           .numbers = {{"allowed", absl::StrCat(kMost)}, {"retryable", "true"}}});
    }
    return absl::OkStatus();
  }

  /// Ends all watches, each after what waits for its client; later ones end at once.
  void EndAll() {
    std::list<Watch> watches;
    {
      MutexLock lock(mutex_);
      over_ = true;
      watches.swap(watches_);
    }
    for (const Watch& watch : watches) watch.end();
  }

 private:
  struct Watch {
    std::weak_ptr<void> stream;
    std::function<bool()> end;
  };

  static grpc::Status Ended() {
    return ToGrpc(
        WithInfo(absl::UnavailableError("the server ends; watch again when it runs again"),
                 {.reason = Reason::kDraining, .field = "", .numbers = {}}));
  }

  Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Watch> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::rpc
