// The compute thread: takes blocks from the ring and enqueues everything that happens to them,
// without waiting.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/processing/replay_records.h"
#include "server/scan/internal.h"
#include "server/scan/scan_session.h"

namespace octavo::scan {

SpectralTarget TargetOf(const model::ResolvedScan& scan, const memory::VolumeSlot& slot) {
  return {.volume = slot.volume.data(),
          .volume_ascans = scan.shape[0] * scan.shape[1],
          .mip = slot.mip.data(),
          .aip = slot.aip.as<float>(),
          .clipped = memory::ClippedIn(slot.digest)};
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
  const source::SourceBlock& block = part.block;
  Completion item;
  item.ring_slot = part.slot;
  item.loan = part.loan;
  item.records = block.records * record_average_;
  item.acquired = block.acquired;
  item.enqueued_ns = context_.clock->Now().monotonic_ns;
  {
    MutexLock lock(status_mutex_);
    timings_.stages["wait"].Add(
        static_cast<double>(item.enqueued_ns - block.acquired.monotonic_ns) * 1e-9);
  }
  // Upload beside the kernels of the block before; the raw buffer is free once its last user is
  // done.
  const auto raw_index = static_cast<size_t>(blocks_++ % kRawBuffers);
  auto* raw = raw_[raw_index].as<uint8_t>();
  taken_now_ns_ = item.enqueued_ns;
  const uint8_t* from = part.lent != nullptr
                            ? part.lent
                            : ring_memory_[static_cast<size_t>(part.slot)].as<uint8_t>() +
                                  part.offset * record_bytes_;
  if (first_records_ != nullptr) first_records_->Take(from, block.first_record, block.records);
  if (!peers_.empty()) {
    OCTAVO_RETURN_IF_ERROR(UploadShares(raw_index, from, block));
    OCTAVO_RETURN_IF_ERROR(StampUpload(block));
  } else {
    OCTAVO_RETURN_IF_ERROR(raw_free_[raw_index].EnqueueWait(upload_.ref()));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToDevice(upload_.ref(), raw, from, block.records * record_bytes_));
    OCTAVO_RETURN_IF_ERROR(uploaded_[raw_index].Record(upload_.ref()));
    OCTAVO_RETURN_IF_ERROR(uploaded_[raw_index].EnqueueWait(compute_.ref()));
    OCTAVO_RETURN_IF_ERROR(StampUpload(block));
  }
  OCTAVO_RETURN_IF_ERROR(ProcessBlock(raw, block));
  OCTAVO_RETURN_IF_ERROR(EnqueuePreview(block));
  OCTAVO_RETURN_IF_ERROR(raw_free_[raw_index].Record(compute_.ref()));
  if (!peers_.empty()) OCTAVO_RETURN_IF_ERROR(FinishShares());
  item.replaced = std::exchange(replaced_, {});
  return PushRetire(std::move(item));
}

// Of the upload that may complete the volume, when it was there.
absl::Status ScanSession::StampUpload(const source::SourceBlock& block) {
  uploaded_now_ = nullptr;
  const int64_t end = block.first_record + block.records;
  if (active_ != nullptr && end - active_->index * scan_.volume_records < EndOf(*active_))
    return absl::OkStatus();
  int64_t* stamp = stamps_.as<int64_t>() + blocks_ % stamp_slots_;
  uploaded_now_ = stamp;
  return device_.Stamp(compute_.ref(), stamp);
}

// The place in the volume at which it is complete: behind its last A-scan, or behind that one's
// group, which has one background.
int64_t ScanSession::EndOf(const ActiveVolume& volume) const {
  const int64_t active = volume.assembly.active_records();
  return rolling() ? RollingShapeOf(scan_.chain).GroupEnd(active - 1) : active;
}

// A block may span volumes: one call of the chain for each.
absl::Status ScanSession::ProcessBlock(const uint8_t* raw, const source::SourceBlock& block) {
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
    int64_t count = std::min(block.records - done, scan_.volume_records - in_volume);
    if (active_ == nullptr && index >= next_volume_)
      OCTAVO_RETURN_IF_ERROR(BeginVolume(index, block));
    if (stop_reached_) break;
    // Flyback records arrive after their volume has ended.
    if (active_ != nullptr && in_volume < EndOf(*active_))
      count = std::min(count, EndOf(*active_) - in_volume);
    OCTAVO_RETURN_IF_ERROR(
        ProcessSegment(raw + done * record_bytes_, index, in_volume, count, block));
    done += count;
    awaited_record_ = record + count;
  }
  return absl::OkStatus();
}

// How many records of the block from `done` on have no place: those that came already (or too late,
// when their place was given up), and those below 0 or beyond the last volume. They are counted and
// touch nothing. The others are taken as come.
int64_t ScanSession::TakeRecords(const source::SourceBlock& block, int64_t done) {
  const int64_t first = block.first_record + done, end = block.first_record + block.records;
  if (first < 0) {
    const int64_t below = std::min<int64_t>(-first, block.records - done);
    out_of_range_records_ += below;
    return below;
  }
  if (const int64_t volumes = scan_.spec.pattern.volumes;
      volumes > 0 && first / scan_.volume_records >= volumes) {
    out_of_range_records_ += end - first;
    return end - first;
  }
  const int64_t before = std::clamp<int64_t>(awaited_record_ - first, 0, end - first);
  duplicate_records_ += before;
  return before;
}

// Records of volume `index`, which may have ended already: they still count for a rolling
// background.
absl::Status ScanSession::ProcessSegment(const uint8_t* raw, int64_t index, int64_t first_record,
                                         int64_t records, const source::SourceBlock& block) {
  const int64_t active =
      active_ == nullptr
          ? 0
          : std::clamp<int64_t>(active_->assembly.active_records() - first_record, 0, records);
  const bool placed = active > 0 && active_->slot != nullptr;
  if (!peers_.empty()) {
    OCTAVO_RETURN_IF_ERROR(ProcessShares(index, first_record, records, active, block));
  } else {
    if (placed) {
      OCTAVO_RETURN_IF_ERROR(processor_->Process(compute_.ref(), raw, active,
                                                 PlacementOf(placement_, index, first_record),
                                                 TargetOf(scan_, *active_->slot)));
    }
    if (const int64_t rest = placed ? active : 0; rolling() && rest < records) {
      OCTAVO_RETURN_IF_ERROR(
          processor_->Process(compute_.ref(), raw + rest * record_bytes_, records - rest,
                              PlacementOf(placement_, index, first_record + rest), {}));
    }
  }
  if (recorder_ != nullptr)
    OCTAVO_RETURN_IF_ERROR(recorder_->Take(compute_.ref(), raw, index, first_record, records));
  if (active_ == nullptr) return absl::OkStatus();
  if (active > 0) active_->assembly.Placed(first_record, active);
  active_->status.acquired_end = block.acquired;
  // Complete with its last A-scan, not when the next volume begins.
  return active_->assembly.all_seen() && first_record + records >= EndOf(*active_)
             ? EndVolume(block)
             : absl::OkStatus();
}

RecordPlacement ScanSession::PlacementOf(const DeviceBuffer (&tables)[2], int64_t index,
                                         int64_t first_record) const {
  const size_t kind = tables[1] ? static_cast<size_t>(index & 1) : 0;
  const auto* table = tables[kind].as<int32_t>();
  return {.raster = processing::RasterOf(scan_),
          .volume = index,
          .first_record = first_record,
          .table = table == nullptr ? nullptr : table + first_record,
          .spans = spans_[kind].data(),
          .span_count = std::ssize(spans_[kind])};
}

absl::Status ScanSession::PushRetire(Completion item) {
  {
    // Events come back from the retire thread; there are enough for all blocks and slots, so this
    // hardly ever waits.
    MutexLock lock(retire_mutex_);
    while (free_events_.empty()) retire_cv_.Wait(lock);
    item.event = free_events_.back();
    free_events_.pop_back();
  }
  const auto index = static_cast<size_t>(item.event);
  const StreamRef stream = ProductStream(item.volume != nullptr);
  if (item.volume != nullptr) OCTAVO_RETURN_IF_ERROR(EnqueueSeal(stream, *item.volume, index));
  if (item.volume != nullptr) OCTAVO_RETURN_IF_ERROR(CopyNonFinite(stream, index));
  OCTAVO_RETURN_IF_ERROR(events_[index].Record(stream));
  MutexLock lock(retire_mutex_);
  volumes_retiring_ += item.volume != nullptr;
  retiring_[(first_retiring_ + retiring_count_++) % retiring_.size()] = std::move(item);
  retire_cv_.NotifyAll();
  return absl::OkStatus();
}

// What every device has counted; `stream`, of the home device, has waited for all of them.
absl::Status ScanSession::CopyNonFinite(StreamRef stream, size_t event) {
  const size_t devices = 1 + peers_.size();
  for (size_t d = 0; non_finite_.data() != nullptr && d < devices; ++d) {
    const SpectralProcessor& processor = d == 0 ? *processor_ : *peers_[d - 1]->processor;
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream,
                                              non_finite_.as<uint64_t>() + devices * event + d,
                                              processor.non_finite_records(), 8));
  }
  return absl::OkStatus();
}

// What the volume is sealed with, to the words of its event: those of each device in turn, then the
// digest of its raw records.
absl::Status ScanSession::EnqueueSeal(StreamRef stream, const ActiveVolume& volume, size_t event) {
  if (striped()) return DigestStripes(stream, volume, event);
  uint64_t* const words = digests_.as<uint64_t>() + digest_words_ * event;
  const memory::VolumeSlot& slot = *volume.slot;
  OCTAVO_RETURN_IF_ERROR(
      device_.Digest(stream, slot.volume.data(), scan_.volume_bytes, slot.digest.as<uint64_t>()));
  OCTAVO_RETURN_IF_ERROR(
      device_.CopyToHost(stream, words, slot.digest.data(), memory::kSealWords * 8));
  for (size_t p = 0; p < peers_.size();
       ++p) {  // their digests count for nothing: the volume lies here
    Peer& peer = *peers_[p];
    OCTAVO_RETURN_IF_ERROR(peer.device.CopyToHost(
        peer.compute.ref(), words + static_cast<int64_t>(p + 1) * memory::kSealWords,
        peer.part.digest.data(), memory::kSealWords * 8));
    OCTAVO_RETURN_IF_ERROR(peer.processed.Record(peer.compute.ref()));
    OCTAVO_RETURN_IF_ERROR(peer.processed.EnqueueWait(stream));
  }
  if (volume.raw_slot == nullptr) return absl::OkStatus();
  const memory::VolumeSlot& raw = *volume.raw_slot;
  OCTAVO_RETURN_IF_ERROR(device_.Digest(stream, raw.volume.data(), volume.raw_status.bytes,
                                        raw.digest.as<uint64_t>()));
  return device_.CopyToHost(stream, words + digest_words_ - 1, raw.digest.data(), 8);
}

// Whether a slot may come back by itself: of a volume behind the device, or one that is still
// copied for subscribers.
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
  if (active_ != nullptr && !aborted &&
      active_->assembly.all_seen()) {  // it waited for the end of a group
    (void)EndVolume({.acquired = active_->status.acquired_end});
  }
  const absl::Status source_status = ring_->close_status();
  const bool all_acquired = !stop_reached_ && !aborted && all_acquired_;
  if (!stop_reached_ && !aborted && !all_acquired) {
    if (!source_status.ok()) {
      const Reason reason = InfoOf(source_status).reason;
      const bool known = reason == Reason::kSourceOverrun || reason == Reason::kSourceStalled ||
                         reason == Reason::kSourceLost;
      EndWith(model::ScanState::kFailed, known ? reason : Reason::kSourceError,
              std::string(source_status.message()));
    } else {
      EndWith(model::ScanState::kDone, Reason::kSourceEnded,
              absl::StrCat("the source ended after ", next_volume_, " volumes"));
    }
  }
  if (active_ != nullptr) {
    if (aborted || active_->slot == nullptr) {
      FailVolume(*active_);
      active_ = nullptr;
    } else if (absl::Status status = EndVolume({.acquired = active_->status.acquired_end});
               !status.ok()) {
      Log(LogLevel::kError, "volume not finished",
          {{"scan", name_}, {"error", std::string(status.message())}});
    }
  }
  if (all_acquired) {  // the last records were lost
    const int64_t volumes = scan_.spec.pattern.volumes, lost = volumes - next_volume_;
    missing_ascans_ += lost * scan_.shape[0] * scan_.shape[1];
    {
      MutexLock lock(status_mutex_);
      status_.volumes_dropped += lost;
    }
    EndWith(model::ScanState::kDone, Reason::kCompleted,
            absl::StrCat("all ", volumes, " volumes acquired"));
  }
  SetState(model::ScanState::kDraining);
  MutexLock lock(retire_mutex_);
  compute_done_ = true;
  retire_cv_.NotifyAll();
}

}  // namespace octavo::scan
