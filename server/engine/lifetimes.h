#pragma once

#include <set>
#include <string>

#include "server/base/worker_pool.h"
#include "server/buffer/buffer_store.h"
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

/// What time and the ends of clients do: leases and sessions expire, scratch scans and jobs of
/// ended sessions end, volumes expire or meet their orphan policy, ended scans are forgotten, and
/// what other processes do not give back moves to other memory.
class Lifetimes {
 public:
  struct Context {
    const Clock* clock = nullptr;
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

  /// Does what is due now. One call at a time, some times a second.
  void Check();

 private:
  void EndWorkOf(const std::set<std::string>& sessions);
  void NotifyExpiring(const model::VolumeStatus& volume);
  /// Moves what is still wanted into other memory: a process keeps what it has beyond its time.
  void RelocateOverdue(const exports::ExportStore::Overdue& what);

  const Context context_;
};

}  // namespace octavo::engine
