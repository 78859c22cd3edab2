#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/unique_fd.h"
#include "server/base/periodic_thread.h"
#include "server/config.h"
#include "server/drain_record.h"
#include "server/engine/earlier_runs.h"
#include "server/engine/engine.h"
#include "server/handoff/fd_socket.h"
#include "server/host_budget.h"
#include "server/keep_held.h"
#include "server/metrics/exporter.h"
#include "server/rpc/rpc_server.h"
#include "server/security/audit_log.h"
#include "server/security/certificate_table.h"
#include "server/security/grant_book.h"
#include "server/security/lost_lines.h"
#include "server/security/named_principals.h"
#include "server/security/tls_failures.h"
#include "server/security/tls_store.h"
#include "server/security/token_store.h"
#include "server/stop_forecast.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/history/history_writer.h"
#include "server/storage/resume/resume_folder.h"
#include "server/storage/spill/spill_folder.h"
#include "server/watchdog.h"

namespace octavo {

/// Logs to stderr as the configuration says.
void SetUpLog(const Config& config);
/// Whether a key takes effect when the configuration is read again; the others do at the next
/// start.
bool ReloadsAtOnce(const std::string& key);

/// Builds and connects all parts of the server. Order: directories and lock, devices, storage (with
/// recovery), engine, metrics, rpc; destroyed in reverse.
class Daemon {
 public:
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);
  /// {"pid":…, "tcp":[…], "unix":…, "metrics":…}
  std::string ReadyJson() const;
  std::vector<std::string> addresses() const { return rpc_->addresses(); }
  /// Applies the changes of a reloaded configuration that take effect at once (ReloadsAtOnce), and
  /// reports those that need a restart. A configuration that could not be read changes nothing and
  /// is counted. Call it on the thread that started the daemon.
  void Reload(const absl::StatusOr<Config>& read);
  const Config& config() const { return config_; }
  /// Whom Drain asks and tells while it works.
  struct DrainCalls {
    /// Whether the daemon was told a second time to end. Called every few milliseconds.
    std::function<bool()> hurry;
    /// The end may take so many seconds from now, by this key of the configuration.
    std::function<void(double seconds, const char* key)> may_take;
  };
  /// Sets health to NOT_SERVING and refuses new scans; running scans stop at their volume and
  /// commits finish, for up to config.drain_seconds. Then held volumes are kept as
  /// config.drain_on_held says, for up to config.drain_spill_seconds. `calls.hurry` cuts both
  /// short. Then ends everything. Returns whether all work had ended by itself.
  bool Drain(const DrainCalls& calls);

 private:
  /// What earlier daemons left on the disk, for the engine.
  struct Left {
    std::vector<storage::SpillFolder::Found> spilled;
    std::vector<drain::DrainRecord::LostVolume> lost_at_stop;
    std::vector<storage::HistoryRow> earlier;
  };

  Daemon() = default;
  // The steps of Start, in their order.
  absl::Status OpenAudit();
  absl::Status OpenHandoff();
  /// Opens what is kept on the disk, and brings in order what earlier daemons left there.
  absl::StatusOr<Left> OpenStorage();
  /// Takes what the engine is to know from `left`; what was lost stays there.
  engine::EngineConfig EngineConfigFor(const HostBudget& host, Left* left);
  /// Begins to measure the disk that held volumes are written to at the end, or says why none are.
  void PrepareToKeep();
  absl::Status StartMetrics(const std::string& backend);
  rpc::RpcConfig RpcConfigFor(const HostBudget& host);
  rpc::ServerInfo InfoFor(const std::vector<BackendReport>& backends) const;
  /// Lets clients in.
  absl::Status Serve(const HostBudget& host, const std::vector<BackendReport>& backends);
  void StartWatchdog();
  void StartTrims();
  /// Reads what says who may do what.
  absl::Status OpenTrust();
  /// Reads what owners have granted. FailedPrecondition if the file can neither be used nor be put
  /// aside.
  absl::Status OpenGrants();
  /// The ways in which held volumes can be kept; none: `why` says why.
  std::vector<drain::Way> WaysToKeep(std::string* why) const;
  /// Keeps held volumes, and names those that are lost. `hurried`: none is kept.
  void KeepHeld(const DrainCalls& calls, bool hurried);
  /// The volumes of earlier daemons that the engine holds go to `found_at_start_`, as many as
  /// people read.
  void TellHeldAgain();
  /// What an orderly end of an earlier daemon lost goes to the log and to `found_at_start_`.
  void TellLostVolumes(const std::vector<drain::DrainRecord::LostVolume>& lost);
  /// Opens the history and settles what earlier daemons left: their rows. `volumes`: those that are
  /// held again. `lost_at_stop` loses what the history knows better. A history that cannot be used
  /// costs only itself; FailedPrecondition if another process has it.
  absl::StatusOr<std::vector<storage::HistoryRow>> OpenHistory(
      const std::vector<storage::PublishedCommit>& published, engine::VolumesAtStart volumes,
      std::vector<drain::DrainRecord::LostVolume>* lost_at_stop);
  /// Conditions that last, for GetInfo, as far as they concern the caller; a line each.
  std::vector<std::string> Conditions(const security::Principal& caller) const;
  /// Of them: grants to names that nobody has, or whose role may change nothing.
  void AddGrantsWithoutHelp(const security::Principal& caller,
                            std::vector<std::string>* lines) const;
  /// Of them: held volumes that spill.mirror finds no room for; empty = there are none.
  std::string MirrorsWithoutRoom() const;
  /// Opens the records of scans that go on after a restart. A folder that cannot be used costs only
  /// those.
  engine::ResumeBook::Found OpenResumes();
  /// Begins those scans again, and tells what has become of each.
  void ResumeScans();
  /// What a principal may do now; of users of the host what it could.
  security::Role RoleNow(const security::Owner& owner) const;
  /// As handoff::FdSocketConfig::why_not.
  std::string WhyNot(const handoff::Holder& holder) const;
  /// As rpc::OwnerNow.
  absl::StatusOr<security::Owner> OwnerNow(const security::Owner& owner) const;
  /// Writes a line about the server itself into the audit log, if there is one.
  void Audit(const char* what, security::AuditLine fields = {}) const;
  /// Notes in a file, for the next start, that the audit log lacks these lines.
  void NoteLostLines(int64_t lines);
  /// What a start finds goes to the log, and `found_at_start_` gets as much of it as people read.
  void TellLostWork(const std::vector<std::string>& lines);
  model::StopForecast ForecastStop(const model::Stats& stats) const;

  Config config_;
  std::atomic<double> spill_seconds_{0};  // config_.drain_spill_seconds for other threads
  std::atomic<int64_t> reloads_{0}, reload_errors_{0};
  mutable Mutex reload_mutex_;
  std::string reload_refused_ ABSL_GUARDED_BY(reload_mutex_);  // why; empty = it was not
  std::vector<std::string> for_next_start_ ABSL_GUARDED_BY(reload_mutex_);  // changes that wait
  UniqueFd lock_;
  std::string server_id_;
  std::vector<std::string> found_at_start_;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<storage::SpillFolder> spill_;
  std::unique_ptr<storage::HistoryWriter> history_;  // null = none
  std::unique_ptr<storage::ResumeFolder> resumes_;   // null = no scan goes on after a restart
  std::map<std::string, int64_t> lost_;              // by kind: what died with the last daemon
  std::unique_ptr<security::AuditLog> audit_;        // null = none
  std::optional<security::LostLines> lost_lines_;    // of the audit log
  std::unique_ptr<security::TokenStore> tokens_;     // null = none are taken
  std::unique_ptr<security::TlsStore> tls_;          // null = TCP without TLS
  security::TlsFailures tls_failures_;
  std::unique_ptr<security::CertificateTable> certificates_;  // null = no certificate has a line
  std::unique_ptr<security::NamedPrincipals> names_;          // whom the configuration names
  SystemClock clock_;
  std::unique_ptr<security::GrantBook> grants_;
  std::unique_ptr<handoff::FdSocket> handoff_;  // stopped before the engine ends
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<drain::DiskRate> disk_rate_;  // null: held volumes are not kept
  std::unique_ptr<metrics::Exporter> metrics_;
  std::unique_ptr<rpc::RpcServer> rpc_;
  // Last, because they use the engine.
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<base::PeriodicThread> trims_;  // gives free memory back
};

}  // namespace octavo
