#pragma once

// Private to this folder: the components of the engine. The members stand in the order of their
// construction; users of a component are destroyed before it.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "gpu/device/device.h"
#include "gpu/device/stream.h"
#include "server/base/worker_pool.h"
#include "server/buffer/buffer_store.h"
#include "server/derive/deriver.h"
#include "server/engine/auto_committer.h"
#include "server/engine/derived_volumes.h"
#include "server/engine/drain_state.h"
#include "server/engine/earlier_runs.h"
#include "server/engine/engine_config.h"
#include "server/engine/held_frames.h"
#include "server/engine/history_recorder.h"
#include "server/engine/operation_watches.h"
#include "server/engine/resume_book.h"
#include "server/engine/scan_registry.h"
#include "server/engine/volume_annotations.h"
#include "server/engine/volume_events.h"
#include "server/exports/export_feed.h"
#include "server/exports/export_store.h"
#include "server/exports/frame_feed.h"
#include "server/job/job_queue.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"
#include "server/memory/quota.h"
#include "server/mosaic/mosaics.h"
#include "server/operation/operation_table.h"
#include "server/publish/publisher.h"
#include "server/security/grant_book.h"
#include "server/session/client_sessions.h"
#include "server/session/lease.h"
#include "server/source/push_projections.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/direct/storage_reads.h"
#include "server/volume/committer.h"
#include "server/volume/mirrorer.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_projector.h"
#include "server/volume/volume_store.h"
#include "server/volume/volume_waiters.h"
#include "server/volume/volume_watchers.h"
#include "server/volume_import/file_deposits.h"

namespace octavo::engine {

/// The stores, queues and workers of one engine, connected. The VolumeStore tells its observers of
/// each change of a volume in this order:
///   1. ExportFeeds: processes that map volumes as they complete wait for nothing else;
///   2. VolumeEvents: subscribers of the scan's events;
///   3. VolumeWaiters: clients that wait for this volume;
///   4. VolumeWatchers: clients that watch all volumes;
///   5. DerivedVolumes: the volumes that the scan derives from it take longer than the rest;
///   6. AuditRecorder, 7. VolumeRecorder: the records, which no client waits for.
struct Components {
  Components(EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
             const std::vector<int64_t>& budgets, std::vector<Stream> streams,
             storage::CommitStore* store, job::JobObserver* job_observer);

  /// PermissionDenied (OUTSIDE_ROOTS) if the destination of a commit lies in a storage root that
  /// the principal may not name; where its roots are not all of them, InvalidArgument for one that
  /// no commit could have. Of the roots, errors name those of the principal.
  absl::Status CheckRoot(const security::Owner& who, const std::string& destination,
                         absl::string_view field) const;

  const EngineConfig config;
  const Clock* const clock;
  storage::CommitStore* const storage;
  const std::vector<std::unique_ptr<Device>> owned_devices;
  const std::vector<Stream> read_streams;  // by device, of low priority
  const memory::DeviceSet devices;
  const EarlierRuns earlier;
  AuditRecorder audit;
  HistoryRecorder history;  // before the committer, which tells it of its last commits
  DrainState drain;
  ResumeBook resumes;
  const std::unique_ptr<security::GrantBook> own_grants;  // where the configuration has no book
  security::GrantBook& grants;
  memory::QuotaBook quotas;  // before all that is charged
  /// Waits for work that the same call has begun, as many as no principal pays for with `quotas`:
  /// whoever has all its watches open can still begin work and be told of its end.
  memory::QuotaBook own_waits;
  memory::Ledger ledger;
  memory::SlotCache slot_cache;  // before the volumes, which return their slots to it
  session::ClientSessions sessions;
  session::LeaseTable leases;
  // Before all that works for an operation and finishes it, during destruction too.
  OperationWatches operation_watches;
  operation::OperationTable operations;
  volume::VolumeWaiters waiters;
  volume::VolumeWatchers volume_watchers;
  exports::ExportStore exports;
  exports::ExportFeeds feeds;
  exports::FrameFeeds frame_feeds;
  buffer::BufferStore buffers;
  mosaic::Mosaics mosaics;
  publish::Publisher publisher;
  VolumeEvents volume_events;
  DerivedVolumes derived_volumes;
  volume::VolumeStore volumes;
  // Before the spiller and the committer, because work that they finish during destruction looks up
  // its scan.
  ScanRegistry scans;
  VolumeAnnotations annotations;
  AutoCommitter auto_committer;
  volume::VolumeProjector projector;
  HeldFrames held_frames;
  volume::Spiller spiller;
  derive::Deriver deriver;
  base::WorkerPool workers;
  volume::Committer committer;
  std::unique_ptr<volume::Mirrorer> mirrorer;  // null: volumes are not mirrored
  volume_import::FileDeposits deposits;
  storage::StorageReads reads;                 // before the jobs, which read
  source::ProjectionMemory projection_memory;  // before the jobs, whose ports allocate from it
  job::JobQueue jobs;
};

}  // namespace octavo::engine
