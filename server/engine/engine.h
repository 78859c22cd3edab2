#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/device/device.h"
#include "server/base/callback_handle.h"
#include "server/derive/deriver.h"
#include "server/engine/device_benchmark.h"
#include "server/job/job.h"
#include "server/model/buffer_types.h"
#include "server/model/frame.h"
#include "server/model/stats.h"
#include "server/model/status_types.h"
#include "server/model/subscription.h"
#include "server/pattern/plan.h"
#include "server/session/client_sessions.h"
#include "server/session/lease.h"
#include "server/source/camera.h"
#include "server/source/source.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/spill/spill_folder.h"
#include "server/volume/commit_callbacks.h"
#include "server/volume/volume_reader.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {
class BufferStore;
}  // namespace octavo::buffer

namespace octavo::handoff {
class FdSocket;  // server/handoff/fd_socket.h
}

namespace octavo::engine {

struct EngineConfig {
  double memory_fraction =
      0.8;                   // of a device's free memory at start that volumes and scans may use
  int64_t memory_bytes = 0;  // budget per device; overrides the fraction if > 0
  int64_t frame_pool_bytes = 512 << 20;  // page-locked host memory per device for frames (at most
                                         // three quarters of it), reads and commits
  int commit_threads = 2;                // commits at once
  std::vector<std::string> replay_roots;
  std::vector<std::string> camera_interfaces = {
      "GigEVision", "USB3Vision"};  // where cameras are looked for; also "Fake"
  int64_t buffer_quota_bytes = 0;   // of device memory for the buffers of one client; 0 = no limit
  std::string server_id;            // [a-z0-9]{8}: ids start with it
  std::string software;             // "octavo 0.1.0", for committed files
  const Clock* clock = nullptr;     // null = system clock
  int64_t slot_cache_bytes = int64_t{1}
                             << 30;  // memory of ended scans kept for the next ones, per device
  int64_t projection_bytes =
      0;  // host memory for projections that clients push; 0 = half of the machine's
  int64_t spill_host_bytes = 0;  // page-locked host memory for spilled volumes; 0 = no tier HOST
  int spill_threads = 2;
  storage::SpillFolder* spill_folder = nullptr;      // null = no tier DISK; must outlive the engine
  std::vector<storage::SpillFolder::Found> spilled;  // what it found at the start: held again
  session::SessionConfig sessions;
  int64_t most_leases = 65'536;                // held and waited for
  int64_t history_entries = 1000;              // ended scans that stay listed
  int64_t history_bytes = int64_t{256} << 20;  // of host memory that they take
  handoff::FdSocket* handoff =
      nullptr;  // null = no descriptors are handed over; must be stopped before the engine ends
};

/// How a process gets at a ring: what it says on which socket, and what it will find.
struct RingTicket {
  std::string path, nonce;
  double expires_seconds = 0;
  int64_t total_bytes = 0, slots = 0, block_records = 0, record_bytes = 0, total_records = 0;
};

/// The imaging engine: scans, volumes, products. Every call is short (no device waits) and
/// thread-safe; work happens on the engine's own threads. Names are checked here: NotFound for
/// unknown ones (with what became of the thing if that is known).
class Engine {
 public:
  /// Takes the devices. `store` must outlive the engine. FailedPrecondition if a device has less
  /// free memory than its budget.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
      storage::CommitStore* store);
  virtual ~Engine() = default;  // cancels what runs, waits for the threads

  // -- scans
  /// On refusal for memory `report` (may be null) tells why.
  virtual absl::StatusOr<model::ScanStatus> SubmitScan(const model::ScanSpec& spec,
                                                       model::AdmissionReport* report) = 0;
  virtual absl::StatusOr<model::AdmissionReport> PlanScan(
      const model::ScanSpec& spec, std::string* plan,
      std::vector<std::string>* warnings = nullptr) = 0;
  /// The scanner's waveforms of an even (or odd) volume of the scan. Milliseconds to seconds for
  /// millions of records.
  virtual absl::StatusOr<pattern::PatternWaveform> PlanWaveform(const model::ScanSpec& spec,
                                                                bool odd_volume) = 0;
  virtual absl::StatusOr<model::ScanStatus> GetScan(const std::string& name) = 0;
  virtual std::vector<model::ScanStatus> ListScans() = 0;  // newest first
  /// Calls `callback` from an engine thread with the scan now, on each change and about twice a
  /// second, until its final state; with NotFound, once, if the scan is forgotten before.
  virtual absl::StatusOr<std::unique_ptr<base::Handle>> WatchScan(
      const std::string& name,
      std::function<void(const absl::StatusOr<model::ScanStatus>&)> callback) = 0;
  virtual absl::StatusOr<model::ScanStatus> UpdateScan(const std::string& name,
                                                       const model::Processing& processing) = 0;
  virtual absl::StatusOr<model::ScanStatus> StopScan(const std::string& name) = 0;
  virtual absl::StatusOr<model::ScanStatus> CancelScan(const std::string& name) = 0;
  /// Puts a marker at the record that is being processed now.
  virtual absl::StatusOr<model::ScanEvent> MarkScan(const std::string& name,
                                                    const std::string& marker) = 0;

  // -- sources
  /// Where a client pushes records of a scan. FailedPrecondition (NOT_PUSH, SCAN_STATE).
  virtual absl::StatusOr<std::shared_ptr<source::PushPort>> OpenPush(const std::string& scan) = 0;
  /// A ticket for the memory through which a process on this host feeds a scan; for processes of
  /// user `uid`, or any that may connect. FailedPrecondition (NOT_RING, RING_TAKEN, SCAN_STATE;
  /// HANDOFF_DISABLED: there is no socket for it).
  virtual absl::StatusOr<RingTicket> OpenRing(const std::string& scan,
                                              std::optional<uint32_t> uid) = 0;
  /// Cameras that answer now. Takes about a second. Unimplemented (NO_CAMERA_SUPPORT).
  virtual absl::StatusOr<std::vector<source::CameraInfo>> ListCameras() = 0;

  // -- volumes
  virtual absl::StatusOr<model::VolumeStatus> GetVolume(const std::string& name) = 0;
  virtual std::vector<model::VolumeStatus> ListVolumes(
      const volume::VolumeQuery& query = {}) = 0;  // oldest first; gone ones for ten minutes
  virtual absl::StatusOr<std::shared_ptr<volume::VolumeReader>> ReadVolume(
      const std::string& name, const std::vector<int64_t>& start,
      const std::vector<int64_t>& count) = 0;
  // `lease_token`: of the caller's own lease of the volume; others' are in the way (LEASED). The
  // table in volume_store.h says of what.
  /// Marks a volume, or (`release`) takes the mark back.
  virtual absl::StatusOr<model::VolumeStatus> HoldVolume(const std::string& name, bool release,
                                                         const std::string& lease_token = "") = 0;
  /// Moves a held volume's bytes out of device memory, or back. `done` is called once, at once or
  /// from an engine thread.
  virtual void SpillVolume(const std::string& name, model::Tier tier,
                           std::function<void(absl::StatusOr<model::VolumeStatus>)> done,
                           const std::string& lease_token = "") = 0;
  virtual void RestoreVolume(const std::string& name,
                             std::function<void(absl::StatusOr<model::VolumeStatus>)> done) = 0;
  /// `detach_exports`: also if other processes map it. Where it is refused (LEASED, VOLUME_STATE)
  /// the exports stay what they are.
  virtual absl::StatusOr<model::VolumeStatus> DiscardVolume(
      const std::string& name, bool detach_exports = false,
      const std::string& lease_token = "") = 0;
  /// Makes a new held volume of a held one; `done` is called once, from an engine thread. Errors
  /// that can be told at once are returned instead.
  virtual absl::Status DeriveVolume(
      const derive::DeriveSpec& spec,
      std::function<void(absl::StatusOr<model::VolumeStatus>)> done) = 0;
  /// `done` is called once, from an engine thread, when the volume is not being acquired (any
  /// more): with it, or DataLoss (VOLUME_FAILED). It need not be called when `over` (may be null;
  /// must not block) says that nobody waits for it any more.
  virtual absl::Status WaitVolume(const std::string& name,
                                  std::function<void(absl::StatusOr<model::VolumeStatus>)> done,
                                  std::function<bool()> over = nullptr) = 0;
  /// Starts a commit, or (same request_id) joins or answers the earlier one. Errors that can be
  /// told at once are returned; later ones go to on_done. Destroying the handle does not cancel;
  /// Cancel does.
  virtual absl::StatusOr<std::shared_ptr<base::Handle>> CommitVolume(
      const std::string& name, const model::CommitOptions& options, const std::string& request_id,
      volume::CommitCallbacks callbacks, const std::string& lease_token = "") = 0;

  /// Whether a commit with these options would be refused for its destination, before there is a
  /// volume.
  virtual absl::Status CheckCommit(const model::CommitOptions& options) = 0;

  // -- clients
  /// ResourceExhausted (SESSIONS).
  virtual absl::StatusOr<session::ClientSessions::Opened> OpenSession(
      const std::string& client) = 0;
  /// A sign of life; revives an expired session. NotFound (NO_SESSION).
  virtual absl::StatusOr<session::SessionStatus> KeepAlive(const std::string& secret) = 0;
  virtual absl::StatusOr<session::SessionStatus> CloseSession(const std::string& secret) = 0;
  virtual std::vector<session::SessionStatus> ListSessions() = 0;
  virtual session::ClientSessions& sessions() = 0;
  /// The leases of volumes and client buffers. Scans never ask for any.
  virtual session::LeaseTable& leases() = 0;
  /// A lease of a volume or a buffer, granted under the lock of the store that owns it. As
  /// LeaseTable::Acquire; NotFound and FailedPrecondition (VOLUME_STATE) if it is not there to be
  /// leased.
  virtual uint64_t AcquireLease(const session::LeaseRequest& request, const model::Caller& caller,
                                std::function<void(absl::StatusOr<session::Lease>)> done) = 0;

  // -- jobs
  /// On refusal for memory `report` (may be null) tells why.
  virtual absl::StatusOr<job::JobStatus> SubmitJob(const model::JobSpec& spec,
                                                   model::AdmissionReport* report) = 0;
  virtual absl::StatusOr<model::AdmissionReport> PlanJob(const model::JobSpec& spec,
                                                         job::JobPlan* plan) = 0;
  virtual absl::StatusOr<job::JobStatus> GetJob(const std::string& name) = 0;
  virtual std::vector<job::JobStatus> ListJobs() = 0;  // newest first
  /// Calls `callback` from an engine thread with the job now, on each change (at most 20 a second)
  /// and about twice a second, until its final state; with NotFound, once, if the job is forgotten
  /// before.
  virtual absl::StatusOr<std::unique_ptr<base::Handle>> WatchJob(
      const std::string& name,
      std::function<void(const absl::StatusOr<job::JobStatus>&)> callback) = 0;
  virtual absl::StatusOr<job::JobStatus> CancelJob(const std::string& name) = 0;
  /// Where a client pushes projections of a job. FailedPrecondition (NOT_PUSH, JOB_STATE).
  virtual absl::StatusOr<std::shared_ptr<source::ProjectionPort>> OpenProjectionPush(
      const std::string& job) = 0;

  // -- buffers
  virtual buffer::BufferStore& buffers() = 0;

  // -- products
  /// `notify` is called (from any engine thread, must not block or call back into the engine) when
  /// Take or Ended may have news. OutOfRange if from_sequence is no longer kept
  /// (numbers.first_available).
  virtual absl::StatusOr<std::shared_ptr<model::Subscription>> Subscribe(
      const model::SubscribeSpec& spec, std::function<void()> notify) = 0;

  // -- the whole
  virtual std::vector<model::DeviceStatus> ListDevices() = 0;
  /// Calls `callback` at once with how the devices are, and from an engine thread when one of them
  /// is lost.
  virtual std::unique_ptr<base::Handle> WatchDevices(
      std::function<void(const std::vector<model::DeviceStatus>&)> callback) = 0;
  /// Measures a device, figure by figure; the one call that takes seconds: from a thread that may
  /// wait. FailedPrecondition (SCANS_RUNNING, MEASURING), Aborted (MEASUREMENT_DISTURBED) once a
  /// scan is submitted, Unavailable when draining; see device_benchmark.h.
  virtual absl::Status Measure(MeasureSpec spec, const TellMeasured& tell) = 0;
  virtual model::MemoryStatus GetMemory() = 0;
  /// What the engine's housekeeping thread does a few times a second: what time and clients' ends
  /// bring about. For tests whose clock stands still otherwise.
  virtual void Housekeep() = 0;
  virtual const std::vector<std::string>& storage_roots() const = 0;
  /// What lies in the quarantine of each storage root (server/storage/commit/quarantine.h).
  virtual std::map<std::string, storage::QuarantineUse> Quarantines() = 0;
  virtual model::Stats Snapshot() = 0;
  /// A stream to a client was ended by whoever serves it.
  virtual void CountCut(const std::string& reason) = 0;
  /// No new scans from now on (Unavailable, DRAINING); running scans are told to stop at the
  /// volume.
  virtual void BeginDrain() = 0;
  virtual bool draining() const = 0;
  /// Cancels all scans, jobs and commits that have not ended (SERVER_STOPPED); `why` is what they
  /// tell.
  virtual void EndNow(const std::string& why) = 0;
  /// True when nothing runs any more: no scan, no job, no commit.
  virtual bool Idle() = 0;
};

}  // namespace octavo::engine
