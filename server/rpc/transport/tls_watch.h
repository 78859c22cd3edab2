#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "server/base/periodic_thread.h"
#include "server/security/tls_failures.h"
#include "server/security/tls_store.h"

namespace octavo::rpc {

/// Watches the files of TLS twice a second and ends connections that rest on certificates which are
/// not used any more: all of them at once when an authority of clients is withdrawn, because gRPC
/// does not check a certificate again once a connection has begun; after `old_seconds` when the set
/// was replaced. Logs failed connections.
class TlsWatch {
 public:
  struct Config {
    security::TlsStore* store = nullptr;
    security::TlsFailures* failures = nullptr;
    double old_seconds = 86'400;
  };
  /// `generation` tells the listener which set new connections use. `cut` ends the connections of
  /// sets before `generation` and returns their number. Both are called on the watch's thread.
  TlsWatch(const Config& config, std::function<void(int64_t generation)> generation,
           std::function<int64_t(int64_t generation)> cut);

 private:
  using Steady = std::chrono::steady_clock;
  void Look();

  const Config config_;
  const std::function<void(int64_t)> generation_;
  const std::function<int64_t(int64_t)> cut_;
  // Sets that replaced others, and when connections of those before them end.
  std::deque<std::pair<int64_t, Steady::time_point>> replaced_;
  std::optional<base::PeriodicThread> thread_;  // begins when `generation_` was told
};

}  // namespace octavo::rpc
