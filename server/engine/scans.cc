#include "server/engine/scans.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/engine/devices.h"
#include "server/engine/history_rows.h"
#include "server/engine/internal.h"
#include "server/model/resolved_scan.h"
#include "server/model/volume_operation.h"
#include "server/processing/merge_processing.h"
#include "server/processing/resolve_processing.h"
#include "server/processing/stored_form.h"
#include "server/scan/admission.h"
#include "server/scan/resolve_scan.h"
#include "server/scan/scan_session.h"
#include "server/security/rights.h"
#include "server/security/shares.h"
#include "server/source/ring_port.h"

namespace octavo::engine {
namespace {

/// Checks the scan's chains on what its volumes will be like, before it starts.
absl::Status CheckChains(const model::ResolvedScan& scan) {
  if (scan.spec.chains == nullptr) return absl::OkStatus();
  for (size_t c = 0; c < scan.spec.chains->chains.size(); ++c) {
    model::VolumeStatus volume;
    std::copy(scan.shape, scan.shape + 3, volume.shape);
    std::copy(scan.spacing_um, scan.spacing_um + 3, volume.spacing_um);
    volume.dtype = scan.chain.output;
    const auto& operations = scan.spec.chains->chains[c].operations;
    for (size_t i = 0; i < operations.size(); ++i) {
      OCTAVO_RETURN_IF_ERROR(
          model::PlanVolumeOperation(operations[i],
                                     absl::StrCat("chains[", c, "].operations[", i, "]"), &volume)
              .status());
    }
  }
  return absl::OkStatus();
}

}  // namespace

Scans::Scans(Components* components, Devices* devices)
    : components_(*components),
      devices_(*devices),
      watches_([this](const std::string& name) { return Get(name); }) {}

Scans::~Scans() = default;

absl::StatusOr<model::ScanStatus> Scans::Submit(const model::ScanSpec& spec,
                                                model::AdmissionReport* report,
                                                const security::Principal& caller,
                                                const std::string& request) {
  OCTAVO_ASSIGN_OR_RETURN(const std::optional<model::ScanStatus> earlier, EarlierAnswer(spec));
  if (earlier.has_value()) return *earlier;
  if (spec.on_restart == model::OnRestart::kResume)
    return SubmitWithRecord(spec, report, caller, request);
  MutexLock submit(submit_mutex_);  // one at a time: two retries of one request must not both start
  OCTAVO_ASSIGN_OR_RETURN(const std::string answered,
                          requests_.Begin(spec.request_id, spec.request_digest, caller.name));
  if (!answered.empty()) return Get(answered);
  base::RequestClaim claim([&](const std::string& name) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    requests_.End(spec.request_id, name);
  });
  return SubmitNow(NewName(), spec, caller, report, &claim);
}

// The record comes first: a disk that refuses it then leaves nothing behind, and no daemon dies
// with a scan that a client takes for one that goes on. What is written about a scan that is
// refused after all, for lack of memory for example, is removed before the answer.
absl::StatusOr<model::ScanStatus> Scans::SubmitWithRecord(const model::ScanSpec& spec,
                                                          model::AdmissionReport* report,
                                                          const security::Principal& caller,
                                                          const std::string& request) {
  {
    MutexLock submit(submit_mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const std::string answered,
                            requests_.Begin(spec.request_id, spec.request_digest, caller.name));
    if (!answered.empty()) return Get(answered);
  }
  absl::Cleanup unclaimed = [&] {
    MutexLock submit(submit_mutex_);
    requests_.End(spec.request_id, "");
  };
  const std::string name = NewName();
  const absl::Status ready = [&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(components_.drain.Check());
    OCTAVO_RETURN_IF_ERROR(Resolve(spec).status());  // what cannot be meant costs no write
    return components_.resumes.Begin(name, spec.owner, request);
  }();
  if (!ready.ok()) {
    components_.scans.CountRejected(ready);
    return ready;
  }
  auto submitted = base::ExceptionToStatus([&]() -> absl::StatusOr<model::ScanStatus> {
    MutexLock submit(submit_mutex_);
    std::move(unclaimed).Cancel();
    base::RequestClaim claim([&](const std::string& made) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      requests_.End(spec.request_id, made);
    });
    return SubmitNow(name, spec, caller, report, &claim);
  });
  // A scan that is listed runs, whatever failed after that: a retry gets it.
  if (components_.scans.Find(name).ok()) {
    components_.resumes.Began(name);
  } else {
    components_.resumes.Drop(name);
  }
  return submitted;
}

absl::StatusOr<model::ScanStatus> Scans::Resume(const ScanToResume& earlier, model::ScanSpec spec) {
  spec.resumed_from = earlier.scan;
  spec.owner = earlier.owner;
  const security::Principal caller{.name = earlier.owner.name,
                                   .role = earlier.owner.role,
                                   .project = earlier.owner.project,
                                   .proof = security::Proof::kNone,
                                   .token_id = "",
                                   .found = "the record of its scan"};
  MutexLock submit(submit_mutex_);
  // A retry that no history answers gets the scan that goes on, not a second one. An id that is
  // taken already, by another scan that was resumed, is of no use here.
  const auto answered = requests_.Begin(spec.request_id, spec.request_digest, caller.name);
  if (!answered.ok() || !answered->empty()) spec.request_id.clear();
  base::RequestClaim claim([&](const std::string& made) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    requests_.End(spec.request_id, made);
  });
  OCTAVO_ASSIGN_OR_RETURN(model::ScanStatus scan,
                          SubmitNow(NewName(), spec, caller, /*report=*/nullptr, &claim));
  FollowGrants(earlier, scan.name);
  return scan;
}

void Scans::FollowGrants(const ScanToResume& earlier, const std::string& now) {
  const int64_t at = components_.clock->Now().unix_ns;
  for (const security::Grant& grant : components_.grants.List()) {
    if (grant.object != earlier.scan || !(grant.owner == earlier.owner)) continue;
    const auto follows =
        components_.grants.Put(grant.owner, now, grant.grantee, grant.expires_unix_ns - at);
    if (!follows.ok())
      Log(LogLevel::kWarning, "a grant does not follow the scan that was resumed",
          {{"grant", grant.name},
           {"scan", now},
           {"error", std::string(follows.status().message())}});
  }
}

ResumeBook& Scans::records() { return components_.resumes; }

void Scans::TendRecords() {
  using Fate = ResumeBook::Fate;
  const bool draining = components_.drain.draining();
  components_.resumes.Tend(
      [&](const std::string& name) {
        const auto session = components_.scans.Find(name);
        // One that is listed no more has ended before it was looked at.
        if (!session.ok()) return draining ? Fate::kEndedByDaemon : Fate::kOver;
        const model::ScanStatus scan = (*session)->Status();
        if (!IsFinal(scan.state)) return Fate::kRuns;
        return scan.reason_code == Reason::kDrained || scan.reason_code == Reason::kServerStopped
                   ? Fate::kEndedByDaemon
                   : Fate::kOver;
      },
      draining);
}

std::string Scans::NewName() const {
  return absl::StrCat("scans/", base::NewId(components_.config.server_id));
}

absl::StatusOr<model::ScanStatus> Scans::SubmitNow(const std::string& name,
                                                   const model::ScanSpec& spec,
                                                   const security::Principal& caller,
                                                   model::AdmissionReport* report,
                                                   base::RequestClaim* claim) {
  if (const absl::Status draining = components_.drain.Check(); !draining.ok()) {
    components_.scans.CountRejected(draining);
    return draining;
  }
  auto admitted = Admit(name, spec, caller, report);
  if (!admitted.ok()) {
    components_.scans.CountRejected(admitted.status());
    return admitted.status();
  }
  const std::shared_ptr<scan::ScanSession> session = *std::move(admitted);
  claim->Made(session->name());
  components_.history.OnScanChanged(session->name());
  const model::ScanStatus status = StatusOf(*session);
  Log(LogLevel::kInfo, status.state == model::ScanState::kQueued ? "scan queued" : "scan started",
      {{"scan", status.name},
       {"title", spec.title},
       {"device", status.device},
       {"principal", spec.owner.name},
       {"request_id", spec.request_id},
       {"trace_id", spec.trace_id}});
  return status;
}

absl::StatusOr<model::AdmissionReport> Scans::Plan(const model::ScanSpec& spec, std::string* plan,
                                                   std::vector<std::string>* warnings) {
  OCTAVO_ASSIGN_OR_RETURN(model::ResolvedScan scan, Resolve(spec));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> chosen, devices_.ChooseFor(&scan));
  model::AdmissionReport report =
      components_.ledger.Plan(chosen[0], scan::Needs(scan, components_.devices.device(chosen[0])));
  for (size_t i = 1; report.admitted && i < chosen.size(); ++i) {
    model::AdmissionReport of_peer = components_.ledger.Plan(
        chosen[i], scan::PeerNeeds(scan, components_.devices.device(chosen[i])));
    if (!of_peer.admitted) report = std::move(of_peer);
  }
  scan::AddRunFigures(scan, components_.storage->roots(), SpillFree(scan), &report);
  if (plan != nullptr)
    *plan = absl::StrCat(scan::DescribeSource(scan), DescribeChain(scan.chain),
                         scan::DescribeSpacing(scan),
                         processing::DescribeMemory(scan, scan::VolumeSlots(scan)));
  if (plan != nullptr && std::holds_alternative<model::RingSource>(scan.spec.source))
    *plan += source::DescribeRing(scan.spec);
  if (warnings != nullptr) {
    *warnings = std::move(scan.warnings);
    for (const absl::Status& quota :
         {components_.quotas.Check(spec.owner, memory::QuotaKind::kScans, 1, "the scan"),
          components_.ledger.CheckQuotaNow(scan::Needs(scan, components_.devices.device(chosen[0])),
                                           spec.owner)}) {
      if (!quota.ok())
        warnings->push_back(absl::StrCat("it would be refused now: ", quota.message()));
    }
    if (const absl::Status room = components_.resumes.CheckRoom(spec.owner);
        spec.on_restart == model::OnRestart::kResume && !room.ok())
      warnings->push_back(absl::StrCat("it would be refused now: ", room.message()));
  }
  return report;
}

absl::StatusOr<pattern::PatternWaveform> Scans::PlanWaveform(const model::ScanSpec& spec,
                                                             bool odd_volume) {
  OCTAVO_ASSIGN_OR_RETURN(const model::ResolvedScan scan,
                          scan::ResolveScan(spec, ReplayRootsOf(spec.owner)));
  const pattern::Pattern& pattern = scan.spec.pattern;
  const double rate = model::RecordRateHz(spec);
  if (pattern.plan != nullptr)
    return pattern::MakeWaveform(pattern, *pattern.plan, odd_volume, rate);
  OCTAVO_ASSIGN_OR_RETURN(const pattern::PatternPlan plan, pattern::MakePlan(pattern, rate));
  return pattern::MakeWaveform(pattern, plan, odd_volume, rate);
}

absl::StatusOr<model::ScanStatus> Scans::Get(const std::string& name) {
  auto session = components_.scans.Find(name);
  if (session.ok()) return StatusOf(**session);
  if (const model::ScanStatus* earlier = components_.earlier.FindScan(name); earlier != nullptr)
    return WithVolumes(*earlier);
  return session.status();
}

absl::StatusOr<model::ScanStatus> Scans::GetNumbered(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, components_.scans.Find(name));
  model::ScanStatus scan = session->Status();
  scan.number = components_.scans.NumberOf(name);
  return scan;
}

model::ScanStatus Scans::WithVolumes(model::ScanStatus scan) {
  // Volumes that were on the disk are held again.
  auto counts = components_.volumes.CountOf(scan.name);
  scan.volumes_held = counts.held;
  scan.volumes_spilled = counts.spilled;
  scan.volumes_committed += counts.committed;
  scan.volumes_discarded += counts.discarded;
  scan.volumes_expired += counts.expired;
  scan.volumes = std::move(counts.in_memory);
  return scan;
}

absl::StatusOr<std::optional<model::ScanStatus>> Scans::EarlierAnswer(const model::ScanSpec& spec) {
  OCTAVO_ASSIGN_OR_RETURN(
      const std::string name,
      components_.earlier.AnswerTo(storage::HistoryKind::kScan, spec.request_id,
                                   LastingDigest(spec.request_digest, spec.session),
                                   /*owner=*/std::nullopt));
  const model::ScanStatus* const scan = components_.earlier.FindScan(name);
  if (scan == nullptr) return std::nullopt;
  if (scan->state == model::ScanState::kLost) return LostError("scan", name, scan->reason);
  return WithVolumes(*scan);
}

absl::StatusOr<std::optional<model::ScanStatus>> Scans::EndedEarlier(
    const std::string& name, const security::Principal& caller) {
  const model::ScanStatus* const scan = components_.earlier.FindScan(name);
  if (scan == nullptr) {
    const auto owner = components_.resumes.OwnerOfWaiting(name);
    if (!owner.has_value()) return std::nullopt;
    OCTAVO_RETURN_IF_ERROR(security::MayChange(caller, *owner, name));
    model::ScanStatus waiting;
    waiting.name = name;
    waiting.spec.owner = *owner;
    waiting.state = model::ScanState::kLost;
    waiting.reason_code = Reason::kLost;
    waiting.reason = "it ended with its server, and waited to be resumed";
    waiting.earlier_run = true;
    return WithVolumes(std::move(waiting));
  }
  OCTAVO_RETURN_IF_ERROR(security::MayChange(caller, scan->spec.owner, name));
  return WithVolumes(*scan);
}

std::vector<model::ScanStatus> Scans::List(uint64_t before, size_t most) {
  std::vector<model::ScanStatus> list;
  for (const auto& [number, session] : components_.scans.Newest(before, most)) {
    list.push_back(StatusOf(*session));
    list.back().number = number;
  }
  for (model::ScanStatus& scan : components_.earlier.Scans(before, most - list.size()))
    list.push_back(WithVolumes(std::move(scan)));
  return list;
}

absl::StatusOr<std::unique_ptr<base::Handle>> Scans::Watch(
    const std::string& name,
    std::function<void(const absl::StatusOr<model::ScanStatus>&)> callback) {
  OCTAVO_RETURN_IF_ERROR(Get(name).status());
  return watches_.Add(name, std::move(callback));
}

absl::StatusOr<model::ScanStatus> Scans::Update(const std::string& name,
                                                const model::Processing& given,
                                                const std::set<std::string>& fields,
                                                const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, FindToChange(name, caller));
  MutexLock lock(update_mutex_);
  OCTAVO_RETURN_IF_ERROR(session->CanUpdate());
  const model::ResolvedScan current = session->Resolved();
  const auto updated = processing::ResolveUpdate(
      current, processing::MergeProcessing(current.requested, given, fields),
      /*whole=*/fields.size() == processing::ProcessingFields().size());
  // If the scan has ended meanwhile, it has freed the request and the data that ResolveUpdate
  // needs.
  if (!updated.ok()) {
    OCTAVO_RETURN_IF_ERROR(session->CanUpdate());
    return updated.status();
  }
  OCTAVO_RETURN_IF_ERROR(session->Update(*updated));
  for (const std::string& warning : updated->warnings) session->Warn(warning);
  return session->Status();
}

// A record knows its first scan and its last one; the history, those between.
std::string Scans::GoesOnAs(const std::string& name) {
  constexpr int kMostSteps = 10'000;  // whatever a history says
  std::string scan = name;
  for (int i = 0; i < kMostSteps && !scan.empty() && !components_.scans.Find(scan).ok(); ++i) {
    if (std::string now = components_.resumes.SuccessorOf(scan); !now.empty()) return now;
    const model::ScanStatus* const earlier = components_.earlier.FindScan(scan);
    scan = earlier == nullptr ? "" : earlier->spec.resumed_from;
  }
  return name;
}

absl::StatusOr<model::ScanStatus> Scans::Stop(const std::string& asked,
                                              const security::Principal& caller) {
  const std::string name = GoesOnAs(asked);
  OCTAVO_ASSIGN_OR_RETURN(const auto earlier, EndedEarlier(name, caller));
  if (earlier.has_value()) return *earlier;
  OCTAVO_ASSIGN_OR_RETURN(auto session, FindToChange(name, caller));
  session->Stop(Reason::kStopped, "stopped by a client after the current volume");
  return session->Status();
}

absl::StatusOr<model::ScanStatus> Scans::Cancel(const std::string& asked,
                                                const security::Principal& caller) {
  const std::string name = GoesOnAs(asked);
  OCTAVO_ASSIGN_OR_RETURN(const auto earlier, EndedEarlier(name, caller));
  if (earlier.has_value()) return *earlier;
  OCTAVO_ASSIGN_OR_RETURN(auto session, FindToChange(name, caller));
  session->Cancel();
  return session->Status();
}

absl::StatusOr<model::ScanEvent> Scans::Mark(const std::string& name, const std::string& marker,
                                             const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, FindToChange(name, caller));
  return session->Mark(marker);
}

absl::StatusOr<std::shared_ptr<source::PushPort>> Scans::OpenPush(
    const std::string& scan, const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, FindToChange(scan, caller));
  return session->Push();
}

absl::StatusOr<RingTicket> Scans::OpenRing(const std::string& scan, std::optional<uint32_t> uid,
                                           const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, FindToChange(scan, caller));
  OCTAVO_ASSIGN_OR_RETURN(auto port, session->Ring());
  OCTAVO_ASSIGN_OR_RETURN(RingTicket ticket,
                          IssueRingTicket(components_.config.handoff, port, uid, caller));
  const source::RingLimits& limits = port->limits();
  ticket.slots = limits.slots;
  ticket.block_records = limits.block_records;
  ticket.record_bytes = limits.record_bytes;
  ticket.total_records = port->total_records();
  return ticket;
}

model::ScanStatus Scans::StatusOf(scan::ScanSession& session) {
  model::ScanStatus status = session.Status();
  if (status.state == model::ScanState::kQueued)
    status.queue_position = queues_.PositionOf(status.spec.queue.name, status.name);
  return status;
}

absl::StatusOr<model::ResolvedScan> Scans::Resolve(const model::ScanSpec& spec) const {
  OCTAVO_ASSIGN_OR_RETURN(model::ResolvedScan scan,
                          scan::ResolveScan(spec, ReplayRootsOf(spec.owner)));
  // First, because what comes after it names all roots.
  if (scan.spec.retention.disposition == model::Disposition::kAutoCommit)
    OCTAVO_RETURN_IF_ERROR(components_.CheckRoot(spec.owner,
                                                 scan.spec.retention.auto_commit.destination,
                                                 "retention.auto_commit.destination"));
  OCTAVO_RETURN_IF_ERROR(scan::CheckAutoCommit(scan, components_.storage->roots()));
  OCTAVO_RETURN_IF_ERROR(CheckChains(scan));
  OCTAVO_RETURN_IF_ERROR(CheckSpill(scan.spec.retention));
  return scan;
}

absl::StatusOr<std::shared_ptr<scan::ScanSession>> Scans::FindToChange(
    const std::string& name, const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const auto earlier, EndedEarlier(name, caller));
  if (earlier.has_value()) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        name, " is ", Name(earlier->state), ", of an earlier run of the server")),
                    {.reason = Reason::kScanState,
                     .field = "name",
                     .numbers = {{"state", Name(earlier->state)}}});
  }
  OCTAVO_ASSIGN_OR_RETURN(auto session, components_.scans.Find(name));
  OCTAVO_RETURN_IF_ERROR(security::MayChange(caller, session->owner(), name));
  return session;
}

absl::StatusOr<std::shared_ptr<scan::ScanSession>> Scans::Admit(const std::string& name,
                                                                const model::ScanSpec& spec,
                                                                const security::Principal& caller,
                                                                model::AdmissionReport* report) {
  OCTAVO_ASSIGN_OR_RETURN(model::ResolvedScan scan, Resolve(spec));
  // Early, because memory is taken meanwhile; Add decides.
  OCTAVO_RETURN_IF_ERROR(queues_.CheckInterruption(scan.spec.queue, caller));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> chosen, devices_.ChooseFor(&scan));
  const int index = chosen[0];
  OCTAVO_ASSIGN_OR_RETURN(
      auto source, source::OpenSource(scan.spec, ReplayRootsOf(spec.owner), components_.clock));
  Device& device = components_.devices.device(index);
  OCTAVO_ASSIGN_OR_RETURN(
      memory::QuotaCharge place,
      components_.quotas.Take(spec.owner, memory::QuotaKind::kScans, 1, "the scan"));
  model::AdmissionReport admission;
  // Slots of the same layout that an ended scan left are taken over.
  const bool striped = scan.stripe_devices > 1;
  auto grant = components_.ledger.ReserveReusing(
      index, name, spec.title, scan::Needs(scan, device),
      striped ? std::vector<memory::Ledger::ChargeId>{}
              : components_.slot_cache.Find(scan::LayoutOf(scan, index)),
      &admission, spec.owner);
  // The account of the device says nothing about the quota of the owner.
  if (InfoOf(grant.status()).reason == Reason::kQuota) return grant.status();
  memory::ChargeHolder charges = HoldForScan();
  if (grant.ok()) charges.Add(grant->charges);
  scan::AddRunFigures(scan, components_.storage->roots(), SpillFree(scan), &admission);
  if (report != nullptr) *report = admission;
  if (!grant.ok()) return grant.status();
  OCTAVO_ASSIGN_OR_RETURN(std::vector<scan::ScanDevice> peers,
                          ReservePeers(scan, name, chosen, &charges, report));
  scan.spec.device = base::DeviceName(index);
  scan.spec.spread = {.given = !peers.empty(), .striped = striped};
  for (size_t i = 0; !peers.empty() && i < chosen.size(); ++i)
    scan.spec.spread.devices.push_back(base::DeviceName(chosen[i]));
  scan::SessionContext context{
      .device = &device,
      .device_index = index,
      .peers = std::move(peers),
      .ledger = &components_.ledger,
      .store = &components_.volumes,
      .publisher = &components_.publisher,
      .frames = components_.devices.frames(index),
      .clock = components_.clock,
      .server_id = components_.config.server_id,
      .slot_cache = &components_.slot_cache,
      .relief = std::make_shared<scan::StorageRelief>(&components_.spiller, &components_.committer),
      .observer = this};
  const model::QueueOptions queue = scan.spec.queue;
  (void)charges.Keep();  // from here on the session owns the charges and ends them
  auto created = scan::ScanSession::Create(name, std::move(scan), std::move(source), grant->charges,
                                           std::move(context));
  if (!created.ok()) {
    components_.scans.CountAllocationFailure(base::DeviceName(index));
    return Annotate(created.status(),
                    absl::StrCat("while allocating for the scan on ", base::DeviceName(index)));
  }
  std::shared_ptr<scan::ScanSession> session = *std::move(created);
  session->KeepUntilEnd(std::move(place));
  absl::Cleanup unlisted = [&] {
    components_.scans.Remove(name);  // the session ends with it
    components_.history.OnScanWithdrawn(name);
  };
  components_.scans.Add(session);
  OCTAVO_RETURN_IF_ERROR(queues_.Add(session, queue, caller));
  (void)Failpoint("scan_begun");
  std::move(unlisted).Cancel();
  if (components_.drain.draining())
    session->Stop(Reason::kDrained,
                  "the server is draining");  // draining may have begun meanwhile
  return session;
}

void Scans::OnScanChanged(const std::string& scan) {
  watches_.Wake();
  components_.history.OnScanChanged(scan);
}

void Scans::OnAcquisitionOver(const std::string& scan, const std::string& queue) {
  queues_.Acquired(queue, scan);
}

void Scans::OnCommitWanted(const std::string& volume, const model::CommitOptions& options) {
  (void)components_.auto_committer.Begin(volume, options);
}

std::vector<std::string> Scans::ReplayRootsOf(const security::Owner& who) const {
  return components_.config.root_rights.Among(components_.config.replay_roots, who);
}

memory::ChargeHolder Scans::HoldForScan() {
  // A slot of the cache that was to be used by the scan is freed.
  return memory::ChargeHolder(&components_.ledger, [this](memory::Ledger::ChargeId id) {
    (void)components_.slot_cache.Take(id);
  });
}

absl::StatusOr<std::vector<scan::ScanDevice>> Scans::ReservePeers(const model::ResolvedScan& scan,
                                                                  const std::string& name,
                                                                  const std::vector<int>& chosen,
                                                                  memory::ChargeHolder* held,
                                                                  model::AdmissionReport* report) {
  std::vector<scan::ScanDevice> peers;
  for (size_t i = 1; i < chosen.size(); ++i) {
    Device& device = components_.devices.device(chosen[i]);
    model::AdmissionReport of_peer;
    auto charges = components_.ledger.Reserve(
        chosen[i], name, scan.spec.title, scan::PeerNeeds(scan, device), &of_peer, scan.spec.owner);
    if (!charges.ok()) {
      if (report != nullptr) *report = std::move(of_peer);
      return charges.status();
    }
    held->Add(*charges);
    peers.push_back({.device = &device, .index = chosen[i], .charges = *std::move(charges)});
  }
  return peers;
}

absl::Status Scans::CheckSpill(const model::Retention& retention) const {
  const auto check = [&](const char* field, bool wanted, model::Tier tier) {
    if (!wanted) return absl::OkStatus();
    const absl::Status status = components_.spiller.CheckTier(tier);
    return status.ok()
               ? status
               : WithInfo(
                     absl::FailedPreconditionError(absl::StrCat(field, ": ", status.message())),
                     {.reason = InfoOf(status).reason,
                      .field = field,
                      .numbers = InfoOf(status).numbers});
  };
  OCTAVO_RETURN_IF_ERROR(check("retention.on_full", model::Spills(retention.on_full),
                               model::TierOf(retention.on_full)));
  return check("retention.orphan", retention.orphan == model::Orphan::kSpillDisk,
               model::Tier::kDisk);
}

int64_t Scans::SpillFree(const model::ResolvedScan& scan) const {
  const model::OnFull on_full = scan.spec.retention.on_full;
  return model::Spills(on_full) ? components_.spiller.FreeOf(model::TierOf(on_full)) : 0;
}

absl::StatusOr<std::vector<source::CameraInfo>> Scans::ListCameras() {
  return source::ListCameras();
}

void Scans::StopAll(Reason reason_code, const std::string& reason) {
  for (const auto& session : components_.scans.All()) {
    if (!session->finished()) session->Stop(reason_code, reason);
  }
}

void Scans::CancelAll(Reason reason_code, const std::string& reason) {
  for (const auto& session : components_.scans.All()) {
    if (!session->finished()) session->Cancel(reason_code, reason);
  }
}

}  // namespace octavo::engine
