#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "gpu/base/mutex.h"
#include "server/security/audit_log.h"
#include "server/storage/history/history_row.h"
#include "server/volume/volume_observer.h"

namespace octavo::engine {

/// Writes lines of what becomes of scans, jobs, commits, held volumes and sessions, whoever was the
/// cause: a call, whose own line says who made it (rpc/transport/call_audit.h), or the server
/// itself: a time to live, a policy, its end. Never waits. Thread-safe.
class AuditRecorder final : public volume::VolumeObserver {
 public:
  /// `log`: null = there is no audit log.
  explicit AuditRecorder(security::AuditLog* log) : log_(log) {}
  bool on() const { return log_ != nullptr; }

  /// A row of the history, each time that something in it has changed; only a new state gets a
  /// line.
  void OnRow(const storage::HistoryRow& row);
  /// Volumes get lines from when they are held: those that a live scan overwrites before are
  /// counted with the scan.
  void OnVolumeChanged(const model::VolumeStatus& volume) override;
  /// `state`: "ENDED" (closed by a call, or expired), "REVIVED".
  void OnSession(const std::string& session, const char* state);

 private:
  using Key = std::pair<storage::HistoryKind, std::string>;

  security::AuditLog* const log_;
  Mutex mutex_;
  /// Of work that has no end yet, and of the last that ended: rows come again after the end, when
  /// its counts change.
  std::map<Key, std::string> states_ ABSL_GUARDED_BY(mutex_);
  std::deque<Key> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::engine
