#pragma once

#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/reactor.h"

namespace octavo::rpc {

/// The streams that nothing ends but their clients and the end of the server: without EndAll, they
/// would hold the server up until it cuts them. Thread-safe.
class OpenWatches {
 public:
  /// A watch that begins now.
  template <class Message>
  void Add(const std::shared_ptr<QueuedWriter<Message>>& writer) {
    const auto end = [weak = std::weak_ptr(writer)] {
      const auto to = weak.lock();
      if (to != nullptr) to->End(Ended());
      return to != nullptr;
    };
    const bool over = [&] {
      MutexLock lock(mutex_);
      watches_.remove_if([](const Watch& watch) { return watch.stream.expired(); });
      if (!over_) watches_.push_back({.stream = writer, .end = end});
      return over_;
    }();
    if (over) end();
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
    return ToGrpc(WithInfo(absl::UnavailableError("the server ends; watch the next one"),
                           {.reason = Reason::kDraining, .field = "", .numbers = {}}));
  }

  Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Watch> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::rpc
