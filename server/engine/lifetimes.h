#pragma once

#include <set>
#include <string>

#include "server/base/worker_pool.h"
#include "server/buffer/buffer_store.h"
#include "server/engine/audit_recorder.h"
#include "server/engine/orphan_policy.h"
#include "server/engine/scan_registry.h"
#include "server/engine/volume_events.h"
#include "server/exports/export_feed.h"
#include "server/exports/export_store.h"
#include "server/job/job_queue.h"
#include "server/session/client_sessions.h"
#include "server/session/lease.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Enforces lifetimes: expires leases and sessions, ends scratch scans and jobs of ended sessions,
/// expires volumes or applies their orphan policy, forgets ended scans, and moves data out of
/// memory that other processes do not give back.
class Lifetimes {
 public:
  struct Context {
    const Clock* clock = nullptr;
    AuditRecorder* audit = nullptr;
    session::ClientSessions* sessions = nullptr;
    session::LeaseTable* leases = nullptr;
    ScanRegistry* scans = nullptr;
    job::JobQueue* jobs = nullptr;
    volume::VolumeStore* volumes = nullptr;
    volume::Spiller* spiller = nullptr;
    VolumeEvents* events = nullptr;
    OrphanPolicy* orphans = nullptr;
    exports::ExportStore* exports = nullptr;
    exports::ExportFeeds* feeds = nullptr;
    buffer::BufferStore* buffers = nullptr;
    base::WorkerPool* workers = nullptr;
  };
  explicit Lifetimes(Context context) : context_(context) {}

  /// Does everything that is due. Called several times a second, one call at a time.
  void Check();

 private:
  void EndWorkOf(const std::set<std::string>& sessions);
  void NotifyExpiring(const model::VolumeStatus& volume);
  /// Moves data that is still needed into other memory, because a process keeps the old memory past
  /// its deadline.
  void RelocateOverdue(const exports::ExportStore::Overdue& what);

  const Context context_;
};

}  // namespace octavo::engine
