#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/reason.h"
#include "gpu/device/device.h"
#include "server/memory/frame_pool.h"
#include "server/memory/ledger.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"
#include "server/processing/chain_state.h"
#include "server/publish/publisher.h"
#include "server/scan/acquirer.h"
#include "server/scan/block_pipeline.h"
#include "server/scan/completion_queue.h"
#include "server/scan/device_lanes.h"
#include "server/scan/processing_updates.h"
#include "server/scan/product_maker.h"
#include "server/scan/record_frames.h"
#include "server/scan/record_tap.h"
#include "server/scan/retention_policy.h"
#include "server/scan/scan_events.h"
#include "server/scan/scan_lifecycle.h"
#include "server/scan/scan_memory.h"
#include "server/scan/scan_observer.h"
#include "server/scan/scan_progress.h"
#include "server/scan/scan_threads.h"
#include "server/scan/volume_builder.h"
#include "server/scan/volume_frames.h"
#include "server/scan/volume_sealer.h"
#include "server/source/source.h"
#include "server/volume/volume_store.h"

namespace octavo::scan {

/// The components that a session uses. All must outlive the session.
struct SessionContext {
  Device* device = nullptr;  // home
  int device_index = 0;
  std::vector<ScanDevice> peers;  // further devices of a scan that spreads over several
  memory::Ledger* ledger = nullptr;
  volume::VolumeStore* store = nullptr;
  publish::Publisher* publisher = nullptr;
  std::shared_ptr<memory::FramePool> frames;
  const Clock* clock = nullptr;
  std::string server_id;
  memory::SlotCache* slot_cache = nullptr;  // null = the scan frees its slots
  std::shared_ptr<SlotRelief> relief;       // never null
  ScanObserver* observer = nullptr;         // never null
};

/// One scan from its source to held volumes. Conducts the objects that do the work;
/// each has its part and its thread:
///   acquisition thread: Acquirer: source → ring of blocks;
///   compute thread: BlockPipeline: ring → DeviceLanes (upload, chain) → VolumeBuilder (borders of
///       volumes, by RetentionPolicy) → ProductMaker → CompletionQueue; enqueues only;
///   retire thread: VolumeSealer: follows the device in order, recycles blocks, seals, publishes;
///   volume-frame thread: VolumeFrames: copies whole volumes to the host for subscribers;
///   record thread: RecordFrames: makes spectra and A-scans of the records that RecordTap copied on
///       the compute thread.
/// State, counts, events and updates have objects of their own, which all threads use.
class ScanSession {
 public:
  using Timings = ScanTimings;

  /// Allocates all memory (charges: as reserved for Needs). The scan is QUEUED until Start. On
  /// failure, Create releases the charges.
  static absl::StatusOr<std::unique_ptr<ScanSession>> Create(
      std::string name, model::ResolvedScan scan, std::unique_ptr<source::Source> source,
      const std::vector<memory::Ledger::ChargeId>& charges, SessionContext context);
  ~ScanSession();
  /// Begins to acquire. Idempotent.
  void Start();
  /// The place that the scan takes of its owner's quota ends before its final state is seen. Call
  /// before others know of the scan.
  void KeepUntilEnd(memory::QuotaCharge place) { place_ = std::move(place); }

  const std::string& name() const { return name_; }
  model::ScanStatus Status();
  model::ScanState state() { return life_.state(); }
  /// The session of the client that owns the scan; empty if no client does.
  const std::string& client_session() const { return client_session_; }
  const security::Owner& owner() const { return owner_; }
  /// True once the final state has been published and the threads have no work left.
  bool finished() const { return life_.finished(); }
  /// Waits until finished(). Call only after the scan was ordered to end, and not from its own
  /// threads.
  void WaitUntilFinished() { life_.WaitUntilFinished(); }
  /// FailedPrecondition (SCAN_STATE) unless QUEUED or RUNNING.
  absl::Status CanUpdate();
  /// Replaces the processing at the next volume boundary.
  absl::Status Update(const model::ResolvedScan& updated);
  model::ResolvedScan Resolved() { return updates_.Latest(); }
  /// Approximate host memory of the scan while it is listed: the client's request and the events.
  int64_t ListedBytes();
  void Stop(Reason reason_code,
            const std::string& reason);  // after the current volume; QUEUED: at once
  void Cancel(Reason reason_code = Reason::kCancelled,
              const std::string& reason = "cancelled by a client");  // at once
  /// Memory for the scan's chains; null: no chains, or the scan is over.
  std::shared_ptr<processing::ChainState> chain_memory() { return memory_.chains(); }
  /// Whether the scan runs on devices/<device>, as home or as a peer.
  bool Uses(int device) const { return lanes_.Uses(device); }
  /// A device of the scan is lost: the scan ends at once, FAILED with DEVICE_LOST.
  void DeviceLost();
  /// Marks the record that is being processed now. FailedPrecondition unless RUNNING or DRAINING.
  absl::StatusOr<model::ScanEvent> Mark(const std::string& marker);
  /// The port for clients that push records. FailedPrecondition if the scan has another source.
  absl::StatusOr<std::shared_ptr<source::PushPort>> Push();
  /// The port for a process on this host that feeds the scan. FailedPrecondition if the scan has
  /// another source or accepts no producer now.
  absl::StatusOr<std::shared_ptr<source::RingPort>> Ring();
  // as in ScanEvents
  model::ScanEvent PublishEvent(model::ScanEvent event) {
    return events_.Publish(std::move(event));
  }
  void RecordEvent(model::ScanEvent event) { events_.Record(std::move(event)); }
  void Warn(const std::string& text) { events_.Warn(text); }
  void WarnOfCommit(const std::string& text) { events_.WarnOfCommit(text); }
  std::vector<std::string> WarningsOfData() { return events_.WarningsOfData(); }

  Timings TimingsNow() { return progress_.Timings(); }
  int64_t missing_ascans() const { return progress_.missing_ascans; }
  int64_t blocks_dropped() const { return progress_.blocks_dropped; }
  int64_t duplicate_records() const { return progress_.duplicate_records; }
  int64_t out_of_range_records() const { return progress_.out_of_range_records; }

 private:
  ScanSession(std::string name, model::ResolvedScan scan, std::unique_ptr<source::Source> source,
              const std::vector<memory::Ledger::ChargeId>& charges, SessionContext context);
  std::vector<ScanDevice> Devices(const std::vector<memory::Ledger::ChargeId>& charges) const;
  void MakeThreads();
  absl::Status Allocate();
  void Begin();
  void StopAcquiring();
  void Finish();
  void LogEnd(model::ScanState end);
  void FreeMemory();
  void WarnOfMissing();
  void LetGo();

  const std::string name_, client_session_;
  const security::Owner owner_;
  const SessionContext context_;
  memory::QuotaCharge place_;
  // The scan as it applies to the volume being acquired. The builder replaces it between two
  // volumes; it is released at the end. Threads other than the compute thread read it only before
  // the scan starts.
  model::ResolvedScan scan_;
  ScanProgress progress_;
  ScanEvents events_;
  ScanLifecycle life_;
  ScanMemory memory_;
  ProcessingUpdates updates_;
  DeviceLanes lanes_;
  Acquirer acquirer_;
  CompletionQueue completions_;
  VolumeFrames frames_;
  RetentionPolicy retention_;
  ProductMaker products_;
  RecordFrames record_frames_;
  RecordTap tap_;
  VolumeBuilder builder_;
  BlockPipeline pipeline_;
  VolumeSealer sealer_;
  ScanThreads threads_;  // last: they use the rest
};

}  // namespace octavo::scan
