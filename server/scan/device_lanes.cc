#include "server/scan/device_lanes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/pattern/plan.h"
#include "server/processing/replay_records.h"

namespace octavo::scan {

struct DeviceLanes::Lane {
  explicit Lane(Device& of) : device(of) {}
  Device& device;
  Stream upload, compute;
  DeviceBuffer raw[kRawBuffers];
  Event uploaded[kRawBuffers], raw_free[kRawBuffers];
  DeviceBuffer placement[2];  // of even and odd volumes; empty: the raster rule
  std::shared_ptr<SpectralProcessor> processor;

  // -- of a lane that sends its results home
  memory::VolumeSlot part;  // its B-scans in their places; the others' are stale. Not with stripes
  Stream sending;
  Event processed, sent;  // of compute and sending
  RowsHome rows;

  // -- of several lanes
  Event summed, pulled;  // its sums are there; it has those of the others. With windows longer than
                         // a group
};

DeviceLanes::DeviceLanes(const model::ResolvedScan& scan, const std::vector<ScanDevice>& devices)
    : scan_(scan),
      devices_(devices),
      striped_(scan.stripe_devices > 1),
      record_bytes_(RecordBytes(scan.chain)),
      shares_(scan, devices.size()) {
  for (const ScanDevice& of : devices) lanes_.push_back(std::make_unique<Lane>(*of.device));
}

DeviceLanes::~DeviceLanes() = default;

absl::Status DeviceLanes::OpenStreams() {
  Lane& lane = *lanes_[0];
  OCTAVO_ASSIGN_OR_RETURN(lane.upload, lane.device.NewStream(StreamPriority::kNormal));
  OCTAVO_ASSIGN_OR_RETURN(lane.compute, lane.device.NewStream(StreamPriority::kHigh));
  return absl::OkStatus();
}

absl::Status DeviceLanes::Allocate() {
  for (size_t l = 0; l < lanes_.size(); ++l) OCTAVO_RETURN_IF_ERROR(AllocateLane(l));
  if (lanes_.size() == 1) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(begun_, home().NewEvent());
  for (const auto& lane : lanes_) {
    OCTAVO_ASSIGN_OR_RETURN(lane->summed, lane->device.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(lane->pulled, lane->device.NewEvent());
  }
  ShareWindows();
  return absl::OkStatus();
}

absl::Status DeviceLanes::AllocateLane(size_t index) {
  Lane& lane = *lanes_[index];
  Device& device = lane.device;
  if (index > 0 && !striped_) OCTAVO_RETURN_IF_ERROR(AllocateSlot(scan_, device, &lane.part));
  for (int i = 0; i < kRawBuffers; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(lane.raw[i],
                            device.Allocate(scan_.chain.max_records_per_block * record_bytes_));
    OCTAVO_ASSIGN_OR_RETURN(lane.raw_free[i], device.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(lane.uploaded[i], device.NewEvent());
  }
  if (index > 0) {
    OCTAVO_ASSIGN_OR_RETURN(lane.upload, device.NewStream(StreamPriority::kNormal));
    OCTAVO_ASSIGN_OR_RETURN(lane.compute, device.NewStream(StreamPriority::kHigh));
  }
  if (Sends(index)) {
    OCTAVO_ASSIGN_OR_RETURN(lane.sending, device.NewStream(StreamPriority::kHigh));
    OCTAVO_ASSIGN_OR_RETURN(lane.processed, device.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(lane.sent, device.NewEvent());
  }
  OCTAVO_ASSIGN_OR_RETURN(lane.processor, SpectralProcessor::Create(scan_.chain, device));
  return AllocatePlacement(index);
}

absl::Status DeviceLanes::AllocatePlacement(size_t index) {
  Lane& lane = *lanes_[index];
  const auto& plan = scan_.spec.pattern.plan;
  for (int k = 0; plan != nullptr && k < plan->kinds; ++k) {
    std::vector<int32_t> table = plan->kind[k].placement;
    if (striped_) {  // only records of the device's own part have a place
      const memory::StripeRule rule = StripesOf(scan_);
      const int64_t columns = scan_.shape[1];
      for (int32_t& place : table) {
        if (place < 0) continue;
        const int64_t y = place / columns;
        place = rule.DeviceOf(y) == static_cast<int64_t>(index)
                    ? static_cast<int32_t>(rule.LocalOf(y) * columns + place % columns)
                    : -1;
      }
    }
    const auto bytes = static_cast<int64_t>(table.size() * sizeof table[0]);
    OCTAVO_ASSIGN_OR_RETURN(lane.placement[k], lane.device.Allocate(bytes));
    OCTAVO_RETURN_IF_ERROR(lane.device.CopyToDevice(lane.compute.ref(), lane.placement[k].data(),
                                                    table.data(), bytes));
    OCTAVO_RETURN_IF_ERROR(lane.compute.ref().Synchronize());
  }
  return absl::OkStatus();
}

absl::Status DeviceLanes::Synchronize() {
  absl::Status first;
  for (const auto& lane : lanes_) {
    for (const Stream* stream : {&lane->upload, &lane->compute, &lane->sending}) {
      if (*stream) first.Update(stream->ref().Synchronize());
    }
  }
  return first;
}

void DeviceLanes::Free() {
  lanes_.clear();
  replaced_.clear();
  begun_ = Event();
}

StreamRef DeviceLanes::compute() const { return lanes_[0]->compute.ref(); }

absl::Status DeviceLanes::Upload(size_t raw, const uint8_t* from,
                                 const source::SourceBlock& block) {
  shares_.Cut(block);
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (shares_.RecordsOf(l) == 0) continue;
    Lane& lane = *lanes_[l];  // its raw buffer is free once the chain has passed its last use
    OCTAVO_RETURN_IF_ERROR(lane.raw_free[raw].EnqueueWait(lane.upload.ref()));
  }
  for (const BlockShares::Share& share : shares_.shares()) {
    Lane& lane = *lanes_[share.lane];
    OCTAVO_RETURN_IF_ERROR(lane.device.CopyToDevice(
        lane.upload.ref(), lane.raw[raw].as<uint8_t>() + share.raw_offset * record_bytes_,
        from + share.offset * record_bytes_, share.count * record_bytes_));
  }
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (shares_.RecordsOf(l) == 0) continue;
    Lane& lane = *lanes_[l];
    OCTAVO_RETURN_IF_ERROR(lane.uploaded[raw].Record(lane.upload.ref()));
    OCTAVO_RETURN_IF_ERROR(lane.uploaded[raw].EnqueueWait(lane.compute.ref()));
  }
  return absl::OkStatus();
}

const uint8_t* DeviceLanes::RawAt(size_t raw, int64_t record) const {
  return lanes_[0]->raw[raw].as<uint8_t>() + record * record_bytes_;
}

absl::Status DeviceLanes::Process(size_t raw, const source::SourceBlock& block,
                                  const Segment& segment, const memory::VolumeSlot* slot) {
  const int64_t done = segment.volume * scan_.volume_records + segment.first_record -
                       block.first_record;  // within the block
  for (const BlockShares::Share& share : shares_.shares()) {
    const int64_t begin = std::max(share.offset, done),
                  count = std::min(share.offset + share.count, done + segment.records) - begin;
    if (count <= 0) continue;
    const int64_t first = segment.first_record + begin - done;
    const Segment part{
        .volume = segment.volume,
        .first_record = first,
        .records = count,
        .active =
            slot == nullptr || share.borrowed
                ? 0
                : std::clamp<int64_t>(segment.first_record + segment.active - first, 0, count)};
    OCTAVO_RETURN_IF_ERROR(ProcessShare(raw, share, part, begin - share.offset, slot));
    if (Sends(share.lane) && part.active > 0) {
      Lane& lane = *lanes_[share.lane];
      const int64_t volume_begin = segment.volume * scan_.volume_records;
      lane.rows.Note(shares_, segment.volume, first, first + count,
                     lane.processor->KeptFrom(volume_begin + first + count) - volume_begin,
                     scan_.chain.bscan_records > 0);
    }
  }
  // Means of repeats change until the volume ends, so they are sent once, at its end.
  if (slot == nullptr || scan_.chain.repeats > 1) return absl::OkStatus();
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (Sends(l)) OCTAVO_RETURN_IF_ERROR(SendRows(l, *slot));
  }
  return absl::OkStatus();
}

// A part of a share, `offset` into it.
absl::Status DeviceLanes::ProcessShare(size_t raw, const BlockShares::Share& share,
                                       const Segment& segment, int64_t offset,
                                       const memory::VolumeSlot* slot) {
  Lane& lane = *lanes_[share.lane];
  const StreamRef compute = lane.compute.ref();
  const uint8_t* from = lane.raw[raw].as<uint8_t>() + (share.raw_offset + offset) * record_bytes_;
  if (rolling() && lanes_.size() > 1) {
    // Groups end in the order of their numbers, regardless of the device.
    for (const auto& other : lanes_) {
      OCTAVO_RETURN_IF_ERROR(
          other->processor->Advance(other->compute.ref(), segment.volume, segment.first_record));
    }
  }
  RecordPlacement placement = PlacementOf(lane, segment.volume, segment.first_record);
  placement.borrowed = share.borrowed;
  if (segment.active > 0)
    OCTAVO_RETURN_IF_ERROR(lane.processor->Process(compute, from, segment.active, placement,
                                                   TargetOf(share.lane, *slot)));
  if (!rolling() || segment.active == segment.records) return absl::OkStatus();
  placement = PlacementOf(lane, segment.volume, segment.first_record + segment.active);
  placement.borrowed = share.borrowed;
  return lane.processor->Process(compute, from + segment.active * record_bytes_,
                                 segment.records - segment.active, placement, {});
}

RecordPlacement DeviceLanes::PlacementOf(const Lane& lane, int64_t volume,
                                         int64_t first_record) const {
  const size_t kind = shares_.KindOf(volume);
  const auto* table = lane.placement[kind].as<int32_t>();
  const std::vector<BscanSpan>& spans = shares_.Spans(kind);
  return {.raster = processing::RasterOf(scan_),
          .volume = volume,
          .first_record = first_record,
          .table = table == nullptr ? nullptr : table + first_record,
          .spans = spans.data(),
          .span_count = std::ssize(spans)};
}

SpectralTarget DeviceLanes::TargetOf(size_t lane, const memory::VolumeSlot& slot) const {
  const auto target = [](const auto& memory, int64_t ascans) {
    return SpectralTarget{.volume = memory.volume.data(),
                          .volume_ascans = ascans,
                          .mip = memory.mip.data(),
                          .aip = memory.aip.template as<float>(),
                          .clipped = memory::ClippedIn(memory.digest)};
  };
  if (striped_)
    return target(slot.stripes[lane], StripesOf(scan_).MostRows(scan_.shape[0]) * scan_.shape[1]);
  return target(lane == 0 ? slot : lanes_[lane]->part, scan_.shape[0] * scan_.shape[1]);
}

absl::Status DeviceLanes::EndBlock(size_t raw) {
  OCTAVO_RETURN_IF_ERROR(lanes_[0]->raw_free[raw].Record(compute()));
  for (size_t l = 1; l < lanes_.size(); ++l) {
    if (shares_.RecordsOf(l) == 0) continue;
    Lane& lane = *lanes_[l];
    OCTAVO_RETURN_IF_ERROR(lane.raw_free[raw].Record(lane.compute.ref()));
    // The slot of the ring is free again when every device has its share.
    OCTAVO_RETURN_IF_ERROR(lane.uploaded[raw].EnqueueWait(compute()));
  }
  // A processor that was replaced lives until its device has passed its last use.
  return replaced_.empty() ? absl::OkStatus() : Join();
}

// `part`: a slot or a stripe of `ascans` A-scans on the lane's device.
template <class Part>
absl::Status DeviceLanes::ClearProjections(size_t l, const Part& part, int64_t ascans) {
  Device& device = lanes_[l]->device;
  const StreamRef stream = lanes_[l]->compute.ref();
  const DType projection = ProjectionOf(scan_.chain.output);
  if (uint64_t* clipped = memory::ClippedIn(part.digest); clipped != nullptr)
    OCTAVO_RETURN_IF_ERROR(device.Fill(stream, clipped, 16, 0));
  OCTAVO_RETURN_IF_ERROR(
      device.Fill(stream, part.mip.data(), ascans * SizeOf(projection), FillPattern(projection)));
  return part.aip ? device.Fill(stream, part.aip.data(), ascans * 4, FillPattern(DType::kF32))
                  : absl::OkStatus();
}

absl::Status DeviceLanes::BeginVolume(const memory::VolumeSlot* slot) {
  OCTAVO_RETURN_IF_ERROR(lanes_[0]->processor->BeginVolume(compute()));
  const int64_t plane = scan_.shape[0] * scan_.shape[1];
  if (slot != nullptr) {
    OCTAVO_RETURN_IF_ERROR(ClearProjections(0, *slot, plane));
    // Whole rows go home, missing A-scans included.
    for (size_t l = 0; l < slot->stripes.size(); ++l) {
      OCTAVO_RETURN_IF_ERROR(ClearProjections(
          l, slot->stripes[l], StripesOf(scan_).MostRows(scan_.shape[0]) * scan_.shape[1]));
    }
  }
  if (lanes_.size() == 1) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(begun_.Record(compute()));
  lanes_[0]->rows.Clear();
  for (size_t l = 1; l < lanes_.size(); ++l) {
    Lane& lane = *lanes_[l];
    const StreamRef stream = lane.compute.ref();
    OCTAVO_RETURN_IF_ERROR(lane.sent.EnqueueWait(stream));  // the previous volume was sent
    OCTAVO_RETURN_IF_ERROR(lane.processor->BeginVolume(stream));
    lane.rows.Clear();
    if (!striped_) OCTAVO_RETURN_IF_ERROR(ClearProjections(l, lane.part, plane));
  }
  return absl::OkStatus();
}

absl::Status DeviceLanes::EndVolume(const memory::VolumeSlot& slot,
                                    const std::vector<std::pair<int64_t, int64_t>>& missing) {
  for (size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = *lanes_[l];
    // A B-scan that waited for its end.
    OCTAVO_RETURN_IF_ERROR(lane.processor->EndVolume(lane.compute.ref()));
    if (!Sends(l)) continue;
    lane.rows.Finish(/*again=*/scan_.chain.repeats > 1);
    OCTAVO_RETURN_IF_ERROR(SendRows(l, slot));
  }
  OCTAVO_RETURN_IF_ERROR(Join());
  return FillMissing(slot, missing);
}

// Copies the lane's whole rows to their places in the volume; for a striped volume copies only
// their projections.
absl::Status DeviceLanes::SendRows(size_t l, const memory::VolumeSlot& slot) {
  Lane& lane = *lanes_[l];
  if (lane.rows.whole().empty()) return absl::OkStatus();
  const StreamRef sending = lane.sending.ref();
  OCTAVO_RETURN_IF_ERROR(lane.processed.Record(lane.compute.ref()));
  OCTAVO_RETURN_IF_ERROR(lane.processed.EnqueueWait(sending));
  OCTAVO_RETURN_IF_ERROR(begun_.EnqueueWait(sending));
  // Without stripes a row has the same place in the part as in the volume.
  const memory::StripeRule rule =
      striped_ ? StripesOf(scan_) : memory::StripeRule{.bscans = scan_.shape[0], .devices = 1};
  const auto send = [&](const DeviceBuffer& to, const DeviceBuffer& from,
                        int64_t bytes_per_ascan) -> absl::Status {
    const int64_t row_bytes = scan_.shape[1] * bytes_per_ascan;
    for (const auto& [row, count] : lane.rows.whole()) {
      for (int64_t y = row; y < row + count;) {  // rows of other devices may lie between two runs:
                                                 // those are never noted here
        const int64_t end = std::min(row + count, rule.RunEnd(y));
        OCTAVO_RETURN_IF_ERROR(lane.device.CopyAcross(
            sending, to.as<uint8_t>() + y * row_bytes,
            from.as<uint8_t>() + rule.LocalOf(y) * row_bytes, (end - y) * row_bytes));
        y = end;
      }
    }
    return absl::OkStatus();
  };
  const auto send_projections = [&](const auto& from) -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(send(slot.mip, from.mip, SizeOf(ProjectionOf(scan_.chain.output))));
    return slot.aip ? send(slot.aip, from.aip, 4) : absl::OkStatus();
  };
  if (striped_) {
    OCTAVO_RETURN_IF_ERROR(send_projections(slot.stripes[l]));
  } else {
    OCTAVO_RETURN_IF_ERROR(
        send(slot.volume, lane.part.volume, scan_.shape[2] * SizeOf(scan_.chain.output)));
    OCTAVO_RETURN_IF_ERROR(send_projections(lane.part));
  }
  lane.rows.Sent();
  return lane.sent.Record(sending);
}

absl::Status DeviceLanes::Join() {
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (Sends(l)) OCTAVO_RETURN_IF_ERROR(lanes_[l]->sent.EnqueueWait(compute()));
  }
  for (size_t l = 1; l < lanes_.size(); ++l) {
    Lane& lane = *lanes_[l];
    OCTAVO_RETURN_IF_ERROR(lane.processed.Record(lane.compute.ref()));
    OCTAVO_RETURN_IF_ERROR(lane.processed.EnqueueWait(compute()));
  }
  return absl::OkStatus();
}

absl::Status DeviceLanes::FillMissing(const memory::VolumeSlot& slot,
                                      const std::vector<std::pair<int64_t, int64_t>>& missing) {
  const int64_t ascan_bytes = scan_.shape[2] * SizeOf(scan_.chain.output), columns = scan_.shape[1];
  const uint32_t pattern = FillPattern(scan_.chain.output);
  for (const auto& [first, count] : missing) {
    if (!striped_) {
      OCTAVO_RETURN_IF_ERROR(home().Fill(compute(), slot.volume.as<uint8_t>() + first * ascan_bytes,
                                         count * ascan_bytes, pattern));
      continue;
    }
    const memory::StripeRule rule = StripesOf(scan_);
    for (int64_t at = first; at < first + count;) {
      const int64_t y = at / columns, end = std::min(first + count, rule.RunEnd(y) * columns);
      const auto l = static_cast<size_t>(rule.DeviceOf(y));
      OCTAVO_RETURN_IF_ERROR(
          lanes_[l]->device.Fill(lanes_[l]->compute.ref(),
                                 slot.stripes[l].volume.as<uint8_t>() +
                                     (rule.LocalOf(y) * columns + at % columns) * ascan_bytes,
                                 (end - at) * ascan_bytes, pattern));
      at = end;
    }
  }
  return striped_ && !missing.empty() ? Join() : absl::OkStatus();
}

absl::Status DeviceLanes::EnqueueSeal(StreamRef stream, const memory::VolumeSlot& slot,
                                      uint64_t* words) {
  if (striped_) return DigestStripes(stream, slot, words);
  OCTAVO_RETURN_IF_ERROR(home().Digest(stream,
                                       slot.volume.span<const uint8_t>().First(scan_.volume_bytes),
                                       slot.digest.span<uint64_t>()));
  OCTAVO_RETURN_IF_ERROR(
      home().CopyToHost(stream, words, slot.digest.data(), memory::kSealWords * 8));
  for (size_t l = 1; l < lanes_.size(); ++l) {  // the digests of other lanes do not count: see Sum
    Lane& lane = *lanes_[l];
    OCTAVO_RETURN_IF_ERROR(lane.device.CopyToHost(
        lane.compute.ref(), words + static_cast<int64_t>(l) * memory::kSealWords,
        lane.part.digest.data(), memory::kSealWords * 8));
    OCTAVO_RETURN_IF_ERROR(lane.processed.Record(lane.compute.ref()));
    OCTAVO_RETURN_IF_ERROR(lane.processed.EnqueueWait(stream));
  }
  return absl::OkStatus();
}

// Each device sums its part; the parts add up.
absl::Status DeviceLanes::DigestStripes(StreamRef stream, const memory::VolumeSlot& slot,
                                        uint64_t* words) {
  const memory::StripeRule rule = StripesOf(scan_);
  const int64_t bscan_bytes = scan_.shape[1] * scan_.shape[2] * SizeOf(scan_.chain.output);
  for (size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = *lanes_[l];
    const memory::VolumeStripe& stripe = slot.stripes[l];
    const auto number = static_cast<int64_t>(l);
    const StreamRef on = l == 0 ? stream : lane.compute.ref();
    OCTAVO_RETURN_IF_ERROR(lane.device.DigestOfPart(
        on,
        stripe.volume.span<const uint8_t>().First(rule.RowsOf(number, scan_.shape[0]) *
                                                  bscan_bytes),
        rule.PlaceOf(number, bscan_bytes), stripe.digest.span<uint64_t>()));
    OCTAVO_RETURN_IF_ERROR(lane.device.CopyToHost(on, words + memory::kSealWords * number,
                                                  stripe.digest.data(), memory::kSealWords * 8));
    if (l == 0) continue;
    OCTAVO_RETURN_IF_ERROR(lane.processed.Record(on));
    OCTAVO_RETURN_IF_ERROR(lane.processed.EnqueueWait(stream));
  }
  return absl::OkStatus();
}

DeviceLanes::SealSum DeviceLanes::Sum(const uint64_t* words) const {
  SealSum sum;
  for (size_t l = 0; l < devices_.size(); ++l) {
    const uint64_t* of_lane = words + static_cast<int64_t>(l) * memory::kSealWords;
    if (l == 0 || striped_) sum.digest += of_lane[0];  // otherwise the volume lies at home
    sum.clipped_below += static_cast<int64_t>(of_lane[1]);
    sum.clipped_above += static_cast<int64_t>(of_lane[2]);
  }
  return sum;
}

absl::Status DeviceLanes::EnqueueNonFinite(uint64_t* words) {
  for (size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = *lanes_[l];
    const void* const count = lane.processor->non_finite_records().data();
    OCTAVO_RETURN_IF_ERROR(lane.device.CopyToHost(lane.compute.ref(), words + l, count, 8));
  }
  return absl::OkStatus();
}

absl::StatusOr<const void*> DeviceLanes::CutPlane(StreamRef stream, const memory::VolumeSlot& slot,
                                                  Axis axis, int64_t index, void* scratch) {
  if (!striped_) {
    OCTAVO_RETURN_IF_ERROR(
        ExtractPlane(stream, home(),
                     VolumeView{.data = slot.volume.data(),
                                .dtype = scan_.chain.output,
                                .shape = {scan_.shape[0], scan_.shape[1], scan_.shape[2]}},
                     axis, index, scratch));
    return scratch;
  }
  if (axis != Axis::kY) return nullptr;
  const memory::StripeRule rule = StripesOf(scan_);
  const int64_t bytes = scan_.shape[1] * scan_.shape[2] * SizeOf(scan_.chain.output);
  const memory::VolumeStripe& stripe = slot.stripes[static_cast<size_t>(rule.DeviceOf(index))];
  OCTAVO_RETURN_IF_ERROR(home().CopyAcross(
      stream, scratch, stripe.volume.as<uint8_t>() + rule.LocalOf(index) * bytes, bytes));
  return scratch;
}

absl::StatusOr<const void*> DeviceLanes::MakeMip(StreamRef stream, const memory::VolumeSlot& slot,
                                                 Axis axis, const model::DepthRange& slab,
                                                 void* scratch) {
  if (striped_) return axis == Axis::kZ && !slab.given() ? slot.mip.data() : nullptr;
  const VolumeView view{.data = slot.volume.data(),
                        .dtype = scan_.chain.output,
                        .shape = {scan_.shape[0], scan_.shape[1], scan_.shape[2]}};
  OCTAVO_RETURN_IF_ERROR(
      slab.given()
          ? EnFaceSlab(stream, home(), view, slab.begin, slab.end, scratch)
          : Mip(stream, home(), view, axis, 0, scan_.shape[0], /*accumulate=*/false, scratch));
  return scratch;
}

absl::StatusOr<bool> DeviceLanes::Replace(std::vector<std::shared_ptr<SpectralProcessor>> next,
                                          int64_t volume) {
  for (const auto& lane : lanes_)  // leftovers of the previous volumes
    OCTAVO_RETURN_IF_ERROR(lane->processor->Advance(lane->compute.ref(), volume, 0));
  bool goes_on = true;
  const size_t before = replaced_.size();
  for (size_t l = 0; l < lanes_.size(); ++l)
    replaced_.push_back(std::exchange(lanes_[l]->processor, std::move(next[l])));
  for (size_t l = 0; l < lanes_.size(); ++l) {
    OCTAVO_ASSIGN_OR_RETURN(
        const bool in_lane,
        lanes_[l]->processor->Continue(lanes_[l]->compute.ref(), *replaced_[before + l]));
    goes_on = goes_on && in_lane;
  }
  ShareWindows();
  return goes_on;
}

std::vector<std::shared_ptr<SpectralProcessor>> DeviceLanes::TakeReplaced() {
  return std::exchange(replaced_, {});
}

std::string DeviceLanes::Describe() const { return lanes_[0]->processor->Describe(); }

// With windows longer than a group every device needs the sums of all groups: each lane copies the
// sums that it has made to the others.
void DeviceLanes::ShareWindows() {
  const auto& window = lanes_[0]->processor->window();
  if (lanes_.size() == 1 || window == nullptr) return;
  for (size_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l]->processor->ShareWindow(
        window, {.before = [this, l] { return AwaitPulls(l); },
                 .after = [this, l](int64_t first,
                                    int64_t entries) { return BringSums(l, first, entries); }});
  }
}

// Waits until the other lanes have copied what they still need of older sums. Say lane 0 makes new
// sums in an entry of the ring, and lane 2 has not read the old ones there yet: neither those of
// lane 0, which the new ones overwrite, nor those of lane 1, over which lane 1 copies the new ones.
absl::Status DeviceLanes::AwaitPulls(size_t l) {
  for (size_t m = 0; m < lanes_.size(); ++m) {
    if (m != l) OCTAVO_RETURN_IF_ERROR(lanes_[m]->pulled.EnqueueWait(lanes_[l]->compute.ref()));
  }
  return absl::OkStatus();
}

absl::Status DeviceLanes::BringSums(size_t l, int64_t first, int64_t entries) {
  Lane& from = *lanes_[l];
  const DeviceSpan<const double> sums = from.processor->SumsAt(first, entries);
  OCTAVO_RETURN_IF_ERROR(from.summed.Record(from.compute.ref()));
  for (size_t m = 0; m < lanes_.size(); ++m) {
    if (m == l) continue;
    Lane& to = *lanes_[m];
    const StreamRef stream = to.compute.ref();
    OCTAVO_RETURN_IF_ERROR(from.summed.EnqueueWait(stream));
    OCTAVO_RETURN_IF_ERROR(to.device.CopyAcross(stream, to.processor->SumsAt(first, entries).data(),
                                                sums.data(), sums.bytes()));
    OCTAVO_RETURN_IF_ERROR(to.pulled.Record(stream));
  }
  return absl::OkStatus();
}

absl::Status DeviceLanes::SentStatus() {
  for (size_t l = 1; l < lanes_.size(); ++l)
    OCTAVO_RETURN_IF_ERROR(lanes_[l]->sent.Query().status());
  return absl::OkStatus();
}

bool DeviceLanes::Uses(int device) const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [&](const ScanDevice& of) { return of.index == device; });
}

std::vector<std::string> DeviceLanes::SpreadNames() const {
  std::vector<std::string> names;
  for (const ScanDevice& of : devices_) {
    if (devices_.size() > 1) names.push_back(base::DeviceName(of.index));
  }
  return names;
}

DeviceLanes::Failure DeviceLanes::FailureOf(const absl::Status& status) const {
  Failure failure{.code = InfoOf(status).reason == Reason::kOutOfMemory ? Reason::kOutOfMemory
                                                                        : Reason::kDeviceError,
                  .reason = std::string(status.message())};
  for (const ScanDevice& of : devices_) {
    if (const absl::Status health = of.device->Health(); !health.ok()) {
      failure = {
          .code = Reason::kDeviceLost,
          .reason = absl::StrCat(base::DeviceName(of.index), " is lost: ", health.message())};
    }
  }
  return failure;
}

}  // namespace octavo::scan
