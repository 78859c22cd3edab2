#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/project.h"
#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/base/reason.h"
#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"
#include "server/base/rate_meter.h"
#include "server/memory/frame_pool.h"
#include "server/memory/ledger.h"
#include "server/memory/stripe_layout.h"
#include "server/model/resolved_scan.h"
#include "server/processing/chain_state.h"
#include "server/processing/first_records.h"
#include "server/processing/raw_records.h"
#include "server/publish/publisher.h"
#include "server/scan/ascan_coverage.h"
#include "server/scan/block_ring.h"
#include "server/source/record_groups.h"
#include "server/source/source.h"
#include "server/volume/volume_store.h"

namespace octavo::scan {

/// A further device of a scan that is spread, and what the scan is charged there.
struct SessionPeer {
  Device* device = nullptr;
  int index = 0;
  std::vector<memory::Ledger::ChargeId>
      charges;  // as reserved for PeerNeeds; of a striped scan first those of the volumes' parts
};

/// What a session needs from the engine around it. All must outlive the session.
struct SessionContext {
  Device* device = nullptr;
  int device_index = 0;
  std::vector<SessionPeer> peers;
  memory::Ledger* ledger = nullptr;
  volume::VolumeStore* store = nullptr;
  publish::Publisher* publisher = nullptr;
  std::shared_ptr<memory::FramePool> frames;
  const Clock* clock = nullptr;
  std::string server_id;
  std::function<void(const std::string& volume, const model::CommitOptions&)> auto_commit;
  std::function<bool(const std::string& scan)>
      commits_pending;                      // whether storage will free slots of the scan
  memory::SlotCache* slot_cache = nullptr;  // null = slots are freed with the scan
  std::function<bool(const std::string& scan, model::Tier)> spill =
      [](const std::string&, model::Tier) { return false; };  // as Spiller::Request
  std::function<int64_t(const std::string& scan)> spill_failures = [](const std::string&) {
    return int64_t{0};
  };
  std::function<void()> changed;  // state changed: watchers want to know
  std::function<void()>
      acquired;  // no more records are taken: the next scan of the queue may begin
};

/// One scan from its source to held volumes: THE main path.
///   acquisition thread: source → pinned ring;  compute thread: ring → upload → chain → products,
///       enqueue only;
///   retire thread: waits for the device in order, recycles blocks, seals volumes, publishes.
///   volume-frame thread: copies whole volumes to host memory for subscribers, beside the others.
class ScanSession {
 public:
  /// What a scan needs of device memory, in the order that Create takes its charges.
  static std::vector<model::AdmissionReport::Item> Needs(const model::ResolvedScan& scan,
                                                         Device& device);
  /// The same of a device that only takes its share of the B-scans.
  static std::vector<model::AdmissionReport::Item> PeerNeeds(const model::ResolvedScan& scan,
                                                             Device& device);
  static int64_t VolumeSlots(const model::ResolvedScan& scan);
  static memory::SlotLayout LayoutOf(const model::ResolvedScan& scan, int device);
  static int64_t PinnedBytes(const model::ResolvedScan& scan);
  /// Where the B-scans of a striped scan's volumes go; needs scan.stripe_devices.
  static memory::StripeRule StripesOf(const model::ResolvedScan& scan);
  static int64_t StripeBytes(
      const model::ResolvedScan& scan);  // of a volume on each further device

  /// Allocates everything (charges: as reserved for Needs); the scan is QUEUED until Start. On
  /// failure the charges are released.
  static absl::StatusOr<std::unique_ptr<ScanSession>> Create(
      std::string name, model::ResolvedScan scan, std::unique_ptr<source::Source> source,
      const std::vector<memory::Ledger::ChargeId>& charges, SessionContext context);
  ~ScanSession();
  /// Begins to acquire. Idempotent.
  void Start();

  const std::string& name() const { return name_; }
  model::ScanStatus Status();
  model::ScanState state();
  /// Of the client that it belongs to; empty if to none.
  const std::string& client_session() const { return client_session_; }
  /// True once the final state is told and the threads have nothing left to do.
  bool finished() const { return ended_.load(); }
  /// Waits for that. Of a scan that was told to end, and not from its own threads.
  void WaitUntilFinished() { ended_.wait(false); }
  /// FailedPrecondition (SCAN_STATE) unless QUEUED or RUNNING.
  absl::Status CanUpdate();
  /// Replaces the processing at the next volume boundary.
  absl::Status Update(const model::ResolvedScan& updated);
  model::ResolvedScan Resolved();
  /// Host memory that the scan takes while it is listed, about: what the client asked for, and
  /// events.
  int64_t ListedBytes();
  void Stop(Reason reason_code,
            const std::string& reason);  // after the current volume; QUEUED: at once
  void Cancel(Reason reason_code = Reason::kCancelled,
              const std::string& reason = "cancelled by a client");  // at once
  /// What its chains may use; null: no chains, or the scan is over.
  std::shared_ptr<processing::ChainState> chain_memory();
  /// Whether the scan runs on devices/<device>, as home or as a peer.
  bool Uses(int device) const;
  /// A device of the scan cannot be used any more: the scan ends at once, FAILED with DEVICE_LOST.
  void DeviceLost();
  /// Marks the record that is being processed now. FailedPrecondition unless RUNNING or DRAINING.
  absl::StatusOr<model::ScanEvent> Mark(const std::string& marker);
  /// Where clients push records. FailedPrecondition if the scan has another source.
  absl::StatusOr<std::shared_ptr<source::PushPort>> Push();
  /// Where a process on this host feeds the scan. FailedPrecondition if the scan has another source
  /// or takes no producer now.
  absl::StatusOr<std::shared_ptr<source::RingPort>> Ring();
  /// Adds to the events that Status tells, and to the scan's EVENT topic.
  model::ScanEvent PublishEvent(model::ScanEvent event);
  /// What might be a mistake: a sentence that clients are shown (Scan.warnings) and that is logged.
  /// A text counts once; of too many the later ones are only logged.
  void Warn(const std::string& text);
  /// The same of a volume that is on no disk: no file of the scan repeats it.
  void WarnOfCommit(const std::string& text);
  /// What files say of the data.
  std::vector<std::string> WarningsOfData();
  /// As PublishEvent, for what somebody else tells the EVENT topic.
  void RecordEvent(model::ScanEvent event);

  struct Timings {
    std::map<std::string, model::Histogram> stages;
    model::Histogram volume_latency;
  };
  Timings TimingsNow();
  int64_t missing_ascans() const { return missing_ascans_.load(); }
  int64_t blocks_dropped() const { return blocks_dropped_.load(); }
  int64_t duplicate_records() const { return duplicate_records_.load(); }
  int64_t out_of_range_records() const { return out_of_range_records_.load(); }

 private:
  struct ActiveVolume;
  struct PendingFrame;
  struct Completion;
  struct VolumeFrameJob;
  struct Peer;
  struct Lane;

  ScanSession(std::string name, model::ResolvedScan scan, std::unique_ptr<source::Source> source,
              SessionContext context);
  absl::Status Allocate(const std::vector<memory::Ledger::ChargeId>& charges);
  absl::Status AllocateSlot(Device& device, memory::VolumeSlot* slot) const;
  absl::Status AllocatePlacement(Device& device, StreamRef stream, int64_t lane,
                                 DeviceBuffer* tables) const;
  absl::Status AllocateStripe(Device& device, memory::VolumeStripe* stripe) const;
  absl::Status AllocatePeers();
  absl::Status AllocateAngiogram();
  absl::Status AllocateRing();
  absl::Status AllocateRetiring(int64_t slots);
  using Slots = std::vector<std::unique_ptr<memory::VolumeSlot>>;
  absl::Status AllocateAll(const std::vector<memory::Ledger::ChargeId>& charges, Slots* slots,
                           Slots* raw_slots);
  absl::Status AllocateSlots(const std::vector<memory::Ledger::ChargeId>& charges,
                             memory::SlotCache* cache, Slots* slots);
  absl::Status AllocateRawSlots(const std::vector<memory::Ledger::ChargeId>& charges, Slots* slots);
  enum class Gate : uint8_t { kClosed, kOpen, kNever };
  void MakeThreads();
  void OpenGate(Gate gate);
  void Begin();
  absl::StatusOr<std::shared_ptr<SpectralProcessor>> ProcessorFor(const model::ResolvedScan& scan,
                                                                  Device& device, int index);

  // acquisition thread
  void Acquire(std::stop_token stop);
  void AcquireLent(std::stop_token stop);
  double RingOccupancy();
  // compute thread
  void Compute();
  absl::Status ProcessUpload(const BlockRing::Part& part);
  absl::Status StampUpload(const source::SourceBlock& block);
  absl::Status ProcessBlock(const uint8_t* raw, const source::SourceBlock& block);
  int64_t TakeRecords(const source::SourceBlock& block, int64_t done);
  int64_t EndOf(const ActiveVolume& volume) const;
  absl::Status ProcessSegment(const uint8_t* raw, int64_t index, int64_t first_record,
                              int64_t records, const source::SourceBlock& block);
  RecordPlacement PlacementOf(const DeviceBuffer (&tables)[2], int64_t index,
                              int64_t first_record) const;
  bool rolling() const { return scan_.chain.background == math::Background::kRolling; }
  absl::Status BeginVolume(int64_t index, const source::SourceBlock& block);
  model::VolumeStatus DescribeVolume(const memory::VolumeSlot& slot) const;
  absl::Status ClearProjections(const memory::VolumeSlot& slot);
  absl::Status EndVolume(const source::SourceBlock& block);
  absl::Status FinishVolume(const std::shared_ptr<ActiveVolume>& volume,
                            const source::SourceBlock& block);
  void FailVolume(const ActiveVolume& volume);
  absl::Status EnqueueProducts(const ActiveVolume& volume, bool complete, Completion* item);
  /// Products of complete volumes have a stream of their own, beside the next kernels; previews go
  /// with the kernels that they interrupt.
  StreamRef ProductStream(bool complete) const {
    return complete ? products_.ref() : compute_.ref();
  }
  absl::Status EnqueueAngiogram(const ActiveVolume& volume, Completion* item);
  absl::Status EnqueuePreview(const source::SourceBlock& block);
  absl::Status EnqueueFrame(const ActiveVolume& volume, const publish::TopicKey& key,
                            const void* device_data, DType dtype, bool complete, Completion* item);
  std::shared_ptr<memory::VolumeSlot> TakeSlot(memory::SlotPool& pool);
  void AddVolume(model::VolumeStatus status, const source::SourceBlock& block,
                 const std::shared_ptr<memory::VolumeSlot>& slot, model::VolumeStatus* out);
  void End();
  absl::Status TakeUpdate(int64_t volume);
  void TellMarkers(const source::SourceBlock& block);
  model::ScanEvent RecordEventLocked(model::ScanEvent event, bool publish)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(event_mutex_);
  void PublishEventFrame(const model::ScanEvent& event);
  model::ScanStatus StatusWithoutEvents();
  model::SourceCounts SourceCountsNow();
  void LetGo();
  absl::Status PushRetire(Completion item);
  absl::Status CopyNonFinite(StreamRef stream, size_t event);
  void TellNonFinite(size_t event);
  absl::Status EnqueueSeal(StreamRef stream, const ActiveVolume& volume, size_t event);
  bool VolumesRetiring();
  /// How many products that subscribers ask for may be made of the volume that is complete now.
  size_t ProductAllowance();
  /// Whether records will be lost soon.
  bool RingFills();
  // compute thread, of a scan that is spread
  struct Share {  // records of the block now that go to one device
    size_t lane;
    int64_t offset, count;  // within the block
    int64_t raw_offset;     // within the lane's raw buffer
    bool borrowed;          // of another device's B-scans, for the background of its own
  };
  struct BscanPlace {
    int64_t row;  // of the stored volume
    int64_t end;  // one past its records, what is flown back behind it included
  };
  BscanPlace PlaceAt(int64_t volume, int64_t record) const;
  Lane LaneAt(size_t lane, size_t raw_index);
  absl::Status UploadShares(size_t raw_index, const uint8_t* from,
                            const source::SourceBlock& block);
  void AddShare(size_t lane, int64_t offset, int64_t count, bool borrowed);
  absl::Status ProcessShares(int64_t index, int64_t first_record, int64_t records, int64_t active,
                             const source::SourceBlock& block);
  absl::Status ProcessShare(const Share& share, int64_t index, int64_t first_record, int64_t offset,
                            int64_t records, int64_t active);
  void ShareWindows();
  size_t LaneOfRow(int64_t row) const {
    return static_cast<size_t>(row / spread_rows_) % lane_records_.size();
  }
  absl::Status FinishShares();
  void NoteRows(Peer& peer, const SpectralProcessor& processor, int64_t volume, int64_t first,
                int64_t last);
  absl::Status SendRows(Peer& peer);
  // -- of a scan whose volumes are striped
  bool striped() const { return scan_.stripe_devices > 1; }
  Peer* LanePeer(size_t lane);
  StreamRef LaneStream(size_t lane);
  SpectralTarget LaneTarget(const memory::VolumeSlot& slot, size_t lane);
  absl::Status SendProjections(Peer& peer, size_t lane);
  absl::Status FillMissing(const ActiveVolume& volume);
  absl::Status DigestStripes(StreamRef stream, const ActiveVolume& volume, size_t event);
  absl::Status ExtractBscan(const memory::VolumeSlot& slot, int64_t y);
  absl::Status BeginVolumeOnPeers();
  absl::Status EndVolumeOnPeers(const std::shared_ptr<ActiveVolume>& volume);
  absl::Status JoinPeers();  // the home stream goes on when the peers are where they are now
  void SynchronizePeers();
  absl::Status PeersStatus();
  /// The scan ends at once: DEVICE_LOST if one of its devices is, else DEVICE_ERROR.
  void FailForDevice(const absl::Status& status);
  // retire thread
  void FollowCompletions();
  void SealVolume(Completion& item);
  void CountClipped(const model::VolumeStatus& volume);
  model::StageTimes StagesOf(const Completion& item, int64_t seen_ns);
  void DisposeOf(const ActiveVolume& volume);
  void Finish();
  // volume-frame thread
  void CopyVolumes(std::stop_token stop);

  void SetState(model::ScanState state);
  /// The first reason to end wins.
  bool EndWith(model::ScanState state, Reason code, const std::string& reason);

  const std::string name_, client_session_;
  const SessionContext context_;
  // Of the scan's own threads; let go of at the end, with its files, cameras and tables. Others ask
  // SourceCountsNow and the ports.
  std::unique_ptr<source::Source> source_;
  const std::shared_ptr<source::PushPort> push_;  // the source's, if it has one
  const std::shared_ptr<source::RingPort> ring_port_;
  Mutex source_mutex_;
  bool source_gone_ ABSL_GUARDED_BY(source_mutex_) = false;
  model::SourceCounts last_counts_ ABSL_GUARDED_BY(source_mutex_);  // of a source that is gone
  Device& device_;

  // Fixed after Allocate; used by the compute thread.
  bool allocated_ = false;
  int64_t record_bytes_ = 0, block_records_ = 0,
          upload_records_ =
              0;  // of the records that are placed: means of record_average_ of the source's
  int64_t record_average_ = 1;
  int64_t volume_records_ = 0;
  int64_t wanted_records_ = 0;  // of a counted scan; 0 = until stopped
  model::Overrun overrun_ = model::Overrun::kDefault;
  std::vector<PinnedBuffer> ring_memory_;
  std::unique_ptr<BlockRing> ring_;
  source::ZeroCopySource* lender_ = nullptr;  // the source's, if it lends its memory to the uploads
  static constexpr int kRawBuffers = 3;
  DeviceBuffer raw_[kRawBuffers];
  DeviceBuffer scratch_;           // one plane
  size_t product_turn_ = 0;        // which subscribed product comes first
  size_t product_allowance_ = 32;  // of a volume; doubled before the first
  Stream upload_, compute_, products_, copy_;
  Event volume_ready_;  // what products are made of is there
  Event uploaded_[kRawBuffers], raw_free_[kRawBuffers];
  DeviceBuffer repeat_rows_,
      angiogram_;              // [bscans, repeats] and f32 [bscans, x], with products.angiography
  DeviceBuffer placement_[2];  // of even and odd volumes; empty: the raster rule
  std::vector<BscanSpan> spans_[2];  // their B-scans in the order of the scan
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Peer> home_;         // of a striped scan
  std::vector<int64_t> span_rows_[2];  // the stored row of each of spans_; if spread
  int64_t spread_rows_ = 1;            // neighbouring rows that one device takes
  Event begun_;                        // the home device has prepared the volume
  std::shared_ptr<memory::SlotPool> slots_;
  std::shared_ptr<memory::SlotPool> raw_slots_;        // with retention.hold_raw
  std::unique_ptr<processing::RawRecorder> recorder_;  // the same
  PinnedBuffer digests_;  // digest_words_ u64 per event: kSealWords for each device, and the digest
                          // of the raw records
  size_t digest_words_ = 0;
  PinnedBuffer
      non_finite_;  // u64 [event, device]: records with a sample that is not finite; of F32
  // i64 [3][stamp_slots_], by the device's clock: a block may begin; a volume is processed; its
  // products are on the host. One slot more than there are events: what is in flight keeps its own.
  PinnedBuffer stamps_;
  int64_t stamp_slots_ = 0;
  std::vector<memory::Ledger::ChargeId> charges_;  // less those of the slots

  // Compute thread only.
  std::shared_ptr<SpectralProcessor> processor_;
  model::ResolvedScan scan_;  // of the volume being acquired
  std::shared_ptr<const model::ResolvedScan>
      origin_;  // a copy of scan_ for the volumes made with it
  std::shared_ptr<ActiveVolume> active_;
  int64_t blocks_ = 0, last_preview_ns_ = 0, next_volume_ = 0;
  int64_t awaited_record_ = 0;          // records before this one have had their place
  std::vector<Share> shares_;           // shares of the current block
  std::vector<int64_t> lane_records_;   // the records of each lane in it
  std::vector<Event> summed_, pulled_;  // of each lane: its sums are there; it has those of the
                                        // others. With windows longer than a group
  size_t raw_index_now_ = 0;
  int64_t taken_now_ns_ = 0;               // when it was taken from the ring
  const int64_t* uploaded_now_ = nullptr;  // its stamp, if a volume may end with it
  int64_t volumes_stamped_ = 0;
  std::unique_ptr<processing::FirstRecords> first_records_;  // until the first volume ends
  bool stop_reached_ = false;                                // no further volume will begin
  std::vector<std::shared_ptr<SpectralProcessor>>
      replaced_;  // live until the device has passed their last use

  Mutex update_mutex_;
  model::ResolvedScan latest_ ABSL_GUARDED_BY(update_mutex_);
  std::shared_ptr<SpectralProcessor> next_processor_
      ABSL_GUARDED_BY(update_mutex_);  // its charges end with it
  std::vector<std::shared_ptr<SpectralProcessor>> next_peer_processors_
      ABSL_GUARDED_BY(update_mutex_);
  std::shared_ptr<processing::ChainState> chain_memory_ ABSL_GUARDED_BY(update_mutex_);

  Mutex retire_mutex_;
  CondVar retire_cv_;
  std::vector<Completion> retiring_ ABSL_GUARDED_BY(retire_mutex_);  // a circle, one for each event
  size_t first_retiring_ ABSL_GUARDED_BY(retire_mutex_) = 0, retiring_count_
                                                             ABSL_GUARDED_BY(retire_mutex_) = 0;
  std::vector<Event> events_;
  std::vector<int> free_events_ ABSL_GUARDED_BY(retire_mutex_);
  int volumes_retiring_ ABSL_GUARDED_BY(retire_mutex_) = 0;
  bool compute_done_ ABSL_GUARDED_BY(retire_mutex_) = false;
  ClockReading device_clock_;  // retire thread only, once it runs
  std::shared_ptr<const model::ResolvedScan>
      clipping_told_;  // the same: the processing of which it was told that it clips

  Mutex copy_mutex_;
  CondVar copy_cv_;
  std::deque<VolumeFrameJob> copies_ ABSL_GUARDED_BY(copy_mutex_);
  bool copies_end_ ABSL_GUARDED_BY(copy_mutex_) = false;

  Mutex status_mutex_;
  model::ScanStatus status_ ABSL_GUARDED_BY(status_mutex_);
  std::set<std::string> commit_warnings_
      ABSL_GUARDED_BY(status_mutex_);  // those of its warnings that are no matter of the data
  Timings timings_ ABSL_GUARDED_BY(status_mutex_);
  base::RateMeter records_rate_ ABSL_GUARDED_BY(status_mutex_), volumes_rate_
      ABSL_GUARDED_BY(status_mutex_);
  model::ScanState end_state_ ABSL_GUARDED_BY(status_mutex_) = model::ScanState::kDone;

  static constexpr size_t kEventsKept = 64, kWarningsKept = 64;
  Mutex event_mutex_;  // held while an event is published, so that both orders are the same
  std::deque<model::ScanEvent> recent_events_ ABSL_GUARDED_BY(event_mutex_);
  uint64_t event_count_ ABSL_GUARDED_BY(event_mutex_) = 0;

  std::stop_source abort_;  // cancel or failure: everything ends at once
  std::atomic<bool> started_{false}, stop_at_volume_{false}, finished_{false}, ended_{false};
  std::atomic<bool> all_acquired_{false};  // the source has come to the end of a counted scan
  std::atomic<int64_t> next_record_{0};    // the first record that was not processed yet
  std::atomic<int64_t> missing_ascans_{0}, blocks_dropped_{0}, duplicate_records_{0},
      out_of_range_records_{0};
  std::atomic<Gate> gate_{Gate::kClosed};  // the threads wait for it
  std::jthread acquire_thread_, compute_thread_, retire_thread_, copy_thread_;
};

}  // namespace octavo::scan
