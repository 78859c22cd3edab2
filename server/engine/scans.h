#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/base/callback_handle.h"
#include "server/base/request_ids.h"
#include "server/engine/resume_book.h"
#include "server/engine/ring_ticket.h"
#include "server/engine/scan_watch.h"
#include "server/memory/ledger.h"
#include "server/model/scan_spec.h"
#include "server/model/status_types.h"
#include "server/pattern/plan.h"
#include "server/scan/scan_observer.h"
#include "server/scan/scan_queue.h"
#include "server/scan/scan_session.h"
#include "server/security/principal.h"
#include "server/source/camera.h"
#include "server/source/source.h"

namespace octavo::engine {

struct Components;
class Devices;

/// Scans and their sources: the engine's part for ScanService and IngestService. `caller`: who
/// asks; PermissionDenied (NOT_OWNER) for one who may not change the scan. A scan's owner is
/// constant, so that no lock is needed between the check and the act.
class Scans final : private scan::ScanObserver {
 public:
  Scans(Components* components, Devices* devices);
  ~Scans() override;

  /// If memory is short, `report` (may be null) receives the reason. The scan is the owner's whom
  /// the spec names. PermissionDenied (NOT_OWNER) also if it would interrupt another's. `request`:
  /// what a later daemon submits again, where the spec asks for that (OnRestart::kResume); it is on
  /// the disk, for which the call waits, before the scan begins.
  absl::StatusOr<model::ScanStatus> Submit(const model::ScanSpec& spec,
                                           model::AdmissionReport* report,
                                           const security::Principal& caller = {},
                                           const std::string& request = "");
  /// Begins a scan of an earlier daemon again, as its owner's. An error leaves its record for the
  /// next start.
  absl::StatusOr<model::ScanStatus> Resume(const ScanToResume& earlier, model::ScanSpec spec);
  /// The records of scans that go on after a restart. Calls about them wait for a disk.
  ResumeBook& records();
  /// Brings the records to what has become of their scans.
  void TendRecords();
  absl::StatusOr<model::AdmissionReport> Plan(const model::ScanSpec& spec, std::string* plan,
                                              std::vector<std::string>* warnings = nullptr);
  /// The scanner's waveforms of an even (or odd) volume of the scan. Takes milliseconds, or seconds
  /// for millions of records.
  absl::StatusOr<pattern::PatternWaveform> PlanWaveform(const model::ScanSpec& spec,
                                                        bool odd_volume);
  /// Also of an earlier daemon, as List and Watch.
  absl::StatusOr<model::ScanStatus> Get(const std::string& name);
  /// The same of this daemon alone, with its number, which the others leave out.
  absl::StatusOr<model::ScanStatus> GetNumbered(const std::string& name);
  /// Up to `most` scans with a smaller number than `before`, newest first.
  std::vector<model::ScanStatus> List(uint64_t before = std::numeric_limits<uint64_t>::max(),
                                      size_t most = std::numeric_limits<size_t>::max());
  /// Calls `callback` from an engine thread with the scan's status: now, on each change and about
  /// twice a second, until its final state. If the scan is forgotten before that, calls once with
  /// NotFound.
  absl::StatusOr<std::unique_ptr<base::Handle>> Watch(
      const std::string& name,
      std::function<void(const absl::StatusOr<model::ScanStatus>&)> callback);
  /// Changes the `fields` (processing::ProcessingFields) of the requested processing to those of
  /// `given`.
  absl::StatusOr<model::ScanStatus> Update(const std::string& name, const model::Processing& given,
                                           const std::set<std::string>& fields,
                                           const security::Principal& caller = {});
  absl::StatusOr<model::ScanStatus> Stop(const std::string& name,
                                         const security::Principal& caller = {});
  absl::StatusOr<model::ScanStatus> Cancel(const std::string& name,
                                           const security::Principal& caller = {});
  /// Puts a marker at the record being processed now.
  absl::StatusOr<model::ScanEvent> Mark(const std::string& name, const std::string& marker,
                                        const security::Principal& caller = {});

  /// The port for a client that pushes records of a scan. FailedPrecondition (NOT_PUSH,
  /// SCAN_STATE).
  absl::StatusOr<std::shared_ptr<source::PushPort>> OpenPush(
      const std::string& scan, const security::Principal& caller = {});
  /// Issues a ticket for the memory through which a process on this host feeds a scan. Restricted
  /// to processes of user `uid` if given, else open to any that may connect. FailedPrecondition
  /// (NOT_RING, RING_TAKEN, SCAN_STATE; HANDOFF_DISABLED: the server has no socket for it).
  absl::StatusOr<RingTicket> OpenRing(const std::string& scan, std::optional<uint32_t> uid,
                                      const security::Principal& caller = {});
  /// Cameras that answer now. Takes about a second. Unimplemented (NO_CAMERA_SUPPORT).
  absl::StatusOr<std::vector<source::CameraInfo>> ListCameras();

  /// Running scans end after their current volume.
  void StopAll(Reason reason_code, const std::string& reason);
  void CancelAll(Reason reason_code, const std::string& reason);
  /// Stops all calls to watchers.
  void StopWatching() { watches_.Stop(); }

 private:
  /// Grants of a scan that was resumed cover the one that goes on, until their end.
  void FollowGrants(const ScanToResume& earlier, const std::string& now);
  // notifications from scans
  void OnScanChanged(const std::string& scan) override;
  void OnAcquisitionOver(const std::string& scan, const std::string& queue) override;
  void OnCommitWanted(const std::string& volume, const model::CommitOptions& options) override;

  model::ScanStatus StatusOf(scan::ScanSession& session);
  /// What the history says of a scan, and what this daemon holds of it.
  model::ScanStatus WithVolumes(model::ScanStatus scan);
  /// What an earlier daemon did with the request; nothing for a new one. AlreadyExists
  /// (IDEMPOTENCY_MISMATCH), DataLoss (LOST).
  absl::StatusOr<std::optional<model::ScanStatus>> EarlierAnswer(const model::ScanSpec& spec);
  /// The scan that goes on with this one of an earlier daemon, however many were between; else
  /// `name` itself.
  std::string GoesOnAs(const std::string& name);
  /// The scan of an earlier daemon, for verbs that have no effect on an ended one; nothing if it is
  /// none. Also one that waits to be resumed, and of which no history tells. PermissionDenied
  /// (NOT_OWNER).
  absl::StatusOr<std::optional<model::ScanStatus>> EndedEarlier(const std::string& name,
                                                                const security::Principal& caller);
  /// NotFound (NO_SCAN), PermissionDenied (NOT_OWNER), FailedPrecondition (SCAN_STATE) for one of
  /// an earlier daemon.
  absl::StatusOr<std::shared_ptr<scan::ScanSession>> FindToChange(
      const std::string& name, const security::Principal& caller);
  /// Submit, for a scan that has to have a record.
  absl::StatusOr<model::ScanStatus> SubmitWithRecord(const model::ScanSpec& spec,
                                                     model::AdmissionReport* report,
                                                     const security::Principal& caller,
                                                     const std::string& request);
  std::string NewName() const;
  absl::StatusOr<model::ScanStatus> SubmitNow(const std::string& name, const model::ScanSpec& spec,
                                              const security::Principal& caller,
                                              model::AdmissionReport* report,
                                              base::RequestClaim* claim);
  absl::StatusOr<std::shared_ptr<scan::ScanSession>> Admit(const std::string& name,
                                                           const model::ScanSpec& spec,
                                                           const security::Principal& caller,
                                                           model::AdmissionReport* report);
  /// The replay roots that a principal may name.
  std::vector<std::string> ReplayRootsOf(const security::Owner& who) const;
  memory::ChargeHolder HoldForScan();
  /// Resolves a spec and checks it against what this server has.
  absl::StatusOr<model::ResolvedScan> Resolve(const model::ScanSpec& spec) const;
  /// Reserves the memory that a spread scan needs on its further devices; `held` owns the charges,
  /// too.
  absl::StatusOr<std::vector<scan::ScanDevice>> ReservePeers(const model::ResolvedScan& scan,
                                                             const std::string& name,
                                                             const std::vector<int>& chosen,
                                                             memory::ChargeHolder* held,
                                                             model::AdmissionReport* report);
  /// Checks that the spill tier exists, so that a scan does not fail midway for lack of it.
  absl::Status CheckSpill(const model::Retention& retention) const;
  int64_t SpillFree(const model::ResolvedScan& scan) const;

  Components& components_;
  Devices& devices_;
  Mutex submit_mutex_;
  base::RequestIds requests_ ABSL_GUARDED_BY(submit_mutex_){"scan"};
  scan::ScanQueues queues_;
  Mutex update_mutex_;   // one update at a time: each builds on the request of the one before
  ScanWatches watches_;  // last: its thread uses the rest
};

}  // namespace octavo::engine
