// The compute thread at the borders of volumes: a slot and a processing when one begins, its end
// and what is lost of it.

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/pattern/plan.h"
#include "server/processing/replay_records.h"
#include "server/scan/internal.h"
#include "server/scan/scan_session.h"

namespace octavo::scan {
namespace {

AscanCoverage AssemblyOf(const model::ResolvedScan& scan, int64_t volume) {
  if (scan.spec.pattern.plan == nullptr) return AscanCoverage(processing::RasterOf(scan));
  const pattern::PatternPlan::Kind& kind = scan.spec.pattern.plan->Of(volume);
  return AscanCoverage(kind.placement, kind.active_records,
                       scan.spec.pattern.averaged() ? scan.spec.pattern.passes() : 1);
}

// What a status tells of gaps: the first 32.
std::vector<std::pair<int64_t, int64_t>> FirstOf(
    const std::vector<std::pair<int64_t, int64_t>>& missing) {
  return {missing.begin(), missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing))};
}

}  // namespace

std::shared_ptr<memory::VolumeSlot> ScanSession::TakeSlot(memory::SlotPool& pool) {
  const model::Retention& retention = scan_.spec.retention;
  const int64_t failures = context_.spill_failures(name_);
  while (!abort_.stop_requested()) {
    // Asked before we look: a volume that the retire thread is through with after this answer has
    // left its slot, or what may be given up or moved for one, where one of the looks below finds
    // it. Asked after them, all could come about in between and the volume would be dropped.
    const bool retiring = VolumesRetiring();
    if (auto slot = pool.TryTake()) return slot;
    const bool live = retention.mode == model::RetentionMode::kLive;
    if (live && retention.keep_last == 0 && context_.store->ring().OverwriteOldest(name_)) continue;
    if (model::Spills(retention.on_full) && !live) {
      // Only while the ring before us has room for what comes meanwhile: the tier must not make the
      // source lose records.
      const bool patient = source_->CanWait() || RingOccupancy() < 0.5;
      const bool moving = context_.spill_failures(name_) == failures &&
                          context_.spill(name_, model::TierOf(retention.on_full));
      const bool committing = retention.disposition == model::Disposition::kAutoCommit &&
                              context_.commits_pending(name_);
      if (!patient || !(moving || committing || retiring)) return pool.TryTake();
      pool.WaitForReturn();
      continue;
    }
    // Volumes on their way through the device may free a slot in a moment; so may commits, if the
    // source can wait.
    const bool may_come =
        ((live || retention.disposition == model::Disposition::kAutoDiscard) && retiring) ||
        (retention.disposition == model::Disposition::kAutoCommit && source_->CanWait() &&
         (retiring || context_.commits_pending(name_)));
    if (!may_come) return pool.TryTake();
    pool.WaitForReturn();
  }
  return nullptr;
}

absl::Status ScanSession::BeginVolume(int64_t index, const source::SourceBlock& block) {
  if (stop_at_volume_) {
    stop_reached_ = true;
    return absl::OkStatus();
  }
  if (index > next_volume_) {  // lost as a whole in a gap
    MutexLock lock(status_mutex_);
    status_.volumes_dropped += index - next_volume_;
    missing_ascans_ += (index - next_volume_) * scan_.shape[0] * scan_.shape[1];
  }
  OCTAVO_RETURN_IF_ERROR(TakeUpdate(index));
  OCTAVO_RETURN_IF_ERROR(processor_->BeginVolume(compute_.ref()));
  auto volume = std::make_shared<ActiveVolume>(AssemblyOf(scan_, index));
  volume->index = index;
  volume->display_lo = scan_.display_lo;
  volume->display_hi = scan_.display_hi;
  volume->retention = scan_.spec.retention;
  volume->slot = TakeSlot(*slots_);
  if (raw_slots_ != nullptr && volume->slot != nullptr) {
    volume->raw_slot = TakeSlot(*raw_slots_);
    if (volume->raw_slot == nullptr) volume->slot = nullptr;  // both or none
  }
  if (recorder_ != nullptr) {
    OCTAVO_RETURN_IF_ERROR(recorder_->BeginVolume(
        compute_.ref(), volume->raw_slot == nullptr ? nullptr : volume->raw_slot->volume.data(),
        index, volume->assembly.active_records()));
  }
  next_volume_ = index + 1;
  const model::Retention& retention = scan_.spec.retention;
  const bool tier_full =
      model::Spills(retention.on_full) && retention.on_tier_full == model::OnFull::kStopAtVolume;
  if (volume->slot == nullptr && (tier_full || retention.on_full == model::OnFull::kStopAtVolume)) {
    const int64_t mapped = tier_full ? context_.store->MappedOf(name_) : 0;
    EndWith(
        model::ScanState::kDone, Reason::kHoldSlotsFull,
        absl::StrCat(
            "all ", VolumeSlots(scan_), " hold slots are full",
            tier_full ? absl::StrCat(" and the tier ", Name(model::TierOf(retention.on_full)),
                                     " is full or slower than the scan")
                      : "",
            ": commit or discard volumes, or submit with more retention.hold_slots",
            mapped > 0
                ? absl::StrCat(
                      "; ", mapped,
                      " of them are mapped by other processes, and moving those would win no slot")
                : ""));
    stop_reached_ = true;
    return absl::OkStatus();
  }
  if (volume->slot != nullptr) {
    if (origin_ == nullptr) origin_ = std::make_shared<const model::ResolvedScan>(scan_);
    model::VolumeStatus status = DescribeVolume(*volume->slot);
    status.index = index;
    AddVolume(std::move(status), block, volume->slot, &volume->status);
    if (volume->raw_slot != nullptr) {
      model::VolumeStatus raw = processing::RawRecorder::Describe(scan_);
      raw.index = index;
      AddVolume(std::move(raw), block, volume->raw_slot, &volume->raw_status);
    }
  }
  active_ = std::move(volume);  // before what may fail: the end of the scan finds it
  {
    MutexLock lock(status_mutex_);
    status_.current_volume = index;
  }
  if (active_->slot != nullptr) {
    RecordEvent({.kind = model::EventKind::kVolumeStarted,
                 .text = "volume ACQUIRING",
                 .volume_index = index,
                 .record = index * scan_.volume_records});
    OCTAVO_RETURN_IF_ERROR(ClearProjections(*active_->slot));
  }
  return BeginVolumeOnPeers();
}

model::VolumeStatus ScanSession::DescribeVolume(const memory::VolumeSlot& slot) const {
  model::VolumeStatus status;
  std::copy(scan_.shape, scan_.shape + 3, status.shape);
  std::copy(scan_.spacing_um, scan_.spacing_um + 3, status.spacing_um);
  std::copy(scan_.spacing_assumed, scan_.spacing_assumed + 3, status.spacing_assumed);
  status.dtype = scan_.chain.output;
  status.has_levels = scan_.chain.has_levels;
  status.level_lo = scan_.chain.level_lo;
  status.level_hi = scan_.chain.level_hi;
  status.value = scan_.spec.processing.value;
  if (!context_.peers.empty())
    status.spread_devices.push_back(base::DeviceName(context_.device_index));
  for (const SessionPeer& peer : context_.peers)
    status.spread_devices.push_back(base::DeviceName(peer.index));
  status.stripe_bscans = slot.stripe_bscans;
  status.bytes = scan_.volume_bytes;
  return status;
}

// The volume itself needs no fill: what stays unplaced is filled when it ends. Its live projections
// do, and its counts.
absl::Status ScanSession::ClearProjections(const memory::VolumeSlot& slot) {
  const DType projection = ProjectionOf(scan_.chain.output);
  const auto clear = [&](Device& device, StreamRef stream, const auto& part,
                         int64_t ascans) -> absl::Status {
    if (uint64_t* clipped = memory::ClippedIn(part.digest); clipped != nullptr)
      OCTAVO_RETURN_IF_ERROR(device.Fill(stream, clipped, 16, 0));
    OCTAVO_RETURN_IF_ERROR(
        device.Fill(stream, part.mip.data(), ascans * SizeOf(projection), FillPattern(projection)));
    return part.aip ? device.Fill(stream, part.aip.data(), ascans * 4, FillPattern(DType::kF32))
                    : absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(clear(device_, compute_.ref(), slot, scan_.shape[0] * scan_.shape[1]));
  for (size_t lane = 0; lane < slot.stripes.size();
       ++lane) {  // rows go home whole, whatever was missing in them
    const memory::VolumeStripe& stripe = slot.stripes[lane];
    Device& device = lane == 0 ? device_ : peers_[lane - 1]->device;
    OCTAVO_RETURN_IF_ERROR(clear(device, LaneStream(lane), stripe,
                                 StripesOf(scan_).MostRows(scan_.shape[0]) * scan_.shape[1]));
  }
  return absl::OkStatus();
}

// What all volumes of the scan tell of it.
void ScanSession::AddVolume(model::VolumeStatus status, const source::SourceBlock& block,
                            const std::shared_ptr<memory::VolumeSlot>& slot,
                            model::VolumeStatus* out) {
  status.name = absl::StrCat("volumes/", base::NewId(context_.server_id));
  status.scan = name_;
  status.title = scan_.spec.title;
  status.acquired_begin = status.acquired_end = block.acquired;
  status.device = base::DeviceName(context_.device_index);
  status.labels = scan_.spec.labels;
  status.ttl_seconds = scan_.spec.retention.ttl_seconds;
  status.ttl_warning_seconds = scan_.spec.retention.ttl_warning_seconds;
  status.session = scan_.spec.session;
  status.origin = origin_;
  *out = std::move(status);
  context_.store->Add(*out, slot, context_.device_index);
}

// A volume is made with one processing: what came since the last one begins takes over here.
absl::Status ScanSession::TakeUpdate(int64_t volume) {
  const size_t lanes = 1 + peers_.size();
  {
    MutexLock lock(update_mutex_);
    if (next_processor_ == nullptr) return absl::OkStatus();
    for (size_t l = 0; l < lanes; ++l) {  // what is left of the volumes before
      const Lane lane = LaneAt(l, 0);
      OCTAVO_RETURN_IF_ERROR(lane.processor.Advance(lane.compute, volume, 0));
    }
    replaced_.push_back(std::exchange(processor_, std::exchange(next_processor_, nullptr)));
    for (size_t i = 0; i < peers_.size(); ++i)
      replaced_.push_back(std::exchange(peers_[i]->processor, std::move(next_peer_processors_[i])));
    next_peer_processors_.clear();
    scan_ = latest_;
    origin_ = nullptr;
  }
  if (first_records_ != nullptr)
    first_records_ = std::make_unique<processing::FirstRecords>(scan_.chain);
  PublishEvent({.kind = model::EventKind::kProcessing,
                .text = "processing changed",
                .volume_index = volume,
                .record = volume * scan_.volume_records});
  const auto before =
      std::span(replaced_).last(lanes);  // keep these until the device has finished with them
  for (size_t l = 0; l < lanes; ++l) {
    const Lane lane = LaneAt(l, 0);
    OCTAVO_ASSIGN_OR_RETURN(const bool goes_on, lane.processor.Continue(lane.compute, *before[l]));
    if (!goes_on && recorder_ != nullptr && rolling()) recorder_->Forget();
  }
  ShareWindows();
  return absl::OkStatus();
}

absl::Status ScanSession::EndVolume(const source::SourceBlock& block) {
  const std::shared_ptr<ActiveVolume> volume = std::exchange(active_, nullptr);
  absl::Status status = FinishVolume(volume, block);
  if (!status.ok()) {
    FailForDevice(status);
    FailVolume(*volume);
  }
  return status;
}

// It will not be sealed. Nothing touches its slots any more when they go back.
void ScanSession::FailVolume(const ActiveVolume& volume) {
  for (StreamRef stream : {compute_.ref(), products_.ref()}) (void)stream.Synchronize();
  SynchronizePeers();
  if (volume.slot == nullptr) return;
  std::string reason;
  {
    MutexLock lock(status_mutex_);
    reason = status_.reason;
  }
  context_.store->Fail(volume.status.name, reason);
  if (volume.raw_slot != nullptr) context_.store->Fail(volume.raw_status.name, reason);
}

absl::Status ScanSession::FinishVolume(const std::shared_ptr<ActiveVolume>& volume,
                                       const source::SourceBlock& block) {
  volume->assembly.Finish();
  missing_ascans_ += volume->assembly.missing_ascans();
  const int64_t last = scan_.spec.pattern.volumes - 1;
  if (volume->index == last) {
    EndWith(model::ScanState::kDone, Reason::kCompleted,
            absl::StrCat("all ", last + 1, " volumes acquired"));
    stop_reached_ = true;
  } else if (stop_at_volume_) {
    stop_reached_ = true;
  }
  if (volume->slot == nullptr) {
    PublishEvent({.kind = model::EventKind::kVolumeState,
                  .text = "volume DROPPED",
                  .volume_index = volume->index});
    MutexLock lock(status_mutex_);
    ++status_.volumes_dropped;
    return absl::OkStatus();
  }
  // A B-scan that waited for its end.
  OCTAVO_RETURN_IF_ERROR(processor_->EndVolume(compute_.ref()));
  OCTAVO_RETURN_IF_ERROR(EndVolumeOnPeers(volume));
  OCTAVO_RETURN_IF_ERROR(FillMissing(*volume));
  model::VolumeStatus& status = volume->status;
  status.complete = volume->assembly.missing_ascans() == 0;
  status.missing_ascans = volume->assembly.missing_ascans();
  const auto& missing = volume->assembly.missing();
  if (missing.size() > 32)
    status.all_missing = std::make_shared<const std::vector<std::pair<int64_t, int64_t>>>(missing);
  status.missing = FirstOf(missing);
  if (volume->raw_slot != nullptr) {
    model::VolumeStatus& raw = volume->raw_status;
    OCTAVO_ASSIGN_OR_RETURN(raw.raw, recorder_->EndVolume(compute_.ref(), missing));
    raw.acquired_end = status.acquired_end;
    raw.complete = status.complete;
    raw.missing_ascans = status.missing_ascans;
    raw.missing = FirstOf(recorder_->missing_records());
  }
  Completion item;
  item.volume = volume;
  item.acquired = block.acquired;
  item.enqueued_ns = taken_now_ns_;
  item.first_records = std::move(first_records_);
  item.uploaded = uploaded_now_;
  int64_t* processed = stamps_.as<int64_t>() + stamp_slots_ + volumes_stamped_++ % stamp_slots_;
  item.processed = processed;
  item.on_host = processed + stamp_slots_;
  OCTAVO_RETURN_IF_ERROR(device_.Stamp(compute_.ref(), processed));
  OCTAVO_RETURN_IF_ERROR(volume_ready_.Record(compute_.ref()));
  OCTAVO_RETURN_IF_ERROR(volume_ready_.EnqueueWait(products_.ref()));
  OCTAVO_RETURN_IF_ERROR(EnqueueProducts(*volume, /*complete=*/true, &item));
  OCTAVO_RETURN_IF_ERROR(device_.Stamp(ProductStream(/*complete=*/true), processed + stamp_slots_));
  return PushRetire(std::move(item));
}

}  // namespace octavo::scan
