#include "server/scan/scan_session.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/processing/stored_form.h"
#include "server/scan/internal.h"
#include "server/scan/resolve_scan.h"
#include "server/source/push_records.h"

namespace octavo::scan {
namespace {

std::jthread NamedThread(const char* name, std::function<void(std::stop_token)> body) {
  return std::jthread([name, body = std::move(body)](std::stop_token stop) {
    pthread_setname_np(pthread_self(), name);
    body(stop);
  });
}

}  // namespace

ScanSession::ScanSession(std::string name, model::ResolvedScan scan,
                         std::unique_ptr<source::Source> source, SessionContext context)
    : name_(std::move(name)),
      client_session_(scan.spec.session),
      context_(std::move(context)),
      source_(std::move(source)),
      push_(source_->push()),
      ring_port_(source_->ring()),
      device_(*context_.device),
      scan_(std::move(scan)) {
  MutexLock update_lock(update_mutex_);
  latest_ = scan_;
  MutexLock lock(status_mutex_);
  status_.name = name_;
  status_.spec = SpecAsTold(scan_);
  status_.created = context_.clock->Now();
  status_.device = base::DeviceName(context_.device_index);
  if (!context_.peers.empty()) status_.spread_devices.push_back(status_.device);
  for (const SessionPeer& peer : context_.peers)
    status_.spread_devices.push_back(base::DeviceName(peer.index));
}

absl::StatusOr<std::unique_ptr<ScanSession>> ScanSession::Create(
    std::string name, model::ResolvedScan scan, std::unique_ptr<source::Source> source,
    const std::vector<memory::Ledger::ChargeId>& charges, SessionContext context) {
  memory::SlotCache* const cache = context.slot_cache;
  // Declared before the session: memory is freed first, then the charges end.
  memory::ChargeHolder held(context.ledger, [cache](memory::Ledger::ChargeId id) {
    if (cache != nullptr) (void)cache->Take(id);  // freed: it was to be used by this scan
  });
  held.Add(charges);
  for (const SessionPeer& peer : context.peers) held.Add(peer.charges);
  std::unique_ptr<ScanSession> session(
      new ScanSession(std::move(name), std::move(scan), std::move(source), std::move(context)));
  session->MakeThreads();
  OCTAVO_RETURN_IF_ERROR(session->Allocate(charges));
  session->RecordEvent({.kind = model::EventKind::kState,
                        .text = absl::StrCat("scan ", Name(model::ScanState::kQueued))});
  for (const std::string& warning : session->scan_.warnings) session->Warn(warning);
  if (session->push_ != nullptr)
    session->push_->OnDoubt([s = session.get()](const std::string& text) { s->Warn(text); });
  (void)held.Keep();
  return session;
}

// Threads are reserved with the scan, like its memory: where none can start any more the scan is
// refused, and none is missing later.
void ScanSession::MakeThreads() {
  const auto make = [this](const char* name, std::function<void(std::stop_token)> body) {
    (void)Failpoint("thread_started");
    return NamedThread(name, [this, body = std::move(body)](const std::stop_token& stop) {
      gate_.wait(Gate::kClosed);
      if (gate_ == Gate::kOpen) body(stop);
    });
  };
  copy_thread_ = make("oct-copy", [this](const std::stop_token& stop) { CopyVolumes(stop); });
  retire_thread_ = make("oct-retire", [this](const std::stop_token&) { FollowCompletions(); });
  acquire_thread_ = make("oct-acquire", [this](const std::stop_token& stop) {
    lender_ == nullptr ? Acquire(stop) : AcquireLent(stop);
  });
  compute_thread_ = make("oct-compute", [this](const std::stop_token&) { Compute(); });
}

void ScanSession::OpenGate(Gate gate) {
  gate_ = gate;
  gate_.notify_all();
}

void ScanSession::Start() {
  if (!started_.exchange(true)) Begin();
}

void ScanSession::Begin() {
  {
    MutexLock lock(status_mutex_);
    status_.started = context_.clock->Now();
    records_rate_.Add(status_.started.monotonic_ns, 0);
    volumes_rate_.Add(status_.started.monotonic_ns, 0);
  }
  if (!abort_.stop_requested()) SetState(model::ScanState::kRunning);
  OpenGate(Gate::kOpen);
}

ScanSession::~ScanSession() {
  if (push_ != nullptr) push_->OnDoubt(nullptr);
  if (!allocated_) OpenGate(Gate::kNever);
  if (!ended_ && allocated_) Cancel();
  if (compute_thread_.joinable()) compute_thread_.join();
  if (retire_thread_.joinable()) retire_thread_.join();
}

void ScanSession::SetState(model::ScanState state) {
  {
    MutexLock events(event_mutex_);  // who sees the state finds its event
    {
      MutexLock lock(status_mutex_);
      if (status_.state == state || IsFinal(status_.state)) return;
      status_.state = state;
    }
    RecordEventLocked({.kind = state == model::ScanState::kRunning ? model::EventKind::kStarted
                               : IsFinal(state)                    ? model::EventKind::kFinished
                                                                   : model::EventKind::kState,
                       .text = absl::StrCat("scan ", Name(state)),
                       .time = context_.clock->Now()},
                      /*publish=*/true);
  }
  context_.changed();
}

bool ScanSession::EndWith(model::ScanState state, Reason code, const std::string& reason) {
  MutexLock lock(status_mutex_);
  if (!status_.reason_code.empty()) return false;
  end_state_ = state;
  status_.reason_code = std::string(Name(code));
  status_.reason = reason;
  return true;
}

model::ScanStatus ScanSession::Status() {
  const auto counts = context_.store->CountOf(name_);
  const model::SourceCounts source = SourceCountsNow();
  model::ScanStatus status = StatusWithoutEvents();
  status.source = source;
  status.volumes_held = counts.held;
  status.volumes_committed = counts.committed;
  status.volumes_discarded = counts.discarded;
  status.volumes_overwritten = counts.overwritten;
  status.commit_failures = counts.commit_failures;
  status.volumes_spilled = counts.spilled;
  status.volumes_expired = counts.expired;
  status.spill_failures = context_.spill_failures(name_);
  status.volumes = counts.in_memory;
  status.missing_ascans = missing_ascans_;
  status.blocks_dropped = blocks_dropped_;
  // In the source's records: what the source refused, and what the scan found no place for.
  status.duplicate_records = source.duplicate_records + duplicate_records_ * record_average_;
  status.out_of_range_records =
      source.out_of_range_records + out_of_range_records_ * record_average_;
  status.bytes_per_second = status.records_per_second * static_cast<double>(record_bytes_) /
                            static_cast<double>(record_average_);
  MutexLock lock(event_mutex_);  // after the state: its event is there
  status.events.assign(recent_events_.begin(), recent_events_.end());
  status.event_count = event_count_;
  return status;
}

model::SourceCounts ScanSession::SourceCountsNow() {
  MutexLock lock(source_mutex_);
  if (!source_gone_) return source_->Counts();
  if (push_ == nullptr) return last_counts_;
  model::SourceCounts counts =
      push_->Counts();  // clients may still send what the scan does not take
  counts.connected = false;
  return counts;
}

int64_t ScanSession::ListedBytes() {
  int64_t bytes = int64_t{32} << 10;  // the rest: names, rates, histograms, a ring without memory
  {
    MutexLock lock(status_mutex_);
    const model::ScanSpec& spec = status_.spec;
    const model::Processing& p = spec.processing;
    const size_t doubles = spec.pattern.points_x_mm.size() + spec.pattern.points_y_mm.size() +
                           p.k_polynomial.size() + p.k_wavelength_nm.size();
    const size_t floats = p.background_spectrum.size() + p.k_index.size() + p.window_values.size() +
                          p.dispersion_phase.size();
    bytes += static_cast<int64_t>(8 * doubles + 4 * floats + status_.plan.size());
    for (const auto& [key, value] : spec.labels) bytes += std::ssize(key) + std::ssize(value) + 64;
  }
  MutexLock lock(event_mutex_);
  for (const model::ScanEvent& event : recent_events_)
    bytes += static_cast<int64_t>(sizeof event) + std::ssize(event.text) + std::ssize(event.marker);
  return bytes;
}

model::ScanState ScanSession::state() {
  MutexLock lock(status_mutex_);
  return status_.state;
}

model::ScanStatus ScanSession::StatusWithoutEvents() {
  MutexLock lock(status_mutex_);
  model::ScanStatus status = status_;
  const int64_t now = context_.clock->Now().monotonic_ns;
  if (IsFinal(status.state)) {
    const double seconds = static_cast<double>(std::max<int64_t>(
                               status.ended.monotonic_ns - status.started.monotonic_ns, 1)) *
                           1e-9;
    status.records_per_second = static_cast<double>(status.records) / seconds;
    status.volumes_per_second = static_cast<double>(status.volumes_done) / seconds;
  } else {
    status.records_per_second = records_rate_.PerSecond(now);
    status.volumes_per_second = volumes_rate_.PerSecond(now);
    status.ring_occupancy = RingOccupancy();
  }
  return status;
}

double ScanSession::RingOccupancy() {
  return lender_ == nullptr ? ring_->Occupancy() : lender_->Occupancy();
}

ScanSession::Timings ScanSession::TimingsNow() {
  MutexLock lock(status_mutex_);
  return timings_;
}

model::ResolvedScan ScanSession::Resolved() {
  MutexLock lock(update_mutex_);
  return latest_;
}

// The charge ends with the processor: however often a scan is updated, it holds two at most and
// those that the device still uses.
absl::StatusOr<std::shared_ptr<SpectralProcessor>> ScanSession::ProcessorFor(
    const model::ResolvedScan& scan, Device& device, int index) {
  OCTAVO_ASSIGN_OR_RETURN(
      auto charges,
      context_.ledger->Reserve(index, name_, scan.spec.title,
                               {{.what = "chain workspace",
                                 .bytes = SpectralProcessor::DeviceBytes(scan.chain, device),
                                 .count = 1}},
                               nullptr));
  const auto held = std::make_shared<memory::ChargeHolder>(context_.ledger, std::move(charges));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<SpectralProcessor> created,
                          SpectralProcessor::Create(scan.chain, device));
  return std::shared_ptr<SpectralProcessor>(created.release(),
                                            [held](SpectralProcessor* p) { delete p; });
}

absl::Status ScanSession::CanUpdate() {
  MutexLock lock(status_mutex_);
  if (status_.state == model::ScanState::kRunning || status_.state == model::ScanState::kQueued)
    return absl::OkStatus();
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat(name_, " is ", Name(status_.state),
                                                 "; only QUEUED and RUNNING scans can be updated")),
      {.reason = Reason::kScanState, .field = "name", .numbers = {{"state", Name(status_.state)}}});
}

absl::Status ScanSession::Update(const model::ResolvedScan& updated) {
  OCTAVO_RETURN_IF_ERROR(CanUpdate());
  OCTAVO_ASSIGN_OR_RETURN(auto processor, ProcessorFor(updated, device_, context_.device_index));
  std::vector<std::shared_ptr<SpectralProcessor>> of_peers;
  for (const SessionPeer& peer : context_.peers) {
    OCTAVO_ASSIGN_OR_RETURN(auto of_peer, ProcessorFor(updated, *peer.device, peer.index));
    of_peers.push_back(std::move(of_peer));
  }
  MutexLock lock(update_mutex_);
  if (finished_) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name_, " has ended")),
                    {.reason = Reason::kScanState, .field = "name", .numbers = {}});
  }
  next_processor_.swap(processor);
  next_peer_processors_.swap(of_peers);
  latest_ = updated;
  MutexLock status_lock(status_mutex_);
  status_.spec.processing = updated.spec.processing;
  status_.plan = DescribeSource(updated) + next_processor_->Describe() + "\n" +
                 DescribeSpacing(updated) +
                 processing::DescribeMemory(updated, VolumeSlots(updated));
  return absl::OkStatus();
}

std::shared_ptr<processing::ChainState> ScanSession::chain_memory() {
  MutexLock lock(update_mutex_);
  return chain_memory_;
}

void ScanSession::Stop(Reason reason_code, const std::string& reason) {
  if (EndWith(model::ScanState::kDone, reason_code, reason))
    PublishEvent({.kind = model::EventKind::kInterrupted, .text = reason});
  stop_at_volume_ = true;
  SetState(model::ScanState::kDraining);
  if (!started_.exchange(true)) {  // QUEUED: there is no volume to wait for
    abort_.request_stop();
    Begin();
  }
}

void ScanSession::Cancel(Reason reason_code, const std::string& reason) {
  bool news = EndWith(model::ScanState::kCancelled, reason_code, reason);
  {
    // A stop that has not come to its end yet becomes a cancel.
    MutexLock lock(status_mutex_);
    if (!IsFinal(status_.state) && end_state_ == model::ScanState::kDone) {
      news = true;
      end_state_ = model::ScanState::kCancelled;
      status_.reason_code = std::string(Name(reason_code));
      status_.reason = reason;
    }
  }
  if (news) PublishEvent({.kind = model::EventKind::kInterrupted, .text = reason});
  abort_.request_stop();
  SetState(model::ScanState::kDraining);
  Start();  // a QUEUED one goes the way of all scans, only without a record
}

}  // namespace octavo::scan
