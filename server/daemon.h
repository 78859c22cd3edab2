#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "server/config.h"
#include "server/engine/engine.h"
#include "server/handoff/fd_socket.h"
#include "server/metrics/exporter.h"
#include "server/rpc/rpc_server.h"
#include "server/storage/commit_store.h"
#include "server/storage/spill_folder.h"
#include "server/watchdog.h"

namespace octavo {

inline constexpr char kVersion[] = "0.1.0";

/// The one place that builds everything and connects it. Order: directories and lock, devices, storage (with recovery),
/// engine, metrics, rpc; torn down the other way round.
class Daemon {
 public:
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);
  /// {"pid":…, "tcp":[…], "unix":…, "metrics":…}
  std::string ReadyJson() const;
  std::vector<std::string> addresses() const { return rpc_->addresses(); }
  /// Health says NOT_SERVING, no new scans, running ones stop at the volume and commits finish, up to config.drain_seconds
  /// or until `hurry` says so. Then everything ends. Returns whether all had ended by itself.
  bool Drain(const std::function<bool()>& hurry);

 private:
  Daemon() = default;
  Config config_;
  UniqueFd lock_;
  std::string server_id_;
  std::vector<std::string> recovered_;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<storage::SpillFolder> spill_;
  SystemClock clock_;
  std::unique_ptr<handoff::FdSocket> handoff_;  // stopped before the engine ends
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<metrics::Exporter> metrics_;
  std::unique_ptr<rpc::RpcServer> rpc_;
  std::unique_ptr<Watchdog> watchdog_;  // last: it looks at the engine
};

}  // namespace octavo
