#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/engine/buffer_commits.h"
#include "server/engine/clients.h"
#include "server/engine/devices.h"
#include "server/engine/engine_config.h"
#include "server/engine/exports.h"
#include "server/engine/grants.h"
#include "server/engine/housekeeping.h"
#include "server/engine/jobs.h"
#include "server/engine/lifetimes.h"
#include "server/engine/operations.h"
#include "server/engine/orphan_policy.h"
#include "server/engine/scans.h"
#include "server/engine/streams.h"
#include "server/engine/volumes.h"
#include "server/model/stats.h"
#include "server/storage/commit/commit_store.h"

namespace octavo::mosaic {
class Mosaics;
}

namespace octavo::engine {

struct Components;  // internal.h

/// The imaging engine: a part for each service, over the same stores, queues and workers
/// (internal.h). Calls are short (no device waits) and thread-safe; work happens on the engine's
/// own threads. Names are checked here: NotFound for unknown ones (with the object's fate if it is
/// known).
class Engine {
 public:
  /// Takes the devices. `store` must outlive the engine. FailedPrecondition if a device has less
  /// free memory than its budget.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
      storage::CommitStore* store);
  ~Engine();  // cancels all work, waits for the threads

  Scans& scans() { return scans_; }
  Volumes& volumes() { return volumes_; }
  Jobs& jobs() { return jobs_; }
  Operations& operations() { return operations_; }
  buffer::BufferStore& buffers();
  mosaic::Mosaics& mosaics();
  BufferCommits& buffer_commits() { return buffer_commits_; }
  Exports& exports() { return exports_; }
  Streams& streams() { return streams_; }
  Clients& clients() { return clients_; }
  Grants& grants() { return grants_; }
  Devices& devices() { return devices_; }
  memory::QuotaBook& quotas();
  const security::RootRights& root_rights() const;

  model::Stats Snapshot();
  const std::vector<std::string>& storage_roots() const;
  /// Contents of the quarantine of each storage root (server/storage/commit/quarantine.h).
  std::map<std::string, storage::QuarantineUse> Quarantines();

  /// Runs all periodic housekeeping tasks once, on the calling thread. For tests whose clock does
  /// not advance.
  void Housekeep() {
    beats_.RunNow();
    upkeep_.RunNow();
    records_.RunNow();
  }
  /// Refuses new scans from now on (Unavailable, DRAINING) and stops running scans after their
  /// current volume.
  void BeginDrain();
  bool draining() const;
  /// Cancels all unfinished scans, jobs (SERVER_STOPPED), operations and commits; `why` is the
  /// reason that scans and jobs report.
  void EndNow(const std::string& why);
  /// True when no scan, job or commit is running.
  bool Idle();

 private:
  Engine(EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
         const std::vector<int64_t>& budgets, std::vector<Stream> streams,
         storage::CommitStore* store);
  std::vector<Housekeeping::Task> Beats();
  std::vector<Housekeeping::Task> Upkeep();
  std::vector<Housekeeping::Task> Records();

  const std::unique_ptr<Components> components_;  // first: the rest uses it
  Devices devices_;
  Scans scans_;
  Volumes volumes_;
  Jobs jobs_;
  Operations operations_;
  BufferCommits buffer_commits_;
  Exports exports_;
  Streams streams_;
  Clients clients_;
  Grants grants_;
  OrphanPolicy orphans_;
  Lifetimes lifetimes_;
  // Last: their threads use the rest. There are several, because a disk may hang: tasks that must
  // continue then do not wait for tasks that use a disk, nor these for those of another disk.
  Housekeeping beats_, upkeep_, records_;
};

}  // namespace octavo::engine
