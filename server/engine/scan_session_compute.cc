// The compute thread: takes blocks from the ring and enqueues everything that happens to them, without waiting.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "gpu/repeats.h"
#include "server/engine/deriver.h"
#include "server/engine/names.h"
#include "server/engine/pattern/plan.h"
#include "server/engine/reprocess.h"
#include "server/engine/scan_session.h"
#include "server/engine/scan_session_parts.h"

namespace octavo::engine {

SpectralTarget TargetOf(const ResolvedScan& scan, const VolumeSlot& slot) {
  return {.volume = slot.volume.data(), .volume_ascans = scan.shape[0] * scan.shape[1], .mip = slot.mip.data(), .aip = slot.aip.as<float>()};
}

namespace {

VolumeAssembly AssemblyOf(const ResolvedScan& scan, int64_t volume) {
  if (scan.spec.pattern.plan == nullptr) return VolumeAssembly(RasterOf(scan));
  const PatternPlan::Kind& kind = scan.spec.pattern.plan->Of(volume);
  return VolumeAssembly(kind.placement, kind.active_records, scan.spec.pattern.averaged() ? scan.spec.pattern.passes() : 1);
}

VolumeView ViewOf(const ResolvedScan& scan, const VolumeSlot& slot) {
  return {.data = slot.volume.data(), .dtype = scan.chain.output, .shape = {scan.shape[0], scan.shape[1], scan.shape[2]}};
}

}  // namespace

void ScanSession::Acquire(std::stop_token stop) {
  absl::Status ended = absl::OkStatus();
  const bool can_wait = source_->CanWait();
  RecordGroups groups(record_average_, record_bytes_ / record_average_);
  int64_t next = 0;    // the first record that was neither taken nor skipped
  int64_t beyond = 0;  // records in a row past the last volume
  int slot = -1;       // being filled
  int64_t held = 0;    // records in it
  const auto seal = [&] {
    if (slot >= 0) ring_->Seal(slot);
    slot = -1;
    held = 0;
  };
  while (!stop.stop_requested() && !abort_.stop_requested()) {
    // Not one record more than a counted scan wants: another scan may be waiting for the source.
    int64_t records = wanted_records_ > 0 ? std::min(block_records_, wanted_records_ - next) : block_records_;
    if (records <= 0) {
      all_acquired_ = true;
      break;
    }
    if (slot < 0) slot = can_wait ? ring_->Acquire(stop) : ring_->TryAcquire();
    if (slot < 0 && can_wait) break;
    if (slot < 0) {
      if (overrun_ == Overrun::kFailScan) {
        ended = WithInfo(
            absl::DataLossError(absl::StrCat("the source overran the ring of ", ring_memory_.size(), " blocks: the device was too slow for it")),
            {.reason = "SOURCE_OVERRUN", .field = "", .numbers = {}});
        break;
      }
      const auto skipped = groups.Skip(*source_, records, stop);
      if (!skipped.ok() || skipped->records == 0) {
        ended = skipped.status();
        break;
      }
      ++blocks_dropped_;
      next = skipped->first_record + skipped->records;
      continue;
    }
    records = std::min(records, upload_records_ - held);
    const auto block = groups.Next(*source_, ring_memory_[static_cast<size_t>(slot)].as<uint8_t>() + held * record_bytes_, records, stop);
    if (!block.ok() || block->records == 0) {
      ended = block.status();
      break;
    }
    // Records of no volume do not bring the end nearer; but a source that stays beyond the end for a whole volume has lost the
    // rest and will not come back.
    if (wanted_records_ == 0 || (block->first_record >= 0 && block->first_record < wanted_records_)) {
      next = std::max(next, block->first_record + block->records);
      beyond = 0;
    } else if (block->first_record >= wanted_records_ && (beyond += block->records) >= volume_records_) {
      next = wanted_records_;
    }
    ring_->PublishPart(slot, held, *block);
    held += block->records;
    // With its last record a volume goes on its way; nothing of the next one is worth waiting for.
    const int64_t end = block->first_record + block->records;
    if (held == upload_records_ || (block->first_record >= 0 && block->first_record / volume_records_ != end / volume_records_)) seal();
  }
  seal();
  ring_->Close(ended);
}

// The same of a source that lends its memory: nothing is copied here.
void ScanSession::AcquireLent(std::stop_token stop) {
  absl::Status ended = absl::OkStatus();
  int64_t next = 0;  // the first record that was not taken
  while (!stop.stop_requested() && !abort_.stop_requested()) {
    if (wanted_records_ > 0 && next >= wanted_records_) {
      all_acquired_ = true;
      break;
    }
    const auto loan = lender_->Lend(stop);
    if (!loan.ok() || loan->block.records == 0) {
      ended = loan.status();
      break;
    }
    next = loan->block.first_record + loan->block.records;
    const bool last = loan->block.first_record / volume_records_ != next / volume_records_;
    ring_->PublishLent(loan->data, loan->block.records * record_bytes_, loan->loan, loan->block, last);
  }
  ring_->Close(ended);
}

void ScanSession::Compute() {
  BlockRing::Part part;
  while (!stop_reached_ && ring_->Pop(&part, abort_.get_token())) {
    if (absl::Status status = ProcessUpload(part); !status.ok()) {
      FailForDevice(status);
      break;
    }
  }
  End();
}

absl::Status ScanSession::ProcessUpload(const BlockRing::Part& part) {
  const SourceBlock& block = part.block;
  Retiring item;
  item.ring_slot = part.slot;
  item.loan = part.loan;
  item.records = block.records * record_average_;
  item.acquired = block.acquired;
  item.enqueued_ns = context_.clock->Now().monotonic_ns;
  {
    MutexLock lock(status_mutex_);
    timings_.stages["wait"].Add(static_cast<double>(item.enqueued_ns - block.acquired.monotonic_ns) * 1e-9);
  }
  // Upload beside the kernels of the block before; the raw buffer is free once its last user is done.
  const auto raw_index = static_cast<size_t>(blocks_++ % kRawBuffers);
  auto* raw = raw_[raw_index].as<uint8_t>();
  taken_now_ns_ = item.enqueued_ns;
  const uint8_t* from = part.lent != nullptr ? part.lent : ring_memory_[static_cast<size_t>(part.slot)].as<uint8_t>() + part.offset * record_bytes_;
  if (!peers_.empty()) {
    raw_now_ = raw;
    OCTAVO_RETURN_IF_ERROR(UploadShares(raw_index, from, block));
    OCTAVO_RETURN_IF_ERROR(StampUpload(block));
    raw_records_now_ = lane_records_[0];
    OCTAVO_RETURN_IF_ERROR(ProcessBlock(raw, block));
  } else {
    OCTAVO_RETURN_IF_ERROR(raw_free_[raw_index].EnqueueWait(upload_.ref()));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(upload_.ref(), raw, from, block.records * record_bytes_));
    OCTAVO_RETURN_IF_ERROR(uploaded_[raw_index].Record(upload_.ref()));
    OCTAVO_RETURN_IF_ERROR(uploaded_[raw_index].EnqueueWait(compute_.ref()));
    OCTAVO_RETURN_IF_ERROR(StampUpload(block));
    // A rolling background goes on from block to block: what was gathered is taken apart again.
    const bool apart = scan_.chain.background == math::Background::kRolling;
    for (int64_t at = 0; at < block.records && !stop_reached_;) {
      const int64_t count = apart ? std::min(block_records_, block.records - at) : block.records;
      raw_now_ = raw + at * record_bytes_;
      raw_records_now_ = count;
      OCTAVO_RETURN_IF_ERROR(processor_->BeginBlock(compute_.ref(), raw_now_, count));
      if (recorder_ != nullptr) recorder_->BeginBlock(raw_now_, count);
      OCTAVO_RETURN_IF_ERROR(
          ProcessBlock(raw + at * record_bytes_, {.first_record = block.first_record + at, .records = count, .acquired = block.acquired}));
      if (recorder_ != nullptr) OCTAVO_RETURN_IF_ERROR(recorder_->EndBlock(compute_.ref()));
      at += count;
    }
  }
  OCTAVO_RETURN_IF_ERROR(EnqueuePreview(block));
  OCTAVO_RETURN_IF_ERROR(raw_free_[raw_index].Record(compute_.ref()));
  if (!peers_.empty()) OCTAVO_RETURN_IF_ERROR(FinishShares());
  item.replaced = std::exchange(replaced_, {});
  return PushRetire(std::move(item));
}

// Of the upload that may complete the volume, when it was there.
absl::Status ScanSession::StampUpload(const SourceBlock& block) {
  uploaded_now_ = nullptr;
  const int64_t end = block.first_record + block.records;
  if (active_ != nullptr && end - active_->index * scan_.volume_records < active_->assembly.active_records()) return absl::OkStatus();
  int64_t* stamp = stamps_.as<int64_t>() + blocks_ % stamp_slots_;
  uploaded_now_ = stamp;
  return device_.Stamp(compute_.ref(), stamp);
}

// A block may span volumes: one call of the chain for each.
absl::Status ScanSession::ProcessBlock(const uint8_t* raw, const SourceBlock& block) {
  TellMarkers(block);
  int64_t done = 0;
  while (done < block.records && !stop_reached_) {
    if (const int64_t without_place = TakeRecords(block, done); without_place > 0) {
      done += without_place;
      continue;
    }
    const int64_t record = block.first_record + done;
    const int64_t index = record / scan_.volume_records;
    if (active_ != nullptr && active_->index != index) OCTAVO_RETURN_IF_ERROR(EndVolume(block));
    if (stop_reached_) break;
    const int64_t in_volume = record - index * scan_.volume_records;
    const int64_t count = std::min(block.records - done, scan_.volume_records - in_volume);
    if (active_ == nullptr && index >= next_volume_) OCTAVO_RETURN_IF_ERROR(BeginVolume(index, block));
    if (stop_reached_) break;
    if (active_ != nullptr) {
      OCTAVO_RETURN_IF_ERROR(ProcessSegment(raw + done * record_bytes_, in_volume, count, block));
    }
    done += count;
    awaited_record_ = record + count;
  }
  return absl::OkStatus();
}

// How many records of the block from `done` on have no place: those that came already (or too late, when their place was given
// up), and those below 0 or beyond the last volume. They are counted and touch nothing. The others are taken as come.
int64_t ScanSession::TakeRecords(const SourceBlock& block, int64_t done) {
  const int64_t first = block.first_record + done, end = block.first_record + block.records;
  if (first < 0) {
    const int64_t below = std::min<int64_t>(-first, block.records - done);
    out_of_range_records_ += below;
    return below;
  }
  if (const int64_t volumes = scan_.spec.pattern.volumes; volumes > 0 && first / scan_.volume_records >= volumes) {
    out_of_range_records_ += end - first;
    return end - first;
  }
  const int64_t before = std::clamp<int64_t>(awaited_record_ - first, 0, end - first);
  duplicate_records_ += before;
  return before;
}

absl::Status ScanSession::ProcessSegment(const void* raw, int64_t first_record, int64_t records, const SourceBlock& block) {
  ActiveVolume& volume = *active_;
  const int64_t active = std::min(records, volume.assembly.active_records() - first_record);
  const int64_t kind = placement_[1] ? volume.index & 1 : 0;
  const DeviceBuffer& table = placement_[kind];
  const std::vector<BscanSpan>& spans = spans_[kind];
  if (active > 0) {
    if (volume.slot != nullptr && !peers_.empty()) {
      OCTAVO_RETURN_IF_ERROR(ProcessShares(first_record, active, block));
    } else if (volume.slot != nullptr) {
      OCTAVO_RETURN_IF_ERROR(processor_->Process(compute_.ref(), raw, active,
                                                 {.raster = RasterOf(scan_),
                                                  .first_record = first_record,
                                                  .table = table.as<int32_t>() == nullptr ? nullptr : table.as<int32_t>() + first_record,
                                                  .spans = spans.data(),
                                                  .span_count = std::ssize(spans)},
                                                 TargetOf(scan_, *volume.slot)));
    }
    volume.assembly.Placed(first_record, active);
  }
  if (recorder_ != nullptr) OCTAVO_RETURN_IF_ERROR(recorder_->Place(compute_.ref(), raw, first_record, records, std::max<int64_t>(active, 0)));
  volume.status.acquired_end = block.acquired;
  // Complete with its last A-scan, not when the next volume begins.
  return volume.assembly.all_seen() ? EndVolume(block) : absl::OkStatus();
}

std::shared_ptr<VolumeSlot> ScanSession::TakeSlot(SlotPool& pool) {
  const Retention& retention = scan_.spec.retention;
  const int64_t failures = context_.spill_failures(name_);
  while (!abort_.stop_requested()) {
    if (auto slot = pool.TryTake()) return slot;
    const bool live = retention.mode == RetentionMode::kLive;
    if (live && retention.keep_last == 0 && context_.store->OverwriteOldest(name_)) continue;
    if (Spills(retention.on_full) && !live) {
      // Only while the ring before us has room for what comes meanwhile: the tier must not make the source lose records.
      const bool patient = source_->CanWait() || RingOccupancy() < 0.5;
      const bool moving = context_.spill_failures(name_) == failures && context_.spill(name_, TierOf(retention.on_full));
      const bool committing = retention.disposition == Disposition::kAutoCommit && context_.commits_pending(name_);
      if (!patient || !(moving || committing || VolumesRetiring())) return slots_->TryTake();
      slots_->WaitForReturn();
      continue;
    }
    // Volumes on their way through the device may free a slot in a moment; so may commits, if the source can wait.
    const bool may_come =
        ((live || retention.disposition == Disposition::kAutoDiscard) && VolumesRetiring()) ||
        (retention.disposition == Disposition::kAutoCommit && source_->CanWait() && (VolumesRetiring() || context_.commits_pending(name_)));
    if (!may_come) return pool.TryTake();
    pool.WaitForReturn();
  }
  return nullptr;
}

absl::Status ScanSession::BeginVolume(int64_t index, const SourceBlock& block) {
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
    OCTAVO_RETURN_IF_ERROR(recorder_->BeginVolume(compute_.ref(), volume->raw_slot == nullptr ? nullptr : volume->raw_slot->volume.data(), index));
  }
  next_volume_ = index + 1;
  const Retention& retention = scan_.spec.retention;
  if (volume->slot == nullptr && Spills(retention.on_full) && retention.on_tier_full == OnFull::kStopAtVolume) {
    const int64_t mapped = context_.store->MappedOf(name_);
    EndWith(ScanState::kDone, "HOLD_SLOTS_FULL",
            absl::StrCat("all ", VolumeSlots(scan_), " hold slots are full and the tier ", Name(TierOf(retention.on_full)),
                         " is full or slower than the scan: commit or discard volumes, or submit with more retention.hold_slots",
                         mapped > 0 ? absl::StrCat("; ", mapped, " of them are mapped by other processes, and moving those would win no slot") : ""));
    stop_reached_ = true;
    return absl::OkStatus();
  }
  if (volume->slot == nullptr && retention.on_full == OnFull::kStopAtVolume) {
    EndWith(ScanState::kDone, "HOLD_SLOTS_FULL",
            absl::StrCat("all ", VolumeSlots(scan_),
                         " hold slots are full: commit or discard volumes, or submit with more "
                         "retention.hold_slots"));
    stop_reached_ = true;
    return absl::OkStatus();
  }
  if (volume->slot != nullptr) {
    VolumeStatus status;
    std::copy(scan_.shape, scan_.shape + 3, status.shape);
    std::copy(scan_.spacing_um, scan_.spacing_um + 3, status.spacing_um);
    status.dtype = scan_.chain.output;
    status.has_levels = scan_.chain.has_levels;
    status.level_lo = scan_.chain.level_lo;
    status.level_hi = scan_.chain.level_hi;
    status.value = scan_.spec.processing.value;
    if (!context_.peers.empty()) status.spread_devices.push_back(DeviceName(context_.device_index));
    for (const SessionPeer& peer : context_.peers) status.spread_devices.push_back(DeviceName(peer.index));
    status.stripe_bscans = volume->slot->stripe_bscans;
    status.bytes = scan_.volume_bytes;
    if (origin_ == nullptr) origin_ = std::make_shared<const ResolvedScan>(scan_);
    status.index = index;
    AddVolume(std::move(status), block, volume->slot, &volume->status);
    if (volume->raw_slot != nullptr) {
      VolumeStatus raw = RawRecorder::Describe(scan_);
      raw.index = index;
      AddVolume(std::move(raw), block, volume->raw_slot, &volume->raw_status);
    }
    Note({.kind = EventKind::kVolumeStarted, .text = "volume ACQUIRING", .volume_index = index, .record = index * scan_.volume_records});
    // The volume itself needs no fill: what stays unplaced is filled when it ends. Its live projections do.
    const int64_t plane = scan_.shape[0] * scan_.shape[1];
    const DType projection = ProjectionOf(scan_.chain.output);
    OCTAVO_RETURN_IF_ERROR(device_.Fill(compute_.ref(), volume->slot->mip.data(), plane * SizeOf(projection), FillPattern(projection)));
    if (volume->slot->aip) {
      OCTAVO_RETURN_IF_ERROR(device_.Fill(compute_.ref(), volume->slot->aip.data(), plane * 4, FillPattern(DType::kF32)));
    }
    for (size_t lane = 0; lane < volume->slot->stripes.size(); ++lane) {  // rows go home whole, whatever was missing in them
      const VolumeStripe& stripe = volume->slot->stripes[lane];
      Device& device = lane == 0 ? device_ : peers_[lane - 1]->device;
      OCTAVO_RETURN_IF_ERROR(device.Fill(LaneStream(lane), stripe.mip.data(), stripe.mip.bytes(), FillPattern(projection)));
      if (stripe.aip) OCTAVO_RETURN_IF_ERROR(device.Fill(LaneStream(lane), stripe.aip.data(), stripe.aip.bytes(), FillPattern(DType::kF32)));
    }
  }
  OCTAVO_RETURN_IF_ERROR(BeginVolumeOnPeers());
  active_ = std::move(volume);
  MutexLock lock(status_mutex_);
  status_.current_volume = index;
  return absl::OkStatus();
}

// What all volumes of the scan tell of it.
void ScanSession::AddVolume(VolumeStatus status, const SourceBlock& block, const std::shared_ptr<VolumeSlot>& slot, VolumeStatus* out) {
  status.name = absl::StrCat("volumes/", NewId(context_.server_id));
  status.scan = name_;
  status.title = scan_.spec.title;
  status.acquired_begin = status.acquired_end = block.acquired;
  status.device = DeviceName(context_.device_index);
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
  {
    MutexLock lock(update_mutex_);
    if (next_processor_ == nullptr) return absl::OkStatus();
    replaced_.push_back(std::exchange(processor_, std::exchange(next_processor_, nullptr)));
    for (size_t i = 0; i < peers_.size(); ++i) replaced_.push_back(std::exchange(peers_[i]->processor, std::move(next_peer_processors_[i])));
    next_peer_processors_.clear();
    scan_ = latest_;
    origin_ = nullptr;
  }
  Emit({.kind = EventKind::kProcessing, .text = "processing changed", .volume_index = volume, .record = volume * scan_.volume_records});
  // The block began under the old one.
  for (size_t l = 1; l < lane_records_.size(); ++l) {
    const Lane lane = LaneAt(l, raw_index_now_);
    if (lane_records_[l] > 0) OCTAVO_RETURN_IF_ERROR(lane.processor.BeginBlock(lane.compute, lane.raw, lane_records_[l]));
  }
  return raw_records_now_ == 0 ? absl::OkStatus() : processor_->BeginBlock(compute_.ref(), raw_now_, raw_records_now_);
}

absl::Status ScanSession::EndVolume(const SourceBlock& block) {
  const std::shared_ptr<ActiveVolume> volume = std::exchange(active_, nullptr);
  volume->assembly.Finish();
  missing_ascans_ += volume->assembly.missing_ascans();
  const int64_t last = scan_.spec.pattern.volumes - 1;
  if (volume->index == last) {
    EndWith(ScanState::kDone, "COMPLETED", absl::StrCat("all ", last + 1, " volumes acquired"));
    stop_reached_ = true;
  } else if (stop_at_volume_) {
    stop_reached_ = true;
  }
  if (volume->slot == nullptr) {
    Emit({.kind = EventKind::kVolumeState, .text = "volume DROPPED", .volume_index = volume->index});
    MutexLock lock(status_mutex_);
    ++status_.volumes_dropped;
    return absl::OkStatus();
  }
  // A B-scan that waited for its end.
  OCTAVO_RETURN_IF_ERROR(processor_->EndVolume(compute_.ref(), LaneTarget(*volume->slot, 0)));
  OCTAVO_RETURN_IF_ERROR(EndVolumeOnPeers(volume));
  OCTAVO_RETURN_IF_ERROR(FillMissing(*volume));
  VolumeStatus& status = volume->status;
  status.complete = volume->assembly.missing_ascans() == 0;
  status.missing_ascans = volume->assembly.missing_ascans();
  const auto& missing = volume->assembly.missing();
  if (missing.size() > 32) status.all_missing = std::make_shared<const std::vector<std::pair<int64_t, int64_t>>>(missing);
  status.missing.assign(missing.begin(), missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
  if (volume->raw_slot != nullptr) {
    VolumeStatus& raw = volume->raw_status;
    OCTAVO_ASSIGN_OR_RETURN(raw.raw, recorder_->EndVolume(compute_.ref(), missing));
    raw.acquired_end = status.acquired_end;
    raw.complete = status.complete;
    const auto& lost = recorder_->missing_records();
    raw.missing_ascans = status.missing_ascans;
    raw.missing.assign(lost.begin(), lost.begin() + std::min<std::ptrdiff_t>(32, std::ssize(lost)));
  }
  Retiring item;
  item.volume = volume;
  item.acquired = block.acquired;
  item.enqueued_ns = taken_now_ns_;
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

absl::Status ScanSession::EnqueueProducts(const ActiveVolume& volume, bool complete, Retiring* item) {
  const DType dtype = scan_.chain.output, projection = ProjectionOf(dtype);
  const VolumeView view = ViewOf(scan_, *volume.slot);
  const auto wanted = context_.publisher->WantedOf(name_);
  const auto is_wanted = [&](const TopicKey& key) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const auto& w) { return w.key == key && (complete || w.previews); });
  };
  const TopicKey mip{.product = Product::kMip}, aip{.product = Product::kAip};
  if (scan_.spec.products.mip && (complete || is_wanted(mip))) {
    OCTAVO_RETURN_IF_ERROR(EnqueueFrame(volume, mip, volume.slot->mip.data(), projection, complete, item));
  }
  if (scan_.spec.products.aip && (complete || is_wanted(aip))) {
    OCTAVO_RETURN_IF_ERROR(EnqueueFrame(volume, aip, volume.slot->aip.data(), DType::kF32, complete, item));
  }
  if (!complete) return absl::OkStatus();
  if (scan_.spec.products.angiography != 0) OCTAVO_RETURN_IF_ERROR(EnqueueAngiogram(volume, item));
  for (const auto& want : wanted) {
    const TopicKey& key = want.key;
    const Axis axis = key.axis == FrameAxis::kX ? Axis::kX : key.axis == FrameAxis::kY ? Axis::kY : Axis::kZ;
    if (key.product == Product::kBscan) {
      const int64_t extent = scan_.shape[static_cast<int>(axis)];
      const int64_t index = key.plane_index < 0 ? extent / 2 : key.plane_index;
      if (index >= extent) continue;
      if (striped() && axis == Axis::kY) {
        OCTAVO_RETURN_IF_ERROR(ExtractBscan(*volume.slot, index));
      } else if (striped()) {  // across devices: refused when a subscription names the scan
        item->frames.push_back({.key = key, .frame = {}, .lost = true});
        continue;
      } else {
        OCTAVO_RETURN_IF_ERROR(ExtractPlane(products_.ref(), device_, view, axis, index, scratch_.data()));
      }
    } else if (striped() && key.product == Product::kMip && axis != Axis::kZ) {
      item->frames.push_back({.key = key, .frame = {}, .lost = true});
      continue;
    } else if (striped() && key.product == Product::kMip && !scan_.spec.products.mip) {
      OCTAVO_RETURN_IF_ERROR(EnqueueFrame(volume, key, volume.slot->mip.data(), projection, complete, item));  // it is made anyway
      continue;
    } else if (key.product == Product::kMip && (axis != Axis::kZ || !scan_.spec.products.mip)) {
      OCTAVO_RETURN_IF_ERROR(Mip(products_.ref(), device_, view, axis, 0, scan_.shape[0], /*accumulate=*/false, scratch_.data()));
    } else {
      continue;
    }
    OCTAVO_RETURN_IF_ERROR(EnqueueFrame(volume, key, scratch_.data(), key.product == Product::kMip ? projection : dtype, complete, item));
  }
  return absl::OkStatus();
}

absl::Status ScanSession::EnqueueAngiogram(const ActiveVolume& volume, Retiring* item) {
  const Pattern& p = scan_.spec.pattern;
  OCTAVO_RETURN_IF_ERROR(AngiogramEnFace(products_.ref(), device_, static_cast<MotionContrast>(scan_.spec.products.angiography - 1),
                                         {.data = volume.slot->volume.data(),
                                          .dtype = scan_.chain.output,
                                          .rows = scan_.shape[0],
                                          .columns = scan_.shape[1],
                                          .depth = scan_.shape[2],
                                          .order = repeat_rows_.as<int32_t>(),
                                          .bscans = p.bscans_per_volume,
                                          .repeats = p.repeat_count},
                                         ScaleOf(volume.status), scan_.chain.slab_begin,
                                         scan_.chain.slab_end > 0 ? scan_.chain.slab_end : scan_.chain.depth, angiogram_.as<float>()));
  // Integers do not tell by themselves that a repeat was missing.
  if (volume.assembly.missing_ascans() > 0) {
    std::vector<int64_t> bscan_of(static_cast<size_t>(p.rows()));
    for (int64_t b = 0; b < p.bscans_per_volume; ++b) {
      for (int64_t r = 0; r < p.repeat_count; ++r) bscan_of[static_cast<size_t>(RepeatRow(p, b, r))] = b;
    }
    const int64_t columns = p.ascans_per_bscan;
    for (const auto& [first, count] : volume.assembly.missing()) {
      for (int64_t a = first; a < first + count; a = (a / columns + 1) * columns) {
        const int64_t end = std::min(first + count, (a / columns + 1) * columns);
        OCTAVO_RETURN_IF_ERROR(device_.Fill(products_.ref(),
                                            angiogram_.as<float>() + bscan_of[static_cast<size_t>(a / columns)] * columns + a % columns,
                                            (end - a) * 4, FillPattern(DType::kF32)));
      }
    }
  }
  return EnqueueFrame(volume, {.product = Product::kAngiogram}, angiogram_.data(), DType::kF32, /*complete=*/true, item);
}

absl::Status ScanSession::EnqueueFrame(const ActiveVolume& volume, const TopicKey& key, const void* device_data, DType dtype, bool complete,
                                       Retiring* item) {
  static constexpr const char* kNames[3] = {"y", "x", "z"};
  PendingFrame pending{.key = key, .frame = {}, .lost = false};
  Frame& frame = pending.frame;
  frame.scan = name_;
  frame.volume = volume.status.name;
  frame.volume_index = volume.index;
  frame.product = key.product;
  frame.axis = key.axis;
  frame.acquired = volume.status.acquired_end;
  frame.dtype = dtype;
  frame.complete = complete;
  frame.display_lo = volume.display_lo;
  frame.display_hi = volume.display_hi;
  const int gone = key.axis == FrameAxis::kY ? 0 : key.axis == FrameAxis::kX ? 1 : 2;
  const bool angiogram = key.product == Product::kAngiogram;
  if (angiogram) {
    frame.display_lo = 0;
    frame.display_hi = ContrastDisplayHi(static_cast<MotionContrast>(scan_.spec.products.angiography - 1), volume.status);
  }
  int64_t bytes = SizeOf(dtype);
  for (int d = 0; d < 3; ++d) {
    if (d == gone) continue;
    const int64_t extent = d == 0 && angiogram ? scan_.spec.pattern.bscans_per_volume : scan_.shape[d];
    frame.shape.push_back(extent);
    frame.axes.emplace_back(kNames[d]);
    frame.spacing_um.push_back(scan_.spacing_um[d]);
    bytes *= extent;
  }
  auto memory = context_.frames->Get(bytes, FramePool::Use::kFrame);
  if (memory == nullptr) {
    pending.lost = true;
  } else {
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(ProductStream(complete), memory.get(), device_data, bytes));
    frame.payload = {.owner = memory, .data = memory.get(), .size = bytes};
  }
  item->frames.push_back(std::move(pending));
  return absl::OkStatus();
}

absl::Status ScanSession::EnqueuePreview(const SourceBlock& block) {
  const double rate = scan_.spec.products.preview_rate_hz;
  if (active_ != nullptr) {
    MutexLock lock(status_mutex_);
    status_.current_fraction = active_->assembly.fraction();
  }
  if (active_ == nullptr || active_->slot == nullptr || rate <= 0) return absl::OkStatus();
  const int64_t now = context_.clock->Now().monotonic_ns;
  if (static_cast<double>(now - last_preview_ns_) < 1e9 / rate) return absl::OkStatus();
  last_preview_ns_ = now;
  OCTAVO_RETURN_IF_ERROR(JoinPeers());
  Retiring item;
  item.acquired = block.acquired;
  item.enqueued_ns = now;
  OCTAVO_RETURN_IF_ERROR(EnqueueProducts(*active_, /*complete=*/false, &item));
  return item.frames.empty() ? absl::OkStatus() : PushRetire(std::move(item));
}

absl::Status ScanSession::PushRetire(Retiring item) {
  {
    // Events come back from the retire thread; there are enough for all blocks and slots, so this hardly ever waits.
    MutexLock lock(retire_mutex_);
    while (free_events_.empty()) retire_cv_.Wait(lock);
    item.event = free_events_.back();
    free_events_.pop_back();
  }
  const auto index = static_cast<size_t>(item.event);
  const StreamRef stream = ProductStream(item.volume != nullptr);
  if (item.volume != nullptr && striped()) {
    OCTAVO_RETURN_IF_ERROR(DigestStripes(stream, *item.volume, index));
  } else if (item.volume != nullptr) {
    OCTAVO_RETURN_IF_ERROR(device_.Digest(stream, item.volume->slot->volume.data(), scan_.volume_bytes, item.volume->slot->digest.as<uint64_t>()));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream, digests_.as<uint64_t>() + 2 * index, item.volume->slot->digest.data(), 8));
    if (const auto& raw = item.volume->raw_slot; raw != nullptr) {
      OCTAVO_RETURN_IF_ERROR(device_.Digest(stream, raw->volume.data(), item.volume->raw_status.bytes, raw->digest.as<uint64_t>()));
      OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream, digests_.as<uint64_t>() + 2 * index + 1, raw->digest.data(), 8));
    }
  }
  OCTAVO_RETURN_IF_ERROR(events_[index].Record(stream));
  MutexLock lock(retire_mutex_);
  volumes_retiring_ += item.volume != nullptr;
  retiring_[(first_retiring_ + retiring_count_++) % retiring_.size()] = std::move(item);
  retire_cv_.NotifyAll();
  return absl::OkStatus();
}

// Whether a slot may come back by itself: of a volume behind the device, or one that is still copied for subscribers.
bool ScanSession::VolumesRetiring() {
  {
    MutexLock lock(retire_mutex_);
    if (volumes_retiring_ > 0) return true;
  }
  MutexLock lock(copy_mutex_);
  return !copies_.empty();
}

void ScanSession::End() {
  acquire_thread_.request_stop();
  if (acquire_thread_.joinable()) acquire_thread_.join();
  source_->Close();
  context_.acquired();  // the next scan may begin while this one drains
  const bool aborted = abort_.stop_requested();
  const absl::Status source_status = ring_->close_status();
  const bool all_acquired = !stop_reached_ && !aborted && all_acquired_;
  if (!stop_reached_ && !aborted && !all_acquired) {
    if (!source_status.ok()) {
      const std::string reason = InfoOf(source_status).reason;
      const bool known = reason == "SOURCE_OVERRUN" || reason == "SOURCE_STALLED" || reason == "SOURCE_LOST";
      EndWith(ScanState::kFailed, known ? reason : "SOURCE_ERROR", std::string(source_status.message()));
    } else {
      EndWith(ScanState::kDone, "SOURCE_ENDED", absl::StrCat("the source ended after ", next_volume_, " volumes"));
    }
  }
  if (active_ != nullptr) {
    if (aborted || active_->slot == nullptr) {
      // Nothing may touch the slot any more when it goes back.
      (void)compute_.ref().Synchronize();
      SynchronizePeers();
      if (active_->slot != nullptr) {
        MutexLock lock(status_mutex_);
        context_.store->Fail(active_->status.name, status_.reason);
        if (active_->raw_slot != nullptr) context_.store->Fail(active_->raw_status.name, status_.reason);
      }
      active_ = nullptr;
    } else if (absl::Status status = EndVolume({.acquired = active_->status.acquired_end}); !status.ok()) {
      Log(LogLevel::kError, "volume not finished", {{"scan", name_}, {"error", std::string(status.message())}});
    }
  }
  if (all_acquired) {  // the last records were lost
    const int64_t volumes = scan_.spec.pattern.volumes, lost = volumes - next_volume_;
    missing_ascans_ += lost * scan_.shape[0] * scan_.shape[1];
    {
      MutexLock lock(status_mutex_);
      status_.volumes_dropped += lost;
    }
    EndWith(ScanState::kDone, "COMPLETED", absl::StrCat("all ", volumes, " volumes acquired"));
  }
  SetState(ScanState::kDraining);
  MutexLock lock(retire_mutex_);
  compute_done_ = true;
  retire_cv_.NotifyAll();
}

}  // namespace octavo::engine
