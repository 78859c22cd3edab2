#pragma once

#include <atomic>
#include <cstdint>
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
#include "server/storage/commit/commit_store.h"
#include "server/storage/spill/spill_folder.h"
#include "server/watchdog.h"

namespace octavo {

/// Logs to stderr as the configuration says.
void SetUpLog(const Config& config);
/// Whether a key takes effect when the configuration is read again; the others do at the next
/// start.
bool ReloadsAtOnce(const std::string& key);

/// The one place that builds everything and connects it. Order: directories and lock, devices,
/// storage (with recovery), engine, metrics, rpc; torn down the other way round.
class Daemon {
 public:
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);
  /// {"pid":…, "tcp":[…], "unix":…, "metrics":…}
  std::string ReadyJson() const;
  std::vector<std::string> addresses() const { return rpc_->addresses(); }
  /// Takes over what a configuration that was read again may change at once (ReloadsAtOnce), and
  /// tells what needs a restart. One that could not be read changes nothing and is counted. From
  /// the thread that started the daemon.
  void Reload(const absl::StatusOr<Config>& read);
  const Config& config() const { return config_; }
  /// Health says NOT_SERVING, no new scans, running ones stop at the volume and commits finish, up
  /// to config.drain_seconds or until `hurry` says so. Then everything ends. Returns whether all
  /// had ended by itself.
  bool Drain(const std::function<bool()>& hurry);

 private:
  Daemon() = default;
  Config config_;
  std::atomic<int64_t> reloads_{0}, reload_errors_{0};
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
