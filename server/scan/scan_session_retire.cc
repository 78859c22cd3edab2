// The retire thread: follows the device, hands out what is finished, in order. Beside it the thread
// that copies whole volumes to host memory for subscribers.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/processing/stored_form.h"
#include "server/scan/internal.h"
#include "server/scan/scan_session.h"
#include "server/storage/commit/commit_store.h"
#include "server/volume/copy_volume.h"

namespace octavo::scan {
namespace {

constexpr int64_t kClockReadNs = 100'000'000;  // clocks drift apart by some microseconds a second

}  // namespace

void ScanSession::FollowCompletions() {
  for (;;) {
    Completion item;
    {
      MutexLock lock(retire_mutex_);
      while (retiring_count_ == 0 && !compute_done_) retire_cv_.Wait(lock);
      if (retiring_count_ == 0) break;
      item = std::move(retiring_[first_retiring_]);
      first_retiring_ = (first_retiring_ + 1) % retiring_.size();
      --retiring_count_;
    }
    absl::Status status = events_[static_cast<size_t>(item.event)].Synchronize();
    if (status.ok()) status = PeersStatus();
    if (!status.ok()) FailForDevice(status);
    if (item.ring_slot >= 0) ring_->Release(item.ring_slot);
    if (item.loan > 0) {
      ring_->ReleaseLent();
      lender_->Return(item.loan);
    }
    const int64_t now = context_.clock->Now().monotonic_ns;
    model::StageTimes stages;
    {
      MutexLock lock(status_mutex_);
      status_.records += item.records;
      records_rate_.Add(now, item.records);
      if (item.ring_slot >= 0 || item.loan > 0)
        timings_.stages["process"].Add(static_cast<double>(now - item.enqueued_ns) * 1e-9);
    }
    if (item.volume != nullptr) {
      if (status.ok()) {
        SealVolume(item);
      } else {
        context_.store->Fail(item.volume->status.name,
                             absl::StrCat("device error: ", status.message()));
        if (item.volume->raw_slot != nullptr)
          context_.store->Fail(item.volume->raw_status.name,
                               absl::StrCat("device error: ", status.message()));
      }
      stages = StagesOf(item, now);
    }
    for (PendingFrame& pending : item.frames) {
      if (!status.ok() || pending.lost) {
        context_.publisher->Lost(name_, pending.key,
                                 pending.yielded ? publish::Publisher::Loss::kYielded
                                                 : publish::Publisher::Loss::kNoMemory);
      } else {
        pending.frame.stages = stages;
        if (Failpoint("published_frame") != 0)
          *static_cast<uint8_t*>(const_cast<void*>(pending.frame.payload.data)) ^= 64;
        context_.publisher->Publish(pending.key, std::move(pending.frame));
      }
    }
    // Subscribers have been told; now what may take longer.
    if (item.volume != nullptr) {
      if (status.ok()) DisposeOf(*item.volume);
      if (item.first_records != nullptr) {
        if (const std::string doubt = item.first_records->Doubt(); !doubt.empty()) Warn(doubt);
        item.first_records = nullptr;
      }
      item.volume->slot = item.volume->raw_slot = nullptr;
      if (now - device_clock_.host_ns > kClockReadNs) {
        if (const auto reading = device_.ReadClock(); reading.ok()) device_clock_ = *reading;
      }
    }
    MutexLock lock(retire_mutex_);
    free_events_.push_back(item.event);
    volumes_retiring_ -= item.volume != nullptr;
    retire_cv_.NotifyAll();
  }
  Finish();
}

void ScanSession::SealVolume(Completion& item) {
  ActiveVolume& volume = *item.volume;
  const uint64_t* words = digests_.as<uint64_t>() + digest_words_ * static_cast<size_t>(item.event);
  uint64_t digest = 0;
  for (int64_t lane = 0; lane <= std::ssize(context_.peers); ++lane) {
    const uint64_t* of_lane = words + memory::kSealWords * lane;
    if (lane == 0 || striped()) digest += of_lane[0];
    volume.status.clipped_below += static_cast<int64_t>(of_lane[1]);
    volume.status.clipped_above += static_cast<int64_t>(of_lane[2]);
  }
  volume.status.digest = absl::StrFormat("sum64:%016x", digest);
  const model::Retention& retention = volume.retention;
  context_.store->Seal(volume.status, retention.mode != model::RetentionMode::kLive);
  if (retention.keep_last > 0) context_.store->ring().KeepNewest(name_, retention.keep_last);
  if (volume.raw_slot != nullptr) {
    volume.raw_status.digest = absl::StrFormat("sum64:%016x", words[digest_words_ - 1]);
    context_.store->Seal(volume.raw_status, retention.mode != model::RetentionMode::kLive);
  }
  TellNonFinite(static_cast<size_t>(item.event));
  CountClipped(volume.status);
  RecordEvent(
      {.kind = model::EventKind::kVolumeDone, .text = "volume HELD", .volume_index = volume.index});
  const int64_t now = context_.clock->Now().monotonic_ns;
  {
    MutexLock lock(status_mutex_);
    ++status_.volumes_done;
    status_.current_fraction = 0;
    volumes_rate_.Add(now, 1);
    timings_.volume_latency.Add(static_cast<double>(now - item.acquired.monotonic_ns) * 1e-9);
  }
}

void ScanSession::TellNonFinite(size_t event) {
  if (non_finite_.data() == nullptr) return;
  const uint64_t* counts = non_finite_.as<uint64_t>() + (1 + peers_.size()) * event;
  const auto sum =
      static_cast<int64_t>(std::accumulate(counts, counts + 1 + peers_.size(), uint64_t{0}));
  bool first = false;
  {
    MutexLock lock(status_mutex_);
    first = sum > 0 && status_.non_finite_records == 0;
    status_.non_finite_records = std::max(status_.non_finite_records, sum);
  }
  if (first) {
    Warn(
        "Records hold samples that are not finite (NaN, infinite). Their A-scans are NaN; in "
        "integers NaN is the lowest number. "
        "non_finite_records counts them.");
  }
}

namespace {
// Above this share of clipped voxels the levels hide more than noise. scan.proto
// (Processing.levels), gpu/README.md (What a voxel holds) and deploy/prometheus-rules.yml
// (OctavoVoxelsClipped) say the same.
constexpr double kClippedTold = 0.01;
}  // namespace

// Told once for each processing.
void ScanSession::CountClipped(const model::VolumeStatus& volume) {
  const int64_t voxels =
      (volume.shape[0] * volume.shape[1] - volume.missing_ascans) * volume.shape[2];
  {
    MutexLock lock(status_mutex_);
    status_.voxels += voxels;
    status_.clipped_below += volume.clipped_below;
    status_.clipped_above += volume.clipped_above;
  }
  const auto clipped = static_cast<double>(volume.clipped_below + volume.clipped_above);
  if (clipped <= kClippedTold * static_cast<double>(voxels) || clipping_told_ == volume.origin)
    return;
  clipping_told_ = volume.origin;
  Warn(processing::DescribeClipping(volume, voxels));
}

// What the device stamped, by the host's clock and in order: an error of the conversion must not
// make a stage negative.
model::StageTimes ScanSession::StagesOf(const Completion& item, int64_t seen_ns) {
  model::StageTimes stages{.taken_ns = item.enqueued_ns,
                           .seen_ns = seen_ns,
                           .sealed_ns = context_.clock->Now().monotonic_ns};
  int64_t before = stages.taken_ns;
  const auto host_time = [&](const int64_t* stamp) -> int64_t {
    if (stamp == nullptr || *stamp == 0 || device_clock_.host_ns == 0) return 0;
    return before = std::clamp(*stamp - device_clock_.device_ns + device_clock_.host_ns, before,
                               std::max(before, seen_ns));
  };
  stages.uploaded_ns = host_time(item.uploaded);
  stages.processed_ns = host_time(item.processed);
  stages.on_host_ns = host_time(item.on_host);
  if (stages.uploaded_ns != 0 && stages.on_host_ns != 0) {
    MutexLock lock(status_mutex_);
    timings_.stages["upload"].Add(static_cast<double>(stages.uploaded_ns - stages.taken_ns) * 1e-9);
    timings_.stages["download"].Add(static_cast<double>(stages.on_host_ns - stages.processed_ns) *
                                    1e-9);
    timings_.stages["publish"].Add(static_cast<double>(stages.sealed_ns - stages.on_host_ns) *
                                   1e-9);
  }
  return stages;
}

// Whole-volume frames, and what becomes of the volume by itself.
void ScanSession::DisposeOf(const ActiveVolume& volume) {
  const publish::TopicKey key{.product = model::Product::kVolume};
  for (const auto& wanted : context_.publisher->WantedOf(name_)) {
    if (wanted.key != key) continue;
    auto pinned = context_.store->Hold(volume.status.name, volume::HoldKind::kRead);
    MutexLock lock(copy_mutex_);
    if (!pinned.ok() ||
        copies_.size() >= 5) {  // the copying falls behind: memory must not pile up behind it
      context_.publisher->Lost(name_, key);
    } else {
      copies_.push_back({.pinned = *std::move(pinned),
                         .display_lo = volume.display_lo,
                         .display_hi = volume.display_hi});
      copy_cv_.NotifyAll();
    }
  }
  const model::Retention& retention = volume.retention;
  if (retention.disposition == model::Disposition::kAutoDiscard) {
    (void)context_.store->Discard(volume.status.name, "AUTO_DISCARD");
    if (volume.raw_slot != nullptr)
      (void)context_.store->Discard(volume.raw_status.name, "AUTO_DISCARD");
  } else if (retention.disposition == model::Disposition::kAutoCommit) {
    context_.auto_commit(volume.status.name, retention.auto_commit);
    if (volume.raw_slot != nullptr) {
      model::CommitOptions raw = retention.auto_commit;
      raw.destination += "_raw";
      context_.auto_commit(volume.raw_status.name, raw);
    }
  }
  // One slot ahead of the need: what is moved while the next volumes are acquired costs the scan
  // nothing.
  const int64_t free = slots_->Free();
  int64_t begun = 0;
  {
    MutexLock lock(status_mutex_);
    begun = status_.current_volume + 1;
  }
  const bool needed = wanted_records_ == 0 || wanted_records_ / volume_records_ - begun > free;
  if (model::Spills(retention.on_full) && retention.mode != model::RetentionMode::kLive && needed &&
      free <= 1) {
    context_.spill(name_, model::TierOf(retention.on_full));
  }
}

model::Frame VolumeFrame(const model::VolumeStatus& volume, double display_lo, double display_hi) {
  model::Frame frame;
  frame.scan = volume.scan;
  frame.volume = volume.name;
  frame.volume_index = volume.index;
  frame.product = model::Product::kVolume;
  frame.acquired = volume.acquired_end;
  frame.shape.assign(volume.shape, volume.shape + 3);
  frame.axes = {"y", "x", "z"};
  frame.spacing_um.assign(volume.spacing_um, volume.spacing_um + 3);
  frame.dtype = volume.dtype;
  frame.display_lo = display_lo;
  frame.display_hi = display_hi;
  return frame;
}

void ScanSession::CopyVolumes(std::stop_token) {
  const publish::TopicKey key{.product = model::Product::kVolume};
  for (;;) {
    VolumeFrameJob job;
    {
      MutexLock lock(copy_mutex_);
      while (copies_.empty() && !copies_end_) copy_cv_.Wait(lock);
      if (copies_.empty()) return;
      job = std::move(
          copies_.front());  // its place stays taken until its slot is free: see VolumesRetiring
    }
    auto payload = volume::CopyVolumeToHost(device_, copy_.ref(), *context_.frames, job.pinned);
    model::Frame frame = VolumeFrame(job.pinned.status, job.display_lo, job.display_hi);
    job.pinned.slot =
        nullptr;  // the slot is not needed any more: let it go before subscribers are served
    {
      MutexLock lock(copy_mutex_);
      copies_.pop_front();
    }
    if (!payload.ok()) {
      context_.publisher->Lost(name_, key);
      continue;
    }
    frame.payload = *std::move(payload);
    context_.publisher->Publish(key, std::move(frame));
  }
}

// What only a scan that runs needs. Ended ones stay listed by the hundred: with what the client
// asked for, and how it went.
void ScanSession::LetGo() {
  std::unique_ptr<source::Source> source;  // goes without the lock: a camera takes its time
  {
    MutexLock lock(source_mutex_);
    last_counts_ = source_->Counts();
    last_counts_.connected = false;  // nobody feeds what is gone
    source_gone_ = true;
    source = std::move(source_);
  }
  origin_ = nullptr;
  for (std::vector<BscanSpan>& spans : spans_) spans = {};
  for (std::vector<int64_t>& rows : span_rows_) rows = {};
  scan_ = model::ResolvedScan();
  MutexLock lock(update_mutex_);
  latest_ = model::ResolvedScan();
}

// Everything is through the device: free what is not held, then say how it ended.
void ScanSession::Finish() {
  {
    MutexLock lock(copy_mutex_);
    copies_end_ = true;
    copy_cv_.NotifyAll();
  }
  if (copy_thread_.joinable()) copy_thread_.join();
  for (StreamRef stream : {upload_.ref(), compute_.ref(), products_.ref(), copy_.ref()})
    (void)stream.Synchronize();
  SynchronizePeers();
  if (non_finite_.data() != nullptr && processor_ != nullptr &&
      CopyNonFinite(copy_.ref(), 0).ok() && copy_.ref().Synchronize().ok())
    TellNonFinite(0);
  context_.store->ring().KeepAll(name_);
  {
    MutexLock lock(update_mutex_);
    finished_ = true;
    next_processor_ = nullptr;
    next_peer_processors_.clear();
    chain_memory_ = nullptr;  // what is still being made keeps it
  }
  processor_ = nullptr;
  replaced_.clear();
  for (auto& raw : raw_) raw = DeviceBuffer();
  scratch_ = DeviceBuffer();
  for (auto* buffer : {&repeat_rows_, &angiogram_}) *buffer = DeviceBuffer();
  for (auto& table : placement_) table = DeviceBuffer();
  peers_.clear();
  home_ = nullptr;
  begun_ = Event();
  ring_memory_.clear();
  if (source::ZeroCopySource* lender = source_->lender(); lender != nullptr) lender->CloseMemory();
  {
    MutexLock lock(retire_mutex_);
    events_.clear();
  }
  for (Event* event : {uploaded_, raw_free_})
    std::for_each(event, event + kRawBuffers, [](Event& e) { e = Event(); });
  volume_ready_ = Event();
  for (Stream* stream : {&upload_, &compute_, &products_, &copy_}) *stream = Stream();
  slots_->Close();
  if (raw_slots_ != nullptr) raw_slots_->Close();
  recorder_ = nullptr;
  for (PinnedBuffer* words : {&digests_, &stamps_, &non_finite_}) *words = PinnedBuffer();
  for (const auto id : charges_) context_.ledger->Release(id);
  model::ScanState end;
  {
    MutexLock lock(status_mutex_);
    end = end_state_;
    status_.ended = context_.clock->Now();
    status_.current_volume = -1;
    status_.current_fraction = 0;
  }
  if (const model::ScanStatus so_far = Status();
      (so_far.reason_code == "COMPLETED" || so_far.reason_code == "SOURCE_ENDED") &&
      so_far.missing_ascans > 0) {
    const int64_t came = std::max(so_far.source.records, so_far.records);
    const std::string why =
        so_far.source.late_records > 0
            ? absl::StrCat(
                  so_far.source.late_records,
                  " records came too late, behind ones of higher numbers, and were left out of ",
                  came + so_far.source.late_records)
            : absl::StrCat("the source ended, or lost records, after ", came, " records");
    Warn(absl::StrCat(so_far.missing_ascans, " A-scans of the scan's volumes are missing: ", why,
                      ". Volume.missing_ascans says which volumes are not complete",
                      so_far.volumes_dropped > 0
                          ? absl::StrCat("; ", so_far.volumes_dropped,
                                         " volumes of which nothing came are not kept.")
                          : "."));
  }
  // Before the state: a client that has seen it asks for B-scans of what is held. The streams that
  // are there end after the last event.
  context_.publisher->ScanEnding(name_);
  SetState(end);
  context_.publisher->ScanEnded(name_);
  LetGo();
  const model::ScanStatus status = Status();
  Log(end == model::ScanState::kFailed ? LogLevel::kError : LogLevel::kInfo, "scan ended",
      {{"scan", name_},
       {"state", Name(end)},
       {"reason", status.reason_code},
       {"text", status.reason},
       {"volumes", status.volumes_done},
       {"records_per_second", status.records_per_second},
       {"missing_ascans", status.missing_ascans}});
  ended_ = true;
  ended_.notify_all();
  context_.changed();
}

}  // namespace octavo::scan
