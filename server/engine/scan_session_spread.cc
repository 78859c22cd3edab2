// One scan over several devices, B-scan by B-scan: each block is cut into shares, each share is uploaded to its device and goes
// through the chain there; what the peers make is copied into the volume on the home device, beside their next kernels. The home
// device is lane 0, the peers follow.

#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "server/engine/names.h"
#include "server/engine/pattern/plan.h"
#include "server/engine/scan_session.h"
#include "server/engine/scan_session_parts.h"

namespace octavo::engine {

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

}  // namespace

std::vector<AdmissionReport::Item> ScanSession::PeerNeeds(const ResolvedScan& scan, Device& device) {
  std::vector<AdmissionReport::Item> needs = Needs(scan, device);
  std::vector<AdmissionReport::Item> kept;
  for (auto& item : needs) {
    if (item.what == "volume slots" && scan.stripe_devices > 1) {
      const int64_t slots = VolumeSlots(scan);
      kept.push_back({.what = "parts of volumes", .bytes = slots * StripeBytes(scan), .count = slots});
    } else if (item.what == "volume slots") {
      kept.push_back({.what = "B-scans on their way home", .bytes = item.bytes / item.count, .count = 1});
    } else if (item.what == "raw blocks" || item.what == "chain workspace" || item.what == "placement table") {
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
    OCTAVO_RETURN_IF_ERROR(AllocatePlacement(device, peer->compute.ref(), std::ssize(peers_) + 1, peer->placement));
    peers_.push_back(std::move(peer));
  }
  OCTAVO_ASSIGN_OR_RETURN(begun_, device_.NewEvent());
  lane_records_.assign(peers_.size() + 1, 0);
  shares_.reserve(256);
  const Pattern& p = scan_.spec.pattern;
  int64_t bscans_per_block = upload_records_ / (p.ascans_per_bscan + p.flyback_records);
  if (p.plan != nullptr) {
    for (int k = 0; k < p.plan->kinds; ++k) {
      for (const BscanSpan& span : spans_[k]) {
        span_rows_[k].push_back(p.plan->kind[k].placement[static_cast<size_t>(span.first_record)] / p.ascans_per_bscan);
      }
    }
    bscans_per_block = upload_records_ * std::ssize(spans_[0]) / scan_.volume_records;
  }
  // So many neighbours at once that every device has its share of each block, in one piece: small pieces do not fill a link.
  spread_rows_ = striped() ? StripesOf(scan_).bscans : std::max<int64_t>(1, bscans_per_block / std::ssize(lane_records_));
  return absl::OkStatus();
}

ScanSession::BscanPlace ScanSession::PlaceAt(int64_t volume, int64_t record) const {
  const Pattern& p = scan_.spec.pattern;
  if (p.plan == nullptr) {
    const int64_t line = p.ascans_per_bscan + p.flyback_records, row = std::min(record / line, p.bscans_per_volume - 1);
    return {.row = row, .end = row == p.bscans_per_volume - 1 ? scan_.volume_records : (row + 1) * line};
  }
  const size_t kind = placement_[1] ? static_cast<size_t>(volume & 1) : 0;
  const auto& spans = spans_[kind];
  const auto next = std::partition_point(spans.begin() + 1, spans.end(), [&](const BscanSpan& s) { return s.first_record <= record; });
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

absl::Status ScanSession::UploadShares(size_t raw_index, const uint8_t* from, const SourceBlock& block) {
  raw_index_now_ = raw_index;
  shares_.clear();
  std::fill(lane_records_.begin(), lane_records_.end(), 0);
  const int64_t end = block.first_record + block.records;
  for (int64_t at = std::max<int64_t>(0, block.first_record); at < end;) {
    const int64_t volume = at / scan_.volume_records;
    const BscanPlace place = PlaceAt(volume, at - volume * scan_.volume_records);
    const auto lane = static_cast<size_t>(place.row / spread_rows_) % lane_records_.size();
    const int64_t count = std::min(end, volume * scan_.volume_records + place.end) - at;
    if (!shares_.empty() && shares_.back().lane == lane) {
      shares_.back().count += count;
    } else {
      shares_.push_back({.lane = lane, .offset = at - block.first_record, .count = count, .raw_offset = lane_records_[lane]});
    }
    lane_records_[lane] += count;
    at += count;
  }
  for (size_t l = 0; l < lane_records_.size(); ++l) {
    if (lane_records_[l] == 0) continue;
    const Lane lane = LaneAt(l, raw_index);
    OCTAVO_RETURN_IF_ERROR(lane.raw_free.EnqueueWait(lane.upload));
  }
  for (const Share& share : shares_) {
    const Lane lane = LaneAt(share.lane, raw_index);
    OCTAVO_RETURN_IF_ERROR(lane.device.CopyToDevice(lane.upload, lane.raw + share.raw_offset * record_bytes_, from + share.offset * record_bytes_,
                                                    share.count * record_bytes_));
  }
  for (size_t l = 0; l < lane_records_.size(); ++l) {
    if (lane_records_[l] == 0) continue;
    const Lane lane = LaneAt(l, raw_index);
    OCTAVO_RETURN_IF_ERROR(lane.uploaded.Record(lane.upload));
    OCTAVO_RETURN_IF_ERROR(lane.uploaded.EnqueueWait(lane.compute));
    OCTAVO_RETURN_IF_ERROR(lane.processor.BeginBlock(lane.compute, lane.raw, lane_records_[l]));
  }
  return absl::OkStatus();
}

absl::Status ScanSession::ProcessShares(int64_t first_record, int64_t records, const SourceBlock& block) {
  ActiveVolume& volume = *active_;
  const int64_t done = volume.index * scan_.volume_records + first_record - block.first_record;  // within the block
  const size_t kind = placement_[1] ? static_cast<size_t>(volume.index & 1) : 0;
  for (const Share& share : shares_) {
    const int64_t begin = std::max(share.offset, done), count = std::min(share.offset + share.count, done + records) - begin;
    if (count <= 0) continue;
    const Lane lane = LaneAt(share.lane, raw_index_now_);
    const int64_t first = first_record + begin - done;
    const auto* table = lane.placement[kind].as<int32_t>();
    OCTAVO_RETURN_IF_ERROR(lane.processor.Process(lane.compute, lane.raw + (share.raw_offset + begin - share.offset) * record_bytes_, count,
                                                  {.raster = RasterOf(scan_),
                                                   .first_record = first,
                                                   .table = table == nullptr ? nullptr : table + first,
                                                   .spans = spans_[kind].data(),
                                                   .span_count = std::ssize(spans_[kind])},
                                                  LaneTarget(*volume.slot, share.lane)));
    if (Peer* peer = LanePeer(share.lane); peer != nullptr) NoteRows(*peer, volume.index, first, first + count);
  }
  // Means of repeats grow until the volume ends: copied then, once.
  if (scan_.chain.repeats > 1) return absl::OkStatus();
  if (home_ != nullptr) OCTAVO_RETURN_IF_ERROR(SendProjections(*home_, 0));
  for (size_t l = 1; l < lane_records_.size(); ++l) {
    OCTAVO_RETURN_IF_ERROR(striped() ? SendProjections(*peers_[l - 1], l) : SendRows(*peers_[l - 1]));
  }
  return absl::OkStatus();
}

// The rows that records [first, last) of the volume complete. One that will still be written, by the next block or because the
// processor has kept its beginning, waits: it must not be copied meanwhile.
void ScanSession::NoteRows(Peer& peer, int64_t volume, int64_t first, int64_t last) {
  const auto add = [&](int64_t row) {
    if (!peer.rows.empty() && row >= peer.rows.back().first && row < peer.rows.back().first + peer.rows.back().second) return;
    if (!peer.rows.empty() && peer.rows.back().first + peer.rows.back().second == row) {
      ++peer.rows.back().second;
    } else {
      peer.rows.emplace_back(row, 1);
    }
  };
  for (int64_t at = first; at < last;) {
    const BscanPlace place = PlaceAt(volume, at);
    if (peer.kept_row >= 0 && peer.kept_row != place.row) add(peer.kept_row);
    const bool open = last < place.end || scan_.chain.bscan_records > 0;
    peer.kept_row = open ? place.row : -1;
    if (!open) add(place.row);
    at = place.end;
  }
}

absl::Status ScanSession::SendRows(Peer& peer) {
  if (peer.rows.empty()) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(peer.processed.Record(peer.compute.ref()));
  OCTAVO_RETURN_IF_ERROR(peer.processed.EnqueueWait(peer.copy.ref()));
  OCTAVO_RETURN_IF_ERROR(begun_.EnqueueWait(peer.copy.ref()));
  const VolumeSlot& home = *active_->slot;
  const int64_t ascan_bytes = scan_.shape[2] * SizeOf(scan_.chain.output);
  const auto send = [&](const DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes_per_ascan) {
    for (const auto& [row, count] : peer.rows) {
      const int64_t first = row * scan_.shape[1] * bytes_per_ascan, bytes = count * scan_.shape[1] * bytes_per_ascan;
      OCTAVO_RETURN_IF_ERROR(peer.device.CopyAcross(peer.copy.ref(), to.as<uint8_t>() + first, from.as<uint8_t>() + first, bytes));
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
    home_->kept_row = -1;
    home_->rows.clear();
  }
  for (const auto& peer : peers_) {
    OCTAVO_RETURN_IF_ERROR(peer->copied.EnqueueWait(peer->compute.ref()));  // the rows of the volume before have gone
    OCTAVO_RETURN_IF_ERROR(peer->processor->BeginVolume(peer->compute.ref()));
    peer->kept_row = -1;
    peer->rows.clear();
    if (striped()) continue;
    OCTAVO_RETURN_IF_ERROR(peer->device.Fill(peer->compute.ref(), ClippedIn(peer->part.digest), 16, 0));
    OCTAVO_RETURN_IF_ERROR(peer->device.Fill(peer->compute.ref(), peer->part.mip.data(), plane * SizeOf(projection), FillPattern(projection)));
    if (peer->part.aip) {
      OCTAVO_RETURN_IF_ERROR(peer->device.Fill(peer->compute.ref(), peer->part.aip.data(), plane * 4, FillPattern(DType::kF32)));
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
    if (l > 0) OCTAVO_RETURN_IF_ERROR(peer->processor->EndVolume(peer->compute.ref(), LaneTarget(*volume->slot, l)));
    if (peer->kept_row >= 0) peer->rows.emplace_back(std::exchange(peer->kept_row, -1), 1);
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
  std::string code = "DEVICE_ERROR", reason(status.message());
  const auto look = [&](Device& device, int index) {
    if (const absl::Status health = device.Health(); !health.ok()) {
      code = "DEVICE_LOST";
      reason = absl::StrCat(DeviceName(index), " is lost: ", health.message());
    }
  };
  look(device_, context_.device_index);
  for (const SessionPeer& peer : context_.peers) look(*peer.device, peer.index);
  {
    MutexLock lock(status_mutex_);
    // Whatever was to be its end: what is still in flight does not come any more.
    const bool open = status_.reason_code.empty() || end_state_ == ScanState::kDone;
    if (IsFinal(status_.state) || !open) return;
    end_state_ = ScanState::kFailed;
    status_.reason_code = code;
    status_.reason = reason;
  }
  abort_.request_stop();
}

bool ScanSession::Uses(int device) const {
  return device == context_.device_index ||
         std::any_of(context_.peers.begin(), context_.peers.end(), [&](const auto& p) { return p.index == device; });
}

void ScanSession::DeviceLost() {
  if (finished_) return;
  FailForDevice(absl::UnavailableError("a device is lost"));
  SetState(ScanState::kDraining);
  Start();  // a QUEUED one goes the way of all scans, only without a record
}

}  // namespace octavo::engine
