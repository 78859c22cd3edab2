// One scan over several devices, B-scan by B-scan: each block is cut into shares, each share is
// uploaded to its device and goes through the chain there; what the peers make is copied into the
// volume on the home device, beside their next kernels. The home device is lane 0, the peers
// follow.

#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/pattern/plan.h"
#include "server/scan/internal.h"
#include "server/scan/scan_session.h"

namespace octavo::scan {

namespace {

// Runs (first, count) of rows, some of which come again: the same rows, each in one run.
void EachOnce(std::vector<std::pair<int64_t, int64_t>>* rows) {
  std::sort(rows->begin(), rows->end());
  size_t kept = 0;
  for (const auto& [first, count] : *rows) {
    auto& last = (*rows)[kept > 0 ? kept - 1 : 0];
    if (kept > 0 && first <= last.first + last.second) {
      last.second = std::max(last.second, first + count - last.first);
    } else {
      (*rows)[kept++] = {first, count};
    }
  }
  rows->resize(kept);
}

void AddRow(int64_t row, std::vector<std::pair<int64_t, int64_t>>* rows) {
  if (!rows->empty() && row >= rows->back().first && row < rows->back().first + rows->back().second)
    return;
  if (!rows->empty() && rows->back().first + rows->back().second == row) {
    ++rows->back().second;
  } else {
    rows->emplace_back(row, 1);
  }
}

}  // namespace

std::vector<model::AdmissionReport::Item> ScanSession::PeerNeeds(const model::ResolvedScan& scan,
                                                                 Device& device) {
  std::vector<model::AdmissionReport::Item> needs = Needs(scan, device);
  std::vector<model::AdmissionReport::Item> kept;
  for (auto& item : needs) {
    if (item.what == "volume slots" && scan.stripe_devices > 1) {
      const int64_t slots = VolumeSlots(scan);
      kept.push_back(
          {.what = "parts of volumes", .bytes = slots * StripeBytes(scan), .count = slots});
    } else if (item.what == "volume slots") {
      kept.push_back(
          {.what = "B-scans on their way home", .bytes = item.bytes / item.count, .count = 1});
    } else if (item.what == "raw blocks" || item.what == "chain workspace" ||
               item.what == "placement table") {
      kept.push_back(std::move(item));
    }
  }
  return kept;
}

absl::Status ScanSession::AllocatePeers() {
  if (context_.peers.empty()) return absl::OkStatus();
  if (striped()) {
    home_ = std::make_unique<Peer>(device_, context_.device_index);
    OCTAVO_ASSIGN_OR_RETURN(home_->copy, device_.NewStream(StreamPriority::kHigh));
    OCTAVO_ASSIGN_OR_RETURN(home_->processed, device_.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(home_->copied, device_.NewEvent());
  }
  const int64_t block_bytes = upload_records_ * record_bytes_;
  for (const SessionPeer& of : context_.peers) {
    auto peer = std::make_unique<Peer>(*of.device, of.index);
    Device& device = peer->device;
    if (!striped()) OCTAVO_RETURN_IF_ERROR(AllocateSlot(device, &peer->part));
    for (int i = 0; i < kRawBuffers; ++i) {
      OCTAVO_ASSIGN_OR_RETURN(peer->raw[i], device.Allocate(block_bytes));
      OCTAVO_ASSIGN_OR_RETURN(peer->raw_free[i], device.NewEvent());
      OCTAVO_ASSIGN_OR_RETURN(peer->uploaded[i], device.NewEvent());
    }
    OCTAVO_ASSIGN_OR_RETURN(peer->upload, device.NewStream(StreamPriority::kNormal));
    OCTAVO_ASSIGN_OR_RETURN(peer->compute, device.NewStream(StreamPriority::kHigh));
    OCTAVO_ASSIGN_OR_RETURN(peer->copy, device.NewStream(StreamPriority::kHigh));
    OCTAVO_ASSIGN_OR_RETURN(peer->processed, device.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(peer->copied, device.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(peer->processor, SpectralProcessor::Create(scan_.chain, device));
    OCTAVO_RETURN_IF_ERROR(
        AllocatePlacement(device, peer->compute.ref(), std::ssize(peers_) + 1, peer->placement));
    peers_.push_back(std::move(peer));
  }
  OCTAVO_ASSIGN_OR_RETURN(begun_, device_.NewEvent());
  lane_records_.assign(peers_.size() + 1, 0);
  shares_.reserve(256);
  for (size_t l = 0; l < lane_records_.size(); ++l) {
    OCTAVO_ASSIGN_OR_RETURN(Event summed, LaneAt(l, 0).device.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(Event pulled, LaneAt(l, 0).device.NewEvent());
    summed_.push_back(std::move(summed));
    pulled_.push_back(std::move(pulled));
  }
  ShareWindows();
  const pattern::Pattern& p = scan_.spec.pattern;
  int64_t bscans_per_block = upload_records_ / (p.ascans_per_bscan + p.flyback_records);
  if (p.plan != nullptr) {
    for (int k = 0; k < p.plan->kinds; ++k) {
      for (const BscanSpan& span : spans_[k]) {
        span_rows_[k].push_back(p.plan->kind[k].placement[static_cast<size_t>(span.first_record)] /
                                p.ascans_per_bscan);
      }
    }
    bscans_per_block = upload_records_ * std::ssize(spans_[0]) / scan_.volume_records;
  }
  // So many neighbours at once that every device has its share of each block, in one piece: small
  // pieces do not fill a link.
  spread_rows_ = striped() ? StripesOf(scan_).bscans
                           : std::max<int64_t>(1, bscans_per_block / std::ssize(lane_records_));
  return absl::OkStatus();
}

ScanSession::BscanPlace ScanSession::PlaceAt(int64_t volume, int64_t record) const {
  const pattern::Pattern& p = scan_.spec.pattern;
  if (p.plan == nullptr) {
    const int64_t line = p.ascans_per_bscan + p.flyback_records,
                  row = std::min(record / line, p.bscans_per_volume - 1);
    return {.row = row,
            .end = row == p.bscans_per_volume - 1 ? scan_.volume_records : (row + 1) * line};
  }
  const size_t kind = placement_[1] ? static_cast<size_t>(volume & 1) : 0;
  const auto& spans = spans_[kind];
  const auto next = std::partition_point(
      spans.begin() + 1, spans.end(), [&](const BscanSpan& s) { return s.first_record <= record; });
  return {.row = span_rows_[kind][static_cast<size_t>(next - spans.begin()) - 1],
          .end = next == spans.end() ? scan_.volume_records : next->first_record};
}

ScanSession::Lane ScanSession::LaneAt(size_t lane, size_t raw_index) {
  if (lane == 0) {
    return {.device = device_,
            .upload = upload_.ref(),
            .compute = compute_.ref(),
            .raw = raw_[raw_index].as<uint8_t>(),
            .uploaded = uploaded_[raw_index],
            .raw_free = raw_free_[raw_index],
            .processor = *processor_,
            .placement = placement_};
  }
  Peer& peer = *peers_[lane - 1];
  return {.device = peer.device,
          .upload = peer.upload.ref(),
          .compute = peer.compute.ref(),
          .raw = peer.raw[raw_index].as<uint8_t>(),
          .uploaded = peer.uploaded[raw_index],
          .raw_free = peer.raw_free[raw_index],
          .processor = *peer.processor,
          .placement = peer.placement};
}

absl::Status ScanSession::UploadShares(size_t raw_index, const uint8_t* from,
                                       const source::SourceBlock& block) {
  raw_index_now_ = raw_index;
  shares_.clear();
  std::fill(lane_records_.begin(), lane_records_.end(), 0);
  const int64_t end = block.first_record + block.records;
  for (int64_t at = std::max<int64_t>(0, block.first_record); at < end;) {
    const int64_t volume = at / scan_.volume_records, begin = volume * scan_.volume_records;
    const BscanPlace place = PlaceAt(volume, at - begin);
    const size_t owner = LaneOfRow(place.row);
    int64_t stop = std::min(end, begin + place.end);
    if (!rolling()) {
      AddShare(owner, at - block.first_record, stop - at, /*borrowed=*/false);
    } else {
      // All devices that have B-scans of the group take all of it.
      const RollingShape shape = RollingShapeOf(scan_.chain);
      const int64_t group_begin = shape.GroupBegin(at), group_end = shape.GroupEnd(at);
      stop = std::min(stop, group_end);
      absl::InlinedVector<bool, 16> takes(lane_records_.size(), false);
      for (int64_t r = group_begin - begin; r < group_end - begin;) {
        const BscanPlace of = PlaceAt(volume, r);
        takes[LaneOfRow(of.row)] = true;
        r = of.end;
      }
      for (size_t lane = 0; lane < takes.size(); ++lane) {
        if (takes[lane])
          AddShare(lane, at - block.first_record, stop - at, /*borrowed=*/lane != owner);
      }
    }
    at = stop;
  }
  for (size_t l = 0; l < lane_records_.size(); ++l) {
    if (lane_records_[l] == 0) continue;
    const Lane lane = LaneAt(l, raw_index);
    OCTAVO_RETURN_IF_ERROR(lane.raw_free.EnqueueWait(lane.upload));
  }
  for (const Share& share : shares_) {
    const Lane lane = LaneAt(share.lane, raw_index);
    OCTAVO_RETURN_IF_ERROR(
        lane.device.CopyToDevice(lane.upload, lane.raw + share.raw_offset * record_bytes_,
                                 from + share.offset * record_bytes_, share.count * record_bytes_));
  }
  for (size_t l = 0; l < lane_records_.size(); ++l) {
    if (lane_records_[l] == 0) continue;
    const Lane lane = LaneAt(l, raw_index);
    OCTAVO_RETURN_IF_ERROR(lane.uploaded.Record(lane.upload));
    OCTAVO_RETURN_IF_ERROR(lane.uploaded.EnqueueWait(lane.compute));
  }
  return absl::OkStatus();
}

void ScanSession::AddShare(size_t lane, int64_t offset, int64_t count, bool borrowed) {
  Share* const last = shares_.empty() ? nullptr : &shares_.back();
  if (last != nullptr && last->lane == lane && last->borrowed == borrowed &&
      last->offset + last->count == offset) {
    last->count += count;
  } else {
    shares_.push_back({.lane = lane,
                       .offset = offset,
                       .count = count,
                       .raw_offset = lane_records_[lane],
                       .borrowed = borrowed});
  }
  lane_records_[lane] += count;
}

// The first `active` of the records are placed, if the volume has a slot.
absl::Status ScanSession::ProcessShares(int64_t index, int64_t first_record, int64_t records,
                                        int64_t active, const source::SourceBlock& block) {
  const bool placed = active_ != nullptr && active_->slot != nullptr;
  const int64_t done =
      index * scan_.volume_records + first_record - block.first_record;  // within the block
  for (const Share& share : shares_) {
    const int64_t begin = std::max(share.offset, done),
                  count = std::min(share.offset + share.count, done + records) - begin;
    if (count <= 0) continue;
    const int64_t first = first_record + begin - done;
    const int64_t own = placed && !share.borrowed
                            ? std::clamp<int64_t>(first_record + active - first, 0, count)
                            : 0;
    OCTAVO_RETURN_IF_ERROR(ProcessShare(share, index, first, begin - share.offset, count, own));
    if (Peer* peer = LanePeer(share.lane); peer != nullptr && own > 0)
      NoteRows(*peer, LaneAt(share.lane, 0).processor, index, first, first + count);
  }
  // Means of repeats grow until the volume ends: copied then, once.
  if (!placed || scan_.chain.repeats > 1) return absl::OkStatus();
  if (home_ != nullptr) OCTAVO_RETURN_IF_ERROR(SendProjections(*home_, 0));
  for (size_t l = 1; l < lane_records_.size(); ++l) {
    OCTAVO_RETURN_IF_ERROR(striped() ? SendProjections(*peers_[l - 1], l)
                                     : SendRows(*peers_[l - 1]));
  }
  return absl::OkStatus();
}

// Records from `first_record` of the volume on, `offset` into the share, of which the first `own`
// are placed.
absl::Status ScanSession::ProcessShare(const Share& share, int64_t index, int64_t first_record,
                                       int64_t offset, int64_t records, int64_t own) {
  const Lane lane = LaneAt(share.lane, raw_index_now_);
  const uint8_t* raw = lane.raw + (share.raw_offset + offset) * record_bytes_;
  if (rolling()) {
    // Groups end in the order of their numbers, on whichever device.
    for (size_t l = 0; l < lane_records_.size(); ++l) {
      const Lane other = LaneAt(l, raw_index_now_);
      OCTAVO_RETURN_IF_ERROR(other.processor.Advance(other.compute, index, first_record));
    }
    // Sums may take the place of such as others have not read yet.
    for (size_t l = 0; processor_->window() != nullptr && l < pulled_.size(); ++l) {
      if (l != share.lane) OCTAVO_RETURN_IF_ERROR(pulled_[l].EnqueueWait(lane.compute));
    }
  }
  RecordPlacement placement = PlacementOf(lane.placement, index, first_record);
  placement.borrowed = share.borrowed;
  if (own > 0)
    OCTAVO_RETURN_IF_ERROR(lane.processor.Process(lane.compute, raw, own, placement,
                                                  LaneTarget(*active_->slot, share.lane)));
  if (!rolling() || own == records) return absl::OkStatus();
  placement = PlacementOf(lane.placement, index, first_record + own);
  placement.borrowed = share.borrowed;
  return lane.processor.Process(lane.compute, raw + own * record_bytes_, records - own, placement,
                                {});
}

// With windows longer than a group every device needs the sums of all groups: whoever has made some
// brings them to the others.
void ScanSession::ShareWindows() {
  if (peers_.empty() || processor_->window() == nullptr) return;
  for (size_t l = 0; l < lane_records_.size(); ++l) {
    LaneAt(l, 0).processor.ShareWindow(
        processor_->window(), [this, l](int64_t first, int64_t entries) -> absl::Status {
          const Lane from = LaneAt(l, 0);
          OCTAVO_RETURN_IF_ERROR(summed_[l].Record(from.compute));
          for (size_t m = 0; m < lane_records_.size(); ++m) {
            if (m == l) continue;
            const Lane to = LaneAt(m, 0);
            OCTAVO_RETURN_IF_ERROR(summed_[l].EnqueueWait(to.compute));
            OCTAVO_RETURN_IF_ERROR(to.device.CopyAcross(to.compute, to.processor.SumsAt(first),
                                                        from.processor.SumsAt(first),
                                                        entries * to.processor.sum_bytes()));
            OCTAVO_RETURN_IF_ERROR(pulled_[m].Record(to.compute));
          }
          return absl::OkStatus();
        });
  }
}

// The rows that records [first, last) of the volume complete. One that will still be written, by
// the next block or because the processor has kept its beginning, waits: it must not be copied
// meanwhile.
void ScanSession::NoteRows(Peer& peer, const SpectralProcessor& processor, int64_t volume,
                           int64_t first, int64_t last) {
  for (int64_t at = first; at < last;) {
    const BscanPlace place = PlaceAt(volume, at);
    if (peer.open.empty() || peer.open.back().row != place.row)
      peer.open.push_back({.row = place.row, .end = place.end});
    at = place.end;
  }
  const int64_t begin = volume * scan_.volume_records;
  const int64_t made = processor.KeptFrom(begin + last) - begin;  // up to here
  size_t whole = 0;
  const size_t most = peer.open.size() - (scan_.chain.bscan_records > 0 ? 1 : 0);
  for (; whole < most && peer.open[whole].end <= made; ++whole)
    AddRow(peer.open[whole].row, &peer.rows);
  peer.open.erase(peer.open.begin(), peer.open.begin() + static_cast<std::ptrdiff_t>(whole));
}

absl::Status ScanSession::SendRows(Peer& peer) {
  if (peer.rows.empty()) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(peer.processed.Record(peer.compute.ref()));
  OCTAVO_RETURN_IF_ERROR(peer.processed.EnqueueWait(peer.copy.ref()));
  OCTAVO_RETURN_IF_ERROR(begun_.EnqueueWait(peer.copy.ref()));
  const memory::VolumeSlot& home = *active_->slot;
  const int64_t ascan_bytes = scan_.shape[2] * SizeOf(scan_.chain.output);
  const auto send = [&](const DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes_per_ascan) {
    for (const auto& [row, count] : peer.rows) {
      const int64_t first = row * scan_.shape[1] * bytes_per_ascan,
                    bytes = count * scan_.shape[1] * bytes_per_ascan;
      OCTAVO_RETURN_IF_ERROR(peer.device.CopyAcross(peer.copy.ref(), to.as<uint8_t>() + first,
                                                    from.as<uint8_t>() + first, bytes));
    }
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(send(home.volume, peer.part.volume, ascan_bytes));
  OCTAVO_RETURN_IF_ERROR(send(home.mip, peer.part.mip, SizeOf(ProjectionOf(scan_.chain.output))));
  if (home.aip) OCTAVO_RETURN_IF_ERROR(send(home.aip, peer.part.aip, 4));
  peer.rows.clear();
  return peer.copied.Record(peer.copy.ref());
}

absl::Status ScanSession::FinishShares() {
  for (size_t l = 1; l < lane_records_.size(); ++l) {
    if (lane_records_[l] == 0) continue;
    const Lane lane = LaneAt(l, raw_index_now_);
    OCTAVO_RETURN_IF_ERROR(lane.raw_free.Record(lane.compute));
    // The slot of the ring is free again when every device has its share.
    OCTAVO_RETURN_IF_ERROR(lane.uploaded.EnqueueWait(compute_.ref()));
  }
  // A processor that was replaced lives until its device has passed its last use.
  return replaced_.empty() ? absl::OkStatus() : JoinPeers();
}

absl::Status ScanSession::BeginVolumeOnPeers() {
  if (peers_.empty()) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(begun_.Record(compute_.ref()));
  const int64_t plane = scan_.shape[0] * scan_.shape[1];
  const DType projection = ProjectionOf(scan_.chain.output);
  if (home_ != nullptr) {
    home_->open.clear();
    home_->rows.clear();
  }
  for (const auto& peer : peers_) {
    OCTAVO_RETURN_IF_ERROR(
        peer->copied.EnqueueWait(peer->compute.ref()));  // the rows of the volume before have gone
    OCTAVO_RETURN_IF_ERROR(peer->processor->BeginVolume(peer->compute.ref()));
    peer->open.clear();
    peer->rows.clear();
    if (striped()) continue;
    OCTAVO_RETURN_IF_ERROR(
        peer->device.Fill(peer->compute.ref(), memory::ClippedIn(peer->part.digest), 16, 0));
    OCTAVO_RETURN_IF_ERROR(peer->device.Fill(peer->compute.ref(), peer->part.mip.data(),
                                             plane * SizeOf(projection), FillPattern(projection)));
    if (peer->part.aip) {
      OCTAVO_RETURN_IF_ERROR(peer->device.Fill(peer->compute.ref(), peer->part.aip.data(),
                                               plane * 4, FillPattern(DType::kF32)));
    }
  }
  return absl::OkStatus();
}

absl::Status ScanSession::EndVolumeOnPeers(const std::shared_ptr<ActiveVolume>& volume) {
  if (peers_.empty()) return absl::OkStatus();
  active_ = volume;  // the last rows still go into it
  for (size_t l = 0; l < lane_records_.size(); ++l) {
    Peer* const peer = LanePeer(l);
    if (peer == nullptr) continue;
    if (l > 0) OCTAVO_RETURN_IF_ERROR(peer->processor->EndVolume(peer->compute.ref()));
    for (const Peer::OpenRow& open : peer->open) AddRow(open.row, &peer->rows);
    peer->open.clear();
    if (scan_.chain.repeats > 1) EachOnce(&peer->rows);
    OCTAVO_RETURN_IF_ERROR(striped() ? SendProjections(*peer, l) : SendRows(*peer));
  }
  active_ = nullptr;
  return JoinPeers();
}

absl::Status ScanSession::JoinPeers() {
  if (home_ != nullptr) OCTAVO_RETURN_IF_ERROR(home_->copied.EnqueueWait(compute_.ref()));
  for (const auto& peer : peers_) OCTAVO_RETURN_IF_ERROR(peer->copied.EnqueueWait(compute_.ref()));
  for (const auto& peer : peers_) {
    OCTAVO_RETURN_IF_ERROR(peer->processed.Record(peer->compute.ref()));
    OCTAVO_RETURN_IF_ERROR(peer->processed.EnqueueWait(compute_.ref()));
  }
  return absl::OkStatus();
}

void ScanSession::SynchronizePeers() {
  if (home_ != nullptr) (void)home_->copy.ref().Synchronize();
  for (const auto& peer : peers_) {
    for (const Stream* stream : {&peer->upload, &peer->compute, &peer->copy}) {
      if (*stream) (void)stream->ref().Synchronize();
    }
  }
}

absl::Status ScanSession::PeersStatus() {
  for (const auto& peer : peers_) OCTAVO_RETURN_IF_ERROR(peer->copied.Query().status());
  return absl::OkStatus();
}

void ScanSession::FailForDevice(const absl::Status& status) {
  Reason code = Reason::kDeviceError;
  std::string reason(status.message());
  const auto look = [&](Device& device, int index) {
    if (const absl::Status health = device.Health(); !health.ok()) {
      code = Reason::kDeviceLost;
      reason = absl::StrCat(base::DeviceName(index), " is lost: ", health.message());
    }
  };
  look(device_, context_.device_index);
  for (const SessionPeer& peer : context_.peers) look(*peer.device, peer.index);
  {
    MutexLock lock(status_mutex_);
    // Whatever was to be its end: what is still in flight does not come any more.
    const bool open = status_.reason_code.empty() || end_state_ == model::ScanState::kDone;
    if (IsFinal(status_.state) || !open) return;
    end_state_ = model::ScanState::kFailed;
    status_.reason_code = std::string(Name(code));
    status_.reason = reason;
  }
  abort_.request_stop();
}

bool ScanSession::Uses(int device) const {
  return device == context_.device_index ||
         std::any_of(context_.peers.begin(), context_.peers.end(),
                     [&](const auto& p) { return p.index == device; });
}

void ScanSession::DeviceLost() {
  if (finished_) return;
  FailForDevice(absl::UnavailableError("a device is lost"));
  SetState(model::ScanState::kDraining);
  Start();  // a QUEUED one goes the way of all scans, only without a record
}

}  // namespace octavo::scan
