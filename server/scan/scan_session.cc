#include "server/scan/scan_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/source/push_records.h"
#include "server/source/ring_port.h"

namespace octavo::scan {

ScanSession::ScanSession(std::string name, model::ResolvedScan scan,
                         std::unique_ptr<source::Source> source,
                         const std::vector<memory::Ledger::ChargeId>& charges,
                         SessionContext context)
    : name_(std::move(name)),
      client_session_(scan.spec.session),
      owner_(scan.spec.owner),
      context_(std::move(context)),
      scan_(std::move(scan)),
      progress_(context_.clock),
      events_(name_, scan_, context_.clock, context_.publisher, context_.observer),
      life_(name_, context_.clock, &events_, context_.observer),
      memory_(scan_, context_.ledger, context_.slot_cache, Devices(charges)),
      updates_(name_, scan_, context_.ledger, Devices({})),
      lanes_(scan_, Devices({})),
      acquirer_(std::move(source), scan_, &progress_),
      frames_(name_, context_.store, context_.publisher, context_.frames),
      retention_(scan_.spec.retention, VolumeSlots(scan_),
                 {.scan = name_,
                  .store = context_.store,
                  .relief = context_.relief.get(),
                  .observer = context_.observer,
                  .source_waits = acquirer_.can_wait(),
                  .ring_occupancy = [a = &acquirer_] { return a->Occupancy(); },
                  .slots_return = [c = &completions_,
                                   f = &frames_] { return c->Volumes() > 0 || f->KeepsSlots(); },
                  .aborted = life_.aborted()}),
      products_(scan_, &lanes_,
                {.scan = name_,
                 .publisher = context_.publisher,
                 .frames = context_.frames,
                 .source_waits = acquirer_.can_wait(),
                 .ring_occupancy = [a = &acquirer_] { return a->Occupancy(); },
                 .volumes_behind = [c = &completions_] { return c->Volumes(); }}),
      record_frames_(name_, context_.publisher),
      tap_(name_, context_.publisher, &record_frames_),
      builder_(&scan_, &lanes_,
               {.scan = name_,
                .server_id = context_.server_id,
                .device_index = context_.device_index,
                .store = context_.store,
                .memory = &memory_,
                .updates = &updates_,
                .retention = &retention_,
                .events = &events_,
                .progress = &progress_,
                .life = &life_}),
      pipeline_(scan_, {.scan = name_,
                        .clock = context_.clock,
                        .acquirer = &acquirer_,
                        .lanes = &lanes_,
                        .builder = &builder_,
                        .products = &products_,
                        .tap = &tap_,
                        .completions = &completions_,
                        .events = &events_,
                        .progress = &progress_,
                        .life = &life_}),
      sealer_(scan_, {.scan = name_,
                      .clock = context_.clock,
                      .completions = &completions_,
                      .lanes = &lanes_,
                      .acquirer = &acquirer_,
                      .memory = &memory_,
                      .store = context_.store,
                      .publisher = context_.publisher,
                      .frames = &frames_,
                      .retention = &retention_,
                      .events = &events_,
                      .progress = &progress_,
                      .life = &life_}) {}

std::vector<ScanDevice> ScanSession::Devices(
    const std::vector<memory::Ledger::ChargeId>& charges) const {
  std::vector<ScanDevice> devices = {
      {.device = context_.device, .index = context_.device_index, .charges = charges}};
  devices.insert(devices.end(), context_.peers.begin(), context_.peers.end());
  return devices;
}

absl::StatusOr<std::unique_ptr<ScanSession>> ScanSession::Create(
    std::string name, model::ResolvedScan scan, std::unique_ptr<source::Source> source,
    const std::vector<memory::Ledger::ChargeId>& charges, SessionContext context) {
  memory::SlotCache* const cache = context.slot_cache;
  // Declared before the session: memory is freed first, then the charges end.
  memory::ChargeHolder held(context.ledger, [cache](memory::Ledger::ChargeId id) {
    if (cache != nullptr) (void)cache->Take(id);  // freed, because this scan was to use it
  });
  held.Add(charges);
  for (const ScanDevice& peer : context.peers) held.Add(peer.charges);
  std::unique_ptr<ScanSession> session(new ScanSession(
      std::move(name), std::move(scan), std::move(source), charges, std::move(context)));
  session->MakeThreads();
  OCTAVO_RETURN_IF_ERROR(base::ExceptionToStatus([&] { return session->Allocate(); }));
  session->RecordEvent({.kind = model::EventKind::kState,
                        .text = absl::StrCat("scan ", Name(model::ScanState::kQueued)),
                        .scan_state = model::ScanState::kQueued});
  for (const std::string& warning : session->scan_.warnings) session->Warn(warning);
  if (const auto& push = session->acquirer_.push(); push != nullptr)
    push->OnDoubt([s = session.get()](const std::string& text) { s->Warn(text); });
  (void)held.Keep();
  return session;
}

void ScanSession::MakeThreads() {
  // A thread that an exception breaks off, such as for lack of memory, does what the other threads
  // wait for all the same: the scan fails, the server goes on.
  threads_.copy = threads_.Make("oct-copy", [this](const std::stop_token&) {
    while (!base::GuardedTurn("a copy of a volume broke off", [this] { frames_.Run(); })) continue;
  });
  threads_.records = threads_.Make("oct-records", [this](const std::stop_token&) {
    while (!base::GuardedTurn("frames of records broke off", [this] { record_frames_.Run(); }))
      continue;
  });
  threads_.retire = threads_.Make("oct-retire", [this](const std::stop_token&) {
    while (!base::GuardedTurn("oct-retire broke off", [this] { sealer_.Run(); })) life_.Abort();
    Finish();
  });
  threads_.acquire = threads_.Make("oct-acquire", [this](const std::stop_token& stop) {
    const absl::Status status = base::ExceptionToStatus([&] {
      (void)Failpoint("acquire_turn");
      acquirer_.Run(stop, life_.aborted());
      return absl::OkStatus();
    });
    if (!status.ok()) acquirer_.ring().Close(status);
  });
  threads_.compute = threads_.Make("oct-compute", [this](const std::stop_token&) {
    if (!base::GuardedTurn("oct-compute broke off",
                           [this] { pipeline_.Run([this] { StopAcquiring(); }); })) {
      base::GuardedTurn("the scan's end has no reason", [this] {
        life_.Fail(Reason::kInternal,
                   "the thread oct-compute broke off; the server's log says why");
      });
      life_.Abort();
      base::GuardedTurn("the source is not closed", [this] { StopAcquiring(); });
    }
    base::GuardedTurn("the scan's state is not told",
                      [this] { life_.SetState(model::ScanState::kDraining); });
    completions_.Close();
  });
}

absl::Status ScanSession::Allocate() {
  Device& home = *context_.device;
  OCTAVO_RETURN_IF_ERROR(lanes_.OpenStreams());
  OCTAVO_RETURN_IF_ERROR(frames_.OpenStream(home));
  OCTAVO_RETURN_IF_ERROR(memory_.AllocateSlots(lanes_.compute()));
  OCTAVO_RETURN_IF_ERROR(acquirer_.Allocate(home));
  OCTAVO_RETURN_IF_ERROR(lanes_.Allocate());
  OCTAVO_RETURN_IF_ERROR(products_.Allocate());
  OCTAVO_RETURN_IF_ERROR(builder_.Allocate());
  // A slot of the ring may be taken in parts; more of them than this would wait for the device.
  const int64_t events = 2 * scan_.spec.acquisition.ring_blocks + VolumeSlots(scan_) + 2;
  OCTAVO_RETURN_IF_ERROR(
      completions_.Allocate(home, events, lanes_.size(), scan_.chain.raw_type == DType::kF32));
  OCTAVO_RETURN_IF_ERROR(memory_.AllocateChains());
  context_.frames->PrepareForVolumes(scan_.volume_bytes);  // last: of what is left
  acquirer_.source().OnNews([e = &events_](const std::string& text) {
    e->Publish({.kind = model::EventKind::kSource, .text = text, .record = e->next_record()});
  });
  updates_.Describe(lanes_.Describe());
  (void)Failpoint("scan_allocated");
  context_.publisher->ScanStarted(name_, scan_.spec.labels,
                                  {.extents = {scan_.shape[0], scan_.shape[1], scan_.shape[2]},
                                   .has_aip = scan_.spec.products.aip,
                                   .has_angiogram = scan_.spec.products.angiography != 0,
                                   .has_records = true,
                                   .no_ascans = RecordTap::WhyNotAlone(scan_),
                                   .striped = scan_.stripe_devices > 1,
                                   .volume_bytes = scan_.volume_bytes,
                                   .volumes_stay = StayOf(scan_.spec.retention)});
  memory_.Begin();  // last: from here on, the session ends like any scan
  return absl::OkStatus();
}

ScanSession::~ScanSession() {
  if (acquirer_.push() != nullptr) acquirer_.push()->OnDoubt(nullptr);
  const bool allocated = memory_.begun();
  if (!allocated) threads_.NeverOpen();
  if (allocated && !finished()) Cancel();
  if (threads_.compute.joinable()) threads_.compute.join();
  if (threads_.retire.joinable()) threads_.retire.join();
}

void ScanSession::Start() {
  if (life_.TakeStart()) Begin();
}

void ScanSession::Begin() {
  progress_.Begin(life_.Begin().monotonic_ns);
  threads_.Open();
}

// Does not wait for the device: the next scan may begin while this one drains.
void ScanSession::StopAcquiring() {
  threads_.acquire.request_stop();
  if (threads_.acquire.joinable()) threads_.acquire.join();
  acquirer_.source().Close();
  context_.observer->OnAcquisitionOver(name_, scan_.spec.queue.name);
}

model::ScanStatus ScanSession::Status() {
  const auto counts = context_.store->CountOf(name_);
  model::ScanStatus status;
  status.source = acquirer_.Counts();
  updates_.AddTo(&status);
  status.spec.owner = owner_;
  life_.AddTo(&status);  // before the counts: the counts of a final state no longer change
  progress_.AddTo(&status);
  if (IsFinal(status.state)) {
    const double seconds = static_cast<double>(std::max<int64_t>(
                               status.ended.monotonic_ns - status.started.monotonic_ns, 1)) *
                           1e-9;
    status.records_per_second = static_cast<double>(status.records) / seconds;
    status.volumes_per_second = static_cast<double>(status.volumes_done) / seconds;
  } else {
    status.ring_occupancy = acquirer_.Occupancy();
  }
  status.warnings = events_.Warnings();
  status.volumes_held = counts.held;
  status.volumes_committed = counts.committed;
  status.volumes_discarded = counts.discarded;
  status.volumes_overwritten = counts.overwritten;
  status.commit_failures = counts.commit_failures;
  status.volumes_spilled = counts.spilled;
  status.volumes_expired = counts.expired;
  status.spill_failures = context_.relief->SpillFailures(name_);
  status.volumes = counts.in_memory;
  // Counted in records of the source: those that the source refused, and those without a place in
  // the scan.
  const int64_t average = acquirer_.record_average();
  status.duplicate_records =
      status.source.duplicate_records + progress_.duplicate_records * average;
  status.out_of_range_records =
      status.source.out_of_range_records + progress_.out_of_range_records * average;
  status.bytes_per_second = status.records_per_second *
                            static_cast<double>(acquirer_.record_bytes()) /
                            static_cast<double>(average);
  events_.AddTo(&status);
  return status;
}

int64_t ScanSession::ListedBytes() {
  // The rest: names, rates, histograms, a ring without memory.
  return (int64_t{32} << 10) + updates_.ListedBytes() + events_.ListedBytes();
}

absl::Status ScanSession::CanUpdate() {
  return life_.Require({model::ScanState::kRunning, model::ScanState::kQueued}, "name",
                       "; only QUEUED and RUNNING scans can be updated");
}

absl::Status ScanSession::Update(const model::ResolvedScan& updated) {
  OCTAVO_RETURN_IF_ERROR(CanUpdate());
  return updates_.Offer(updated);
}

void ScanSession::Stop(Reason reason_code, const std::string& reason) {
  life_.StopAtVolume(reason_code, reason);
  if (life_.TakeStart()) {  // QUEUED: there is no volume to wait for
    life_.Abort();
    Begin();
  }
}

void ScanSession::Cancel(Reason reason_code, const std::string& reason) {
  life_.Cancel(reason_code, reason);
  Start();  // a QUEUED scan takes the way of all scans, without records
}

void ScanSession::DeviceLost() {
  if (!life_.CanFail()) return;
  const DeviceLanes::Failure failure = lanes_.FailureOf(absl::UnavailableError("a device is lost"));
  life_.Fail(failure.code, failure.reason);
  life_.SetState(model::ScanState::kDraining);
  Start();  // a QUEUED scan takes the way of all scans, without records
}

absl::StatusOr<model::ScanEvent> ScanSession::Mark(const std::string& marker) {
  if (marker.empty() || marker.size() > 63) {
    return InvalidField("marker",
                        absl::StrCat("has ", marker.size(), " characters; allowed 1 to 63"));
  }
  OCTAVO_RETURN_IF_ERROR(life_.Require({model::ScanState::kRunning, model::ScanState::kDraining},
                                       "name", "; only a scan that runs can be marked"));
  return events_.Mark(marker);
}

absl::StatusOr<std::shared_ptr<source::PushPort>> ScanSession::Push() {
  if (acquirer_.push() == nullptr) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            name_, " fetches its records itself; only scans with source push take them")),
        {.reason = Reason::kNotPush, .field = "scan", .numbers = {}});
  }
  OCTAVO_RETURN_IF_ERROR(life_.Require({model::ScanState::kQueued, model::ScanState::kRunning,
                                        model::ScanState::kDraining, model::ScanState::kDone},
                                       "scan", ""));
  return acquirer_.push();
}

absl::StatusOr<std::shared_ptr<source::RingPort>> ScanSession::Ring() {
  const auto& port = acquirer_.ring_port();
  if (port == nullptr) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        name_, " has another source; only scans with source ring take a producer")),
                    {.reason = Reason::kNotRing, .field = "scan", .numbers = {}});
  }
  OCTAVO_RETURN_IF_ERROR(port->CanAttach());
  return port;
}

// The device has finished all work: frees memory that no held volume needs, then sets the final
// state. Retire thread.
void ScanSession::Finish() {
  frames_.Close();
  record_frames_.Close();
  if (threads_.copy.joinable()) threads_.copy.join();
  if (threads_.records.joinable()) threads_.records.join();
  (void)products_.stream().Synchronize();
  (void)frames_.stream().Synchronize();
  (void)lanes_.Synchronize();
  // Each step is done, whatever becomes of the others: without them, clients would wait for ever.
  const auto step = [](const auto& work) {
    return base::GuardedTurn("a step of a scan's end broke off", work);
  };
  step([this] { sealer_.CountNonFinite(); });
  step([this] { context_.store->ring().KeepAll(name_); });
  const model::ScanState end = life_.End();  // later calls do not change the end of the scan
  step([this] { updates_.Close(); });
  step([this] { memory_.EndChains(); });
  step([this] { FreeMemory(); });
  step([this] { progress_.End(); });
  step([this] { WarnOfMissing(); });
  // Before the state changes: a client that has seen the new state asks for B-scans of the held
  // volumes. Existing streams end after the last event.
  step([this] { context_.publisher->ScanEnding(name_); });
  place_.Release();  // likewise: it may submit the next scan
  while (!step([&] { life_.SetState(end); }) && !IsFinal(life_.state())) continue;
  step([this] { context_.publisher->ScanEnded(name_); });
  step([this] { LetGo(); });
  step([&] { LogEnd(end); });
  life_.Finish();
  step([this] { context_.observer->OnScanChanged(name_); });
}

void ScanSession::LogEnd(model::ScanState end) {
  const model::ScanStatus status = Status();
  Log(end == model::ScanState::kFailed ? LogLevel::kError : LogLevel::kInfo, "scan ended",
      {{"scan", name_},
       {"state", Name(end)},
       {"reason", std::string(Name(status.reason_code))},
       {"text", status.reason},
       {"volumes", status.volumes_done},
       {"records_per_second", status.records_per_second},
       {"missing_ascans", status.missing_ascans}});
}

void ScanSession::FreeMemory() {
  builder_.Free();
  products_.Free();
  lanes_.Free();
  acquirer_.FreeMemory();
  completions_.Free();
  tap_.Free();
  frames_.Free();
  memory_.CloseSlots();
  memory_.ReleaseCharges();
}

void ScanSession::WarnOfMissing() {
  const model::ScanStatus status = Status();
  if ((status.reason_code != Reason::kCompleted && status.reason_code != Reason::kSourceEnded) ||
      status.missing_ascans == 0)
    return;
  const int64_t came = std::max(status.source.records, status.records);
  const std::string why =
      status.source.late_records > 0
          ? absl::StrCat(
                status.source.late_records,
                " records came too late, behind ones of higher numbers, and were left out of ",
                came + status.source.late_records)
          : absl::StrCat("the source ended, or lost records, after ", came, " records");
  Warn(absl::StrCat(status.missing_ascans, " A-scans of the scan's volumes are missing: ", why,
                    ". Volume.missing_ascans says which volumes are not complete",
                    status.volumes_dropped > 0
                        ? absl::StrCat("; ", status.volumes_dropped,
                                       " volumes of which nothing came are not kept.")
                        : "."));
}

// Releases everything that only a running scan needs. Hundreds of ended scans stay listed, each
// with its request and its outcome.
void ScanSession::LetGo() {
  acquirer_.LetGo();
  builder_.LetGo();
  lanes_.LetGo();
  scan_ = model::ResolvedScan();
  updates_.LetGo();
}

}  // namespace octavo::scan
