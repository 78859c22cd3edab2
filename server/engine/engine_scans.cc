#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/engine/engine_impl.h"
#include "server/model/resolved_scan.h"
#include "server/model/volume_operation.h"
#include "server/processing/resolve_processing.h"
#include "server/processing/stored_form.h"
#include "server/scan/admission.h"
#include "server/scan/resolve_scan.h"
#include "server/scan/scan_session.h"
#include "server/source/ring_grant.h"

namespace octavo::engine {
namespace {}  // namespace

absl::StatusOr<model::ScanStatus> EngineImpl::SubmitScan(const model::ScanSpec& spec,
                                                         model::AdmissionReport* report) {
  MutexLock submit(submit_mutex_);  // one at a time: two retries of one request must not both start
  OCTAVO_ASSIGN_OR_RETURN(const std::string answered,
                          requests_.Begin(spec.request_id, spec.request_digest));
  if (!answered.empty()) return GetScan(answered);
  base::RequestClaim claim([&](const std::string& name) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    requests_.End(spec.request_id, name);
  });
  return SubmitNow(spec, report, &claim);
}

absl::StatusOr<model::ScanStatus> EngineImpl::SubmitNow(const model::ScanSpec& spec,
                                                        model::AdmissionReport* report,
                                                        base::RequestClaim* claim) {
  if (draining_) return Draining();
  auto admitted = Admit(spec, report);
  if (!admitted.ok()) {
    MutexLock lock(mutex_);
    const std::string reason = InfoOf(admitted.status()).reason;
    ++rejected_[reason.empty() ? absl::StatusCodeToString(admitted.status().code()) : reason];
    return admitted.status();
  }
  const std::shared_ptr<scan::ScanSession> session = *std::move(admitted);
  claim->Made(session->name());
  ++scans_admitted_;
  const model::ScanStatus status = StatusOf(*session);
  Log(LogLevel::kInfo, status.state == model::ScanState::kQueued ? "scan queued" : "scan started",
      {{"scan", status.name}, {"title", spec.title}, {"device", status.device}});
  return status;
}

absl::StatusOr<model::AdmissionReport> EngineImpl::PlanScan(const model::ScanSpec& spec,
                                                            std::string* plan,
                                                            std::vector<std::string>* warnings) {
  OCTAVO_ASSIGN_OR_RETURN(model::ResolvedScan scan, scan::ResolveScan(spec, config_.replay_roots));
  OCTAVO_RETURN_IF_ERROR(scan::CheckAutoCommit(scan, storage_->roots()));
  OCTAVO_RETURN_IF_ERROR(CheckChains(scan));
  OCTAVO_RETURN_IF_ERROR(CheckSpill(scan.spec.retention));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> chosen, DevicesFor(scan));
  model::AdmissionReport report =
      ledger_.Plan(chosen[0], scan::Needs(scan, *devices_[At(chosen[0])]));
  for (size_t i = 1; report.admitted && i < chosen.size(); ++i) {
    model::AdmissionReport of_peer =
        ledger_.Plan(chosen[i], scan::PeerNeeds(scan, *devices_[At(chosen[i])]));
    if (!of_peer.admitted) report = std::move(of_peer);
  }
  scan::AddRunFigures(scan, storage_->roots(), SpillFree(scan), &report);
  if (plan != nullptr)
    *plan = absl::StrCat(scan::DescribeSource(scan), DescribeChain(scan.chain),
                         scan::DescribeSpacing(scan),
                         processing::DescribeMemory(scan, scan::VolumeSlots(scan)));
  if (plan != nullptr && std::holds_alternative<model::RingSource>(scan.spec.source))
    *plan += source::DescribeRing(scan.spec);
  if (warnings != nullptr) *warnings = std::move(scan.warnings);
  return report;
}

absl::StatusOr<pattern::PatternWaveform> EngineImpl::PlanWaveform(const model::ScanSpec& spec,
                                                                  bool odd_volume) {
  OCTAVO_ASSIGN_OR_RETURN(const model::ResolvedScan scan,
                          scan::ResolveScan(spec, config_.replay_roots));
  const pattern::Pattern& pattern = scan.spec.pattern;
  const double rate = model::RecordRateHz(spec);
  if (pattern.plan != nullptr)
    return pattern::MakeWaveform(pattern, *pattern.plan, odd_volume, rate);
  OCTAVO_ASSIGN_OR_RETURN(const pattern::PatternPlan plan, pattern::MakePlan(pattern, rate));
  return pattern::MakeWaveform(pattern, plan, odd_volume, rate);
}

absl::StatusOr<model::ScanStatus> EngineImpl::GetScan(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
  return StatusOf(*session);
}

std::vector<model::ScanStatus> EngineImpl::ListScans() {
  std::vector<model::ScanStatus> list;
  for (const auto& session : Sessions()) list.push_back(StatusOf(*session));
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return a.created.monotonic_ns > b.created.monotonic_ns;
  });
  return list;
}

absl::StatusOr<std::unique_ptr<base::Handle>> EngineImpl::WatchScan(
    const std::string& name,
    std::function<void(const absl::StatusOr<model::ScanStatus>&)> callback) {
  OCTAVO_RETURN_IF_ERROR(Find(name).status());
  return watches_.Add(name, std::move(callback));
}

absl::StatusOr<model::ScanStatus> EngineImpl::UpdateScan(const std::string& name,
                                                         const model::Processing& processing) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
  OCTAVO_RETURN_IF_ERROR(session->CanUpdate());
  const auto updated = processing::ResolveUpdate(session->Resolved(), processing);
  // A scan that has ended meanwhile has let go of what would be resolved.
  if (!updated.ok()) {
    OCTAVO_RETURN_IF_ERROR(session->CanUpdate());
    return updated.status();
  }
  OCTAVO_RETURN_IF_ERROR(session->Update(*updated));
  for (const std::string& warning : updated->warnings) session->Warn(warning);
  return session->Status();
}

absl::StatusOr<model::ScanStatus> EngineImpl::StopScan(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
  session->Stop("STOPPED", "stopped by a client after the current volume");
  return session->Status();
}

absl::StatusOr<model::ScanStatus> EngineImpl::CancelScan(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
  session->Cancel();
  return session->Status();
}

absl::StatusOr<model::ScanEvent> EngineImpl::MarkScan(const std::string& name,
                                                      const std::string& marker) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
  return session->Mark(marker);
}

absl::StatusOr<std::shared_ptr<source::PushPort>> EngineImpl::OpenPush(const std::string& scan) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, Find(scan));
  return session->Push();
}

absl::StatusOr<RingTicket> EngineImpl::OpenRing(const std::string& scan,
                                                std::optional<uint32_t> uid) {
  OCTAVO_ASSIGN_OR_RETURN(auto session, Find(scan));
  OCTAVO_ASSIGN_OR_RETURN(auto port, session->Ring());
  if (config_.handoff == nullptr) {
    return WithInfo(absl::FailedPreconditionError(
                        "this server has no socket that hands descriptors over (handoff.unix)"),
                    {.reason = "HANDOFF_DISABLED", .field = "", .numbers = {}});
  }
  OCTAVO_ASSIGN_OR_RETURN(const handoff::Ticket ticket,
                          config_.handoff->Issue(std::make_shared<source::RingGrant>(port), uid));
  const source::RingLimits& limits = port->limits();
  return RingTicket{.path = ticket.path,
                    .nonce = ticket.nonce,
                    .expires_seconds = ticket.expires_seconds,
                    .total_bytes = limits.total_bytes(),
                    .slots = limits.slots,
                    .block_records = limits.block_records,
                    .record_bytes = limits.record_bytes,
                    .total_records = port->total_records()};
}

model::ScanStatus EngineImpl::StatusOf(scan::ScanSession& session) {
  model::ScanStatus status = session.Status();
  if (status.state == model::ScanState::kQueued)
    status.queue_position = queues_.PositionOf(status.spec.queue.name, status.name);
  return status;
}

absl::StatusOr<std::shared_ptr<scan::ScanSession>> EngineImpl::Find(const std::string& name) {
  MutexLock lock(mutex_);
  auto it = sessions_.find(name);
  if (it == sessions_.end()) {
    return WithInfo(absl::NotFoundError(absl::StrCat("no scan ", name)),
                    {.reason = "NO_SCAN", .field = "name", .numbers = {}});
  }
  return it->second;
}

std::vector<std::shared_ptr<scan::ScanSession>> EngineImpl::Sessions() {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<scan::ScanSession>> list;
  for (const auto& [name, session] : sessions_) list.push_back(session);
  return list;
}

absl::StatusOr<std::shared_ptr<scan::ScanSession>> EngineImpl::Admit(
    const model::ScanSpec& spec, model::AdmissionReport* report) {
  OCTAVO_ASSIGN_OR_RETURN(model::ResolvedScan scan, scan::ResolveScan(spec, config_.replay_roots));
  OCTAVO_RETURN_IF_ERROR(scan::CheckAutoCommit(scan, storage_->roots()));
  OCTAVO_RETURN_IF_ERROR(CheckChains(scan));
  OCTAVO_RETURN_IF_ERROR(CheckSpill(scan.spec.retention));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> chosen, DevicesFor(scan));
  const int index = chosen[0];
  OCTAVO_ASSIGN_OR_RETURN(auto source, source::OpenSource(scan.spec, config_.replay_roots, clock_));
  Device& device = *devices_[At(index)];
  const std::string name = absl::StrCat("scans/", base::NewId(config_.server_id));
  model::AdmissionReport admission;
  // Slots of the same layout that an ended scan left are taken over.
  const bool striped = scan.stripe_devices > 1;
  auto grant = ledger_.ReserveReusing(index, name, spec.title, scan::Needs(scan, device),
                                      striped ? std::vector<memory::Ledger::ChargeId>{}
                                              : slot_cache_.Find(scan::LayoutOf(scan, index)),
                                      &admission);
  scan::AddRunFigures(scan, storage_->roots(), SpillFree(scan), &admission);
  if (report != nullptr) *report = admission;
  if (!grant.ok()) return grant.status();
  memory::ChargeHolder charges = HoldForScan();
  charges.Add(grant->charges);
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
      .ledger = &ledger_,
      .store = &volumes_,
      .publisher = &publisher_,
      .frames = frames_[At(index)],
      .clock = clock_,
      .server_id = config_.server_id,
      .slot_cache = &slot_cache_,
      .relief = std::make_shared<scan::StorageRelief>(spiller_.get(), &committer_),
      .observer = this};
  const model::QueueOptions queue = scan.spec.queue;
  (void)charges.Keep();  // the session's from here on, or they end with it
  auto created = scan::ScanSession::Create(name, std::move(scan), std::move(source), grant->charges,
                                           std::move(context));
  if (!created.ok()) {
    MutexLock lock(mutex_);
    ++past_.allocation_failures[base::DeviceName(index)];
    return Annotate(created.status(),
                    absl::StrCat("while allocating for the scan on ", base::DeviceName(index)));
  }
  std::shared_ptr<scan::ScanSession> session = *std::move(created);
  absl::Cleanup unlisted = [&] {  // then it ends with its last reference
    MutexLock lock(mutex_);
    sessions_.erase(name);
    std::erase(order_, name);
  };
  {
    MutexLock lock(mutex_);
    sessions_[name] = session;
    order_.push_back(name);
    ForgetOldScans();
  }
  queues_.Add(session, queue);
  (void)Failpoint("scan_begun");
  std::move(unlisted).Cancel();
  if (draining_)
    session->Stop("DRAINED",
                  "the server is draining");  // it may have begun since this scan was let in
  return session;
}

void EngineImpl::OnScanChanged(const std::string&) { watches_.Wake(); }

void EngineImpl::OnAcquisitionOver(const std::string& scan, const std::string& queue) {
  queues_.Acquired(queue, scan);
}

void EngineImpl::OnCommitWanted(const std::string& volume, const model::CommitOptions& options) {
  (void)AutoCommit(volume, options);
}

memory::ChargeHolder EngineImpl::HoldForScan() {
  // A slot of the cache that was to be used by the scan is freed.
  return memory::ChargeHolder(&ledger_,
                              [this](memory::Ledger::ChargeId id) { (void)slot_cache_.Take(id); });
}

absl::StatusOr<std::vector<scan::ScanDevice>> EngineImpl::ReservePeers(
    const model::ResolvedScan& scan, const std::string& name, const std::vector<int>& chosen,
    memory::ChargeHolder* held, model::AdmissionReport* report) {
  std::vector<scan::ScanDevice> peers;
  for (size_t i = 1; i < chosen.size(); ++i) {
    Device& device = *devices_[At(chosen[i])];
    model::AdmissionReport of_peer;
    auto charges =
        ledger_.Reserve(chosen[i], name, scan.spec.title, scan::PeerNeeds(scan, device), &of_peer);
    if (!charges.ok()) {
      if (report != nullptr) *report = std::move(of_peer);
      return charges.status();
    }
    held->Add(*charges);
    peers.push_back({.device = &device, .index = chosen[i], .charges = *std::move(charges)});
  }
  return peers;
}

absl::Status EngineImpl::CheckSpill(const model::Retention& retention) {
  const auto check = [&](const char* field, bool wanted, model::Tier tier) {
    if (!wanted) return absl::OkStatus();
    const absl::Status status = spiller_->CheckTier(tier);
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

int64_t EngineImpl::SpillFree(const model::ResolvedScan& scan) {
  const model::OnFull on_full = scan.spec.retention.on_full;
  return model::Spills(on_full) ? spiller_->FreeOf(model::TierOf(on_full)) : 0;
}

void EngineImpl::ForgetOldScans() {
  int64_t bytes = 0;
  for (const auto& [name, session] : sessions_)
    bytes += session->finished() ? session->ListedBytes() : 0;
  const auto too_many = [&] {
    return std::ssize(order_) > config_.history_entries || bytes > config_.history_bytes;
  };
  if (!too_many()) return;
  const std::set<std::string> needed = volumes_.ScansInMemory();
  for (auto it = order_.begin(); too_many() && it != order_.end();) {
    auto session = sessions_.find(*it);
    if (session != sessions_.end() && session->second->finished() && needed.count(*it) == 0) {
      bytes -= session->second->ListedBytes();
      AddSession(*session->second, session->second->Status(), &past_);
      volumes_.ForgetScan(*it);
      spiller_->ForgetScan(*it);
      sessions_.erase(session);
      it = order_.erase(it);
    } else {
      ++it;
    }
  }
}

absl::Status EngineImpl::CheckChains(const model::ResolvedScan& scan) const {
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

}  // namespace octavo::engine
