#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/base/mutex.h"
#include "server/base/request_ids.h"
#include "server/base/worker_pool.h"
#include "server/buffer/buffer_store.h"
#include "server/engine/device_health.h"
#include "server/engine/engine.h"
#include "server/engine/job_kinds.h"
#include "server/engine/scan_watch.h"
#include "server/job/job_queue.h"
#include "server/memory/ledger.h"
#include "server/publish/publisher.h"
#include "server/scan/scan_observer.h"
#include "server/scan/scan_queue.h"
#include "server/scan/scan_session.h"
#include "server/source/push_projections.h"
#include "server/volume/committer.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"
#include "server/volume/volume_waiters.h"

// The one Engine. Its methods stand with those of their concern: engine_scans.cc,
// engine_volumes.cc, engine_jobs.cc, engine_clients.cc, engine_devices.cc, engine_stats.cc;
// engine.cc puts it together and takes it apart.
namespace octavo::engine {

/// Unavailable (DRAINING).
absl::Status Draining();

class EngineImpl final : public Engine, private scan::ScanObserver {
 public:
  EngineImpl(EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
             std::vector<int64_t> budgets, std::vector<Stream> read_streams,
             storage::CommitStore* store);
  ~EngineImpl() override;

  // -- scans
  absl::StatusOr<model::ScanStatus> SubmitScan(const model::ScanSpec& spec,
                                               model::AdmissionReport* report) override;
  absl::StatusOr<model::AdmissionReport> PlanScan(const model::ScanSpec& spec, std::string* plan,
                                                  std::vector<std::string>* warnings) override;
  absl::StatusOr<pattern::PatternWaveform> PlanWaveform(const model::ScanSpec& spec,
                                                        bool odd_volume) override;
  absl::StatusOr<model::ScanStatus> GetScan(const std::string& name) override;
  std::vector<model::ScanStatus> ListScans() override;
  absl::StatusOr<std::unique_ptr<base::Handle>> WatchScan(
      const std::string& name,
      std::function<void(const absl::StatusOr<model::ScanStatus>&)> callback) override;
  absl::StatusOr<model::ScanStatus> UpdateScan(const std::string& name,
                                               const model::Processing& processing) override;
  absl::StatusOr<model::ScanStatus> StopScan(const std::string& name) override;
  absl::StatusOr<model::ScanStatus> CancelScan(const std::string& name) override;
  absl::StatusOr<model::ScanEvent> MarkScan(const std::string& name,
                                            const std::string& marker) override;

  // -- sources
  absl::StatusOr<std::shared_ptr<source::PushPort>> OpenPush(const std::string& scan) override;
  absl::StatusOr<RingTicket> OpenRing(const std::string& scan,
                                      std::optional<uint32_t> uid) override;
  absl::StatusOr<std::vector<source::CameraInfo>> ListCameras() override {
    return source::ListCameras();
  }

  // -- volumes
  absl::StatusOr<model::VolumeStatus> GetVolume(const std::string& name) override;
  std::vector<model::VolumeStatus> ListVolumes(const volume::VolumeQuery& query) override;
  absl::StatusOr<std::shared_ptr<volume::VolumeReader>> ReadVolume(
      const std::string& name, const std::vector<int64_t>& start,
      const std::vector<int64_t>& count) override;
  absl::StatusOr<model::VolumeStatus> HoldVolume(const std::string& name, bool release,
                                                 const std::string& lease_token) override;
  void SpillVolume(const std::string& name, model::Tier tier,
                   std::function<void(absl::StatusOr<model::VolumeStatus>)> done,
                   const std::string& lease_token) override;
  void RestoreVolume(const std::string& name,
                     std::function<void(absl::StatusOr<model::VolumeStatus>)> done) override;
  absl::StatusOr<model::VolumeStatus> DiscardVolume(const std::string& name, bool detach_exports,
                                                    const std::string& lease_token) override;
  absl::Status DeriveVolume(const derive::DeriveSpec& spec,
                            std::function<void(absl::StatusOr<model::VolumeStatus>)> done) override;
  absl::Status WaitVolume(const std::string& name,
                          std::function<void(absl::StatusOr<model::VolumeStatus>)> done,
                          std::function<bool()> over) override;
  buffer::BufferStore& buffers() override { return *buffers_; }
  absl::StatusOr<std::shared_ptr<base::Handle>> CommitVolume(
      const std::string& name, const model::CommitOptions& options, const std::string& request_id,
      volume::CommitCallbacks callbacks, const std::string& lease_token) override;
  absl::Status CheckCommit(const model::CommitOptions& options) override {
    return committer_.Check(options);
  }

  // -- clients
  absl::StatusOr<session::ClientSessions::Opened> OpenSession(const std::string& client) override {
    return sessions_of_clients_.Open(client);
  }
  absl::StatusOr<session::SessionStatus> KeepAlive(const std::string& secret) override;
  absl::StatusOr<session::SessionStatus> CloseSession(const std::string& secret) override;
  std::vector<session::SessionStatus> ListSessions() override {
    return WithHoldings(sessions_of_clients_.List());
  }
  session::ClientSessions& sessions() override { return sessions_of_clients_; }
  session::LeaseTable& leases() override { return leases_; }
  uint64_t AcquireLease(const session::LeaseRequest& request, const model::Caller& caller,
                        std::function<void(absl::StatusOr<session::Lease>)> done) override;

  // -- jobs
  absl::StatusOr<job::JobStatus> SubmitJob(const model::JobSpec& spec,
                                           model::AdmissionReport* report) override;
  absl::StatusOr<model::AdmissionReport> PlanJob(const model::JobSpec& spec,
                                                 job::JobPlan* plan) override;
  absl::StatusOr<job::JobStatus> GetJob(const std::string& name) override {
    return jobs_.Get(name);
  }
  std::vector<job::JobStatus> ListJobs() override { return jobs_.List(); }
  absl::StatusOr<std::unique_ptr<base::Handle>> WatchJob(
      const std::string& name,
      std::function<void(const absl::StatusOr<job::JobStatus>&)> callback) override;
  absl::StatusOr<job::JobStatus> CancelJob(const std::string& name) override {
    return jobs_.Cancel(name);
  }
  absl::StatusOr<std::shared_ptr<source::ProjectionPort>> OpenProjectionPush(
      const std::string& job) override {
    return jobs_.ProjectionPortOf(job);
  }

  // -- products
  absl::StatusOr<std::shared_ptr<model::Subscription>> Subscribe(
      const model::SubscribeSpec& spec, std::function<void()> notify) override;

  // -- the whole
  std::vector<model::DeviceStatus> ListDevices() override;
  std::unique_ptr<base::Handle> WatchDevices(
      std::function<void(const std::vector<model::DeviceStatus>&)> callback) override;
  absl::Status Measure(MeasureSpec spec, const TellMeasured& tell) override;
  model::MemoryStatus GetMemory() override;
  void Housekeep() override;
  const std::vector<std::string>& storage_roots() const override { return storage_->roots(); }
  std::map<std::string, storage::QuarantineUse> Quarantines() override {
    return storage_->Quarantines();
  }
  model::Stats Snapshot() override;
  void CountCut(const std::string& reason) override { publisher_.CountCut(reason); }
  void BeginDrain() override;
  void EndNow(const std::string& why) override;
  bool draining() const override { return draining_; }
  bool Idle() override;

 private:
  static size_t At(int device) { return static_cast<size_t>(device); }

  // -- engine_jobs.cc
  job::JobEnvironment JobNeeds();
  absl::StatusOr<job::JobStatus> SubmitNewJob(const model::JobSpec& spec,
                                              model::AdmissionReport* report);

  // -- engine_scans.cc
  // -- what scans tell
  void OnScanChanged(const std::string& scan) override;
  void OnAcquisitionOver(const std::string& scan, const std::string& queue) override;
  void OnCommitWanted(const std::string& volume, const model::CommitOptions& options) override;

  model::ScanStatus StatusOf(scan::ScanSession& session);
  absl::StatusOr<std::shared_ptr<scan::ScanSession>> Find(const std::string& name);
  std::vector<std::shared_ptr<scan::ScanSession>> Sessions();
  absl::StatusOr<model::ScanStatus> SubmitNow(const model::ScanSpec& spec,
                                              model::AdmissionReport* report,
                                              base::RequestClaim* claim);
  absl::StatusOr<std::shared_ptr<scan::ScanSession>> Admit(const model::ScanSpec& spec,
                                                           model::AdmissionReport* report);
  memory::ChargeHolder HoldForScan();
  // What a spread scan needs on its further devices; `held` has it, too.
  absl::StatusOr<std::vector<scan::ScanDevice>> ReservePeers(const model::ResolvedScan& scan,
                                                             const std::string& name,
                                                             const std::vector<int>& chosen,
                                                             memory::ChargeHolder* held,
                                                             model::AdmissionReport* report);
  // A scan that wants a tier must not find out in its middle that there is none.
  absl::Status CheckOrphan(const model::JobSpec& spec);
  absl::Status CheckSpill(const model::Retention& retention);
  int64_t SpillFree(const model::ResolvedScan& scan);
  // Chains are checked before the scan starts, on what its volumes will be like.
  absl::Status CheckChains(const model::ResolvedScan& scan) const;
  // Ended scans stay listed, the oldest go when there are more, or they take more memory, than the
  // configuration allows; what they counted is kept.
  void ForgetOldScans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- engine_volumes.cc
  model::VolumeStatus WithLeases(model::VolumeStatus volume);
  storage::VolumeMeta Meta(const model::VolumeStatus& volume);
  // `asked`: leases are in the way. Whether it has begun; if not, it is logged.
  absl::Status AutoCommit(const std::string& volume, const model::CommitOptions& options,
                          const volume::ClientVerb* asked = nullptr);
  // The scan says that a volume of it is on no disk.
  void WarnOfCommit(const std::string& volume, const absl::Status& status);
  // What the scan wants made of each of its volumes: planned here, computed beside the scan.
  void MakeChains(const model::VolumeStatus& volume);
  void PublishVolumeEvent(const model::VolumeStatus& volume);
  void PublishEvent(const model::VolumeStatus& volume, model::ScanEvent what);
  void LoadFrame(const model::FramePtr& header,
                 std::function<void(absl::StatusOr<model::FramePtr>)> done);
  /// The bytes of a volume or B-scan frame.
  absl::StatusOr<model::Bytes> PayloadOf(const model::Frame& header);
  /// The held volumes that a scan or job made, oldest first; no raw spectra, nothing derived.
  std::vector<model::VolumeStatus> HeldOf(const std::string& name);

  // -- engine_clients.cc
  std::vector<session::SessionStatus> WithHoldings(std::vector<session::SessionStatus> sessions);
  void NotifyExpiring(const model::VolumeStatus& volume);
  // Into other memory, if it is still wanted: a process keeps what it has beyond its time.
  void RelocateOverdue(const exports::ExportStore::Overdue& what);
  // Those whose JobSpec.orphan says that they are scratch.
  void CancelJobsOf(const std::set<std::string>& sessions);
  absl::StatusOr<job::JobStatus> CancelJobOf(const job::JobStatus& job);
  // A held volume whose client is gone.
  void ApplyOrphanPolicy(const model::VolumeStatus& volume);
  absl::Status DoOrphanPolicy(const model::VolumeStatus& volume, const model::Retention& retention);

  // -- engine_devices.cc
  // The devices that a scan would run on now, home first.
  absl::StatusOr<std::vector<int>> DevicesFor(model::ResolvedScan& scan);
  // Devices that were lost since the last look: their scans end, whoever watches is told.
  void PollDeviceHealth();

  // -- engine_stats.cc
  static void AddSession(scan::ScanSession& session, const model::ScanStatus& scan,
                         model::Stats* stats);
  static void AddStats(const model::Stats& from, model::Stats* to);

  const EngineConfig config_;
  const Clock* const clock_;
  storage::CommitStore* const storage_;
  // Declared so that what uses a thing is destroyed before it.
  const std::vector<std::unique_ptr<Device>> devices_;
  const std::vector<Stream> read_streams_;
  std::vector<std::shared_ptr<memory::FramePool>> frames_;
  std::atomic<bool> ready_{false};  // all members are there
  DeviceHealthWatch device_watch_;
  memory::Ledger ledger_;
  memory::SlotCache slot_cache_;  // before the volumes: their slots go there
  session::LeaseTable leases_;
  session::ClientSessions sessions_of_clients_;
  volume::VolumeWaiters volume_waits_;
  Mutex chained_mutex_;
  std::set<std::string> chained_
      ABSL_GUARDED_BY(chained_mutex_);  // volumes whose chains are made or under way
  std::unique_ptr<buffer::BufferStore> buffers_;
  publish::Publisher publisher_;
  volume::VolumeStore volumes_;
  // Before the spiller and the committer: what these finish while they are destroyed looks for its
  // scan.
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<scan::ScanSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::map<std::string, int64_t> rejected_ ABSL_GUARDED_BY(mutex_);
  model::Stats past_ ABSL_GUARDED_BY(mutex_);  // of scans no longer listed
  std::unique_ptr<volume::Spiller> spiller_;   // set in the constructor
  derive::Deriver deriver_;
  base::WorkerPool workers_;
  volume::Committer committer_;
  source::ProjectionMemory projection_memory_;  // before the jobs, whose ports take of it
  job::JobQueue jobs_;
  JobWatches job_watches_;
  ScanWatches watches_;

  std::atomic<bool> draining_{false}, measuring_{false};
  std::atomic<int64_t> scans_admitted_{0};
  Mutex job_submit_mutex_;
  std::set<std::string> jobs_submitted_
      ABSL_GUARDED_BY(job_submit_mutex_);  // request ids of jobs that are being made
  Mutex submit_mutex_;
  base::RequestIds requests_ ABSL_GUARDED_BY(submit_mutex_){"scan"};
  scan::ScanQueues queues_;
  Mutex housekeeping_mutex_;
  Mutex keeper_mutex_;
  CondVar keeper_cv_;
  bool keeper_end_ ABSL_GUARDED_BY(keeper_mutex_) = false;
  std::jthread keeper_;  // last: it uses the rest
};

}  // namespace octavo::engine
