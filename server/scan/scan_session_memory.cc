// What a scan needs of memory, and how a session allocates it: slots for volumes, the ring of
// blocks, what the compute thread uses.

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/exception_to_status.h"
#include "server/model/volume_operation.h"
#include "server/pattern/plan.h"
#include "server/processing/replay_records.h"
#include "server/processing/stored_form.h"
#include "server/scan/internal.h"
#include "server/scan/resolve_scan.h"
#include "server/scan/scan_session.h"
#include "server/source/ring_port.h"

namespace octavo::scan {
namespace {

constexpr int64_t kAlign = 256;
// How long a small block waits for more while the device is busy anyway.
constexpr std::chrono::milliseconds kPatience(1);
constexpr int64_t kPreparedFrameBytes = 64 << 20;
int64_t Padded(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Of one device's part of a striped volume.
memory::SlotLayout BytesOfStripe(const model::ResolvedScan& scan) {
  const int64_t ascans = ScanSession::StripesOf(scan).MostRows(scan.shape[0]) * scan.shape[1];
  return {.device = 0,
          .volume = Padded(ascans * scan.shape[2] * SizeOf(scan.chain.output)),
          .mip = Padded(ascans * SizeOf(ProjectionOf(scan.chain.output))),
          .aip = scan.spec.products.aip ? Padded(ascans * 4) : 0,
          .digest = kAlign};
}

// What is charged with the slot on its home device: of a striped volume its first stripe and the
// whole projections.
memory::SlotLayout BytesOfSlot(const model::ResolvedScan& scan, int device = 0) {
  const int64_t plane = scan.shape[0] * scan.shape[1];
  if (scan.stripe_devices > 1) {
    const memory::SlotLayout stripe = BytesOfStripe(scan);
    return {.device = device,
            .volume = stripe.sum(),
            .mip = Padded(plane * SizeOf(ProjectionOf(scan.chain.output))),
            .aip = scan.spec.products.aip ? Padded(plane * 4) : 0,
            .digest = 0};
  }
  return {.device = device,
          .volume = ClientMemory::Bytes(Padded(scan.volume_bytes)),
          .mip = Padded(plane * SizeOf(ProjectionOf(scan.chain.output))),
          .aip = scan.spec.products.aip ? Padded(plane * 4) : 0,
          .digest = kAlign};
}

int64_t PlacementBytes(const model::ResolvedScan& scan) {
  const auto& plan = scan.spec.pattern.plan;
  return plan == nullptr
             ? 0
             : plan->kinds * Padded(plan->volume_records * static_cast<int64_t>(sizeof(int32_t)));
}

int64_t AngiogramBytes(const model::ResolvedScan& scan) {
  const pattern::Pattern& p = scan.spec.pattern;
  return scan.spec.products.angiography == 0
             ? 0
             : Padded(p.bscans_per_volume * p.ascans_per_bscan * 4) + Padded(p.rows() * 4);
}

int64_t FrameBytes(const model::ResolvedScan& scan) {
  return scan.shape[0] * scan.shape[1] * SizeOf(scan.chain.output);
}
int64_t PreparedFrames(const model::ResolvedScan& scan) {
  return std::clamp<int64_t>(kPreparedFrameBytes / FrameBytes(scan), 4, 72);
}

int64_t LargestPlane(const model::ResolvedScan& scan) {
  const auto& s = scan.shape;
  return std::max({s[0] * s[1], s[0] * s[2], s[1] * s[2]}) * SizeOf(scan.chain.output);
}

// Records that a counted scan is made of; 0 = until stopped.
int64_t RecordsWanted(const model::ResolvedScan& scan) {
  const int64_t volumes = scan.spec.pattern.volumes;
  return volumes > std::numeric_limits<int64_t>::max() / 2 / scan.volume_records
             ? 0
             : volumes * scan.volume_records;
}

}  // namespace

int64_t ScanSession::VolumeSlots(const model::ResolvedScan& scan) {
  const model::Retention& retention = scan.spec.retention;
  int64_t slots = retention.hold_slots;
  // A ring needs slots beside the kept ones: one filling, one being finished, one to look at.
  if (retention.mode == model::RetentionMode::kLive)
    slots += retention.keep_last > 0 ? 2 + retention.keep_last : 3;
  // One is filled, one is being finished, one is on its way to the other tier.
  if (model::Spills(retention.on_full)) slots = std::max<int64_t>(slots, 3);
  if (retention.disposition != model::Disposition::kAsk) slots = std::max<int64_t>(slots, 2);
  if (scan.spec.pattern.volumes > 0) slots = std::min(slots, scan.spec.pattern.volumes);
  return std::max<int64_t>(slots, 1);
}

memory::SlotLayout ScanSession::LayoutOf(const model::ResolvedScan& scan, int device) {
  return BytesOfSlot(scan, device);
}

std::vector<model::AdmissionReport::Item> ScanSession::Needs(const model::ResolvedScan& scan,
                                                             Device& device) {
  const int64_t slots = VolumeSlots(scan);
  std::vector<model::AdmissionReport::Item> needs = {
      {.what = "volume slots", .bytes = slots * BytesOfSlot(scan).sum(), .count = slots}};
  if (scan.spec.retention.hold_raw) {
    needs.push_back(
        {.what = "raw volume slots",
         .bytes = slots * (ClientMemory::Bytes(processing::RawRecorder::SlotBytes(scan)) + kAlign),
         .count = slots});
    needs.push_back({.what = "raw records before a volume",
                     .bytes = processing::RawRecorder::HistoryBytes(scan),
                     .count = 1});
  }
  needs.insert(
      needs.end(),
      {{.what = "raw blocks",
        .bytes = kRawBuffers * Padded(scan.chain.max_records_per_block * RecordBytes(scan.chain)),
        .count = 1},
       {.what = "chain workspace",
        .bytes = SpectralProcessor::DeviceBytes(scan.chain, device),
        .count = 1},
       {.what = "projection scratch", .bytes = Padded(LargestPlane(scan)), .count = 1}});
  if (const int64_t bytes = AngiogramBytes(scan); bytes > 0)
    needs.push_back({.what = "angiogram", .bytes = bytes, .count = 1});
  if (const int64_t bytes = PlacementBytes(scan); bytes > 0)
    needs.push_back({.what = "placement table", .bytes = bytes, .count = 1});
  for (auto& item : processing::ChainState::Needs(scan, device, slots))
    needs.push_back(std::move(item));  // the last: see Allocate
  return needs;
}

int64_t ScanSession::PinnedBytes(const model::ResolvedScan& scan) {
  const int64_t slots = scan.spec.acquisition.ring_blocks * scan.chain.max_records_per_block *
                        RecordBytes(scan.chain);
  int64_t ring = slots;
  if (std::holds_alternative<model::RingSource>(scan.spec.source))
    ring =
        source::LimitsOfRing(scan.spec).total_bytes() + (scan.chain.record_average > 1 ? slots : 0);
  return ring + PreparedFrames(scan) * FrameBytes(scan);
}

memory::StripeRule ScanSession::StripesOf(const model::ResolvedScan& scan) {
  const pattern::Pattern& p = scan.spec.pattern;
  const int64_t bscans = std::max<int64_t>(1, std::ssize(p.plan->kind[0].segments));
  // So many neighbours at once that every device has its share of each block, in one piece: small
  // pieces do not fill a link.
  int64_t run = std::max<int64_t>(
      1, scan.chain.max_records_per_block * bscans / scan.volume_records / scan.stripe_devices);
  // Digests of parts add up where they begin at whole words.
  while (run * scan.shape[1] * scan.shape[2] * SizeOf(scan.chain.output) % 8 != 0) ++run;
  return {.bscans = run, .devices = scan.stripe_devices};
}

int64_t ScanSession::StripeBytes(const model::ResolvedScan& scan) {
  return BytesOfStripe(scan).sum();
}

absl::Status ScanSession::AllocateStripe(Device& device, memory::VolumeStripe* stripe) const {
  const memory::SlotLayout bytes = BytesOfStripe(scan_);
  OCTAVO_ASSIGN_OR_RETURN(stripe->volume, device.Allocate(bytes.volume));
  OCTAVO_ASSIGN_OR_RETURN(stripe->mip, device.Allocate(bytes.mip));
  if (bytes.aip > 0) {
    OCTAVO_ASSIGN_OR_RETURN(stripe->aip, device.Allocate(bytes.aip));
  }
  OCTAVO_ASSIGN_OR_RETURN(stripe->digest, device.Allocate(bytes.digest));
  return absl::OkStatus();
}

absl::Status ScanSession::AllocateSlot(Device& device, memory::VolumeSlot* slot) const {
  const memory::SlotLayout bytes = BytesOfSlot(scan_);
  if (striped()) {
    OCTAVO_ASSIGN_OR_RETURN(slot->mip, device.Allocate(bytes.mip));
    if (bytes.aip > 0) {
      OCTAVO_ASSIGN_OR_RETURN(slot->aip, device.Allocate(bytes.aip));
    }
    slot->stripe_bscans = StripesOf(scan_).bscans;
    slot->stripes.push_back({.device = context_.device_index});
    OCTAVO_RETURN_IF_ERROR(AllocateStripe(device, &slot->stripes.back()));
    for (const SessionPeer& peer : context_.peers) {
      slot->stripes.push_back({.device = peer.index});
      OCTAVO_RETURN_IF_ERROR(AllocateStripe(*peer.device, &slot->stripes.back()));
    }
    return absl::OkStatus();
  }
  OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(device, bytes.volume));
  OCTAVO_ASSIGN_OR_RETURN(slot->mip, device.Allocate(bytes.mip));
  if (bytes.aip > 0) {
    OCTAVO_ASSIGN_OR_RETURN(slot->aip, device.Allocate(bytes.aip));
  }
  OCTAVO_ASSIGN_OR_RETURN(slot->digest, device.Allocate(bytes.digest));
  return absl::OkStatus();
}

absl::Status ScanSession::AllocatePlacement(Device& device, StreamRef stream, int64_t lane,
                                            DeviceBuffer* tables) const {
  for (int k = 0; scan_.spec.pattern.plan != nullptr && k < scan_.spec.pattern.plan->kinds; ++k) {
    std::vector<int32_t> table = scan_.spec.pattern.plan->kind[k].placement;
    if (striped()) {  // within the device's own part; what goes elsewhere has no place here
      const memory::StripeRule rule = StripesOf(scan_);
      const int64_t columns = scan_.shape[1];
      for (int32_t& place : table) {
        if (place < 0) continue;
        const int64_t y = place / columns;
        place = rule.DeviceOf(y) == lane
                    ? static_cast<int32_t>(rule.LocalOf(y) * columns + place % columns)
                    : -1;
      }
    }
    const auto table_bytes = static_cast<int64_t>(table.size() * sizeof table[0]);
    OCTAVO_ASSIGN_OR_RETURN(tables[k], device.Allocate(table_bytes));
    OCTAVO_RETURN_IF_ERROR(
        device.CopyToDevice(stream, tables[k].data(), table.data(), table_bytes));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  }
  return absl::OkStatus();
}

absl::Status ScanSession::AllocateSlots(const std::vector<memory::Ledger::ChargeId>& charges,
                                        memory::SlotCache* cache, Slots* slots) {
  for (size_t i = 0; i < static_cast<size_t>(VolumeSlots(scan_)); ++i) {
    std::unique_ptr<memory::VolumeSlot> slot = cache == nullptr ? nullptr : cache->Take(charges[i]);
    if (slot != nullptr) {
      // It held somebody else's volumes.
      for (const DeviceBuffer* part : {&slot->volume, &slot->mip, &slot->aip, &slot->digest}) {
        if (part->bytes() > 0)
          OCTAVO_RETURN_IF_ERROR(device_.Fill(compute_.ref(), part->data(), part->bytes(), 0));
      }
      slots->push_back(std::move(slot));
      continue;
    }
    slot = std::make_unique<memory::VolumeSlot>();
    slot->charge = charges[i];
    OCTAVO_RETURN_IF_ERROR(AllocateSlot(device_, slot.get()));
    for (size_t s = 1; s < slot->stripes.size(); ++s)
      slot->stripes[s].charge = context_.peers[s - 1].charges[i];
    slots->push_back(std::move(slot));
  }
  return absl::OkStatus();
}

absl::Status ScanSession::AllocateRawSlots(const std::vector<memory::Ledger::ChargeId>& charges,
                                           Slots* slots) {
  if (!scan_.spec.retention.hold_raw) return absl::OkStatus();
  raw_slots_ = std::make_shared<memory::SlotPool>(context_.ledger);
  const auto slot_count = static_cast<size_t>(VolumeSlots(scan_));
  for (size_t i = 0; i < slot_count; ++i) {
    auto slot = std::make_unique<memory::VolumeSlot>();
    slot->charge = charges[slot_count + i];
    OCTAVO_ASSIGN_OR_RETURN(
        slot->volume, ClientMemory::Allocate(device_, processing::RawRecorder::SlotBytes(scan_)));
    OCTAVO_ASSIGN_OR_RETURN(slot->digest, device_.Allocate(kAlign));
    slots->push_back(std::move(slot));
  }
  OCTAVO_ASSIGN_OR_RETURN(recorder_, processing::RawRecorder::Create(scan_, device_));
  return absl::OkStatus();
}

// Blocks on the host and on the device.
absl::Status ScanSession::AllocateRing() {
  const int64_t block_bytes = upload_records_ * record_bytes_;
  if (source::ZeroCopySource* lender = source_->lender(); lender != nullptr) {
    OCTAVO_RETURN_IF_ERROR(lender->OpenMemory(device_));
    if (record_average_ == 1) lender_ = lender;  // means are made in slots
  }
  for (int64_t i = 0; lender_ == nullptr && i < scan_.spec.acquisition.ring_blocks; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(auto memory, device_.AllocatePinned(block_bytes));
    ring_memory_.push_back(std::move(memory));
  }
  const auto parts =
      lender_ == nullptr ? std::ssize(ring_memory_) : source::LimitsOfRing(scan_.spec).slots;
  ring_ = std::make_unique<BlockRing>(
      static_cast<int>(parts),
      GatherRule{.enough_records = upload_records_, .patience = kPatience});
  for (int i = 0; i < kRawBuffers; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(raw_[i], device_.Allocate(block_bytes));
    OCTAVO_ASSIGN_OR_RETURN(raw_free_[i], device_.NewEvent());
    OCTAVO_ASSIGN_OR_RETURN(uploaded_[i], device_.NewEvent());
  }
  return absl::OkStatus();
}

absl::Status ScanSession::AllocateAngiogram() {
  if (scan_.spec.products.angiography == 0) return absl::OkStatus();
  const pattern::Pattern& p = scan_.spec.pattern;
  std::vector<int32_t> rows;
  for (int64_t b = 0; b < p.bscans_per_volume; ++b) {
    for (int64_t r = 0; r < p.repeat_count; ++r)
      rows.push_back(static_cast<int32_t>(pattern::RepeatRow(p, b, r)));
  }
  OCTAVO_ASSIGN_OR_RETURN(angiogram_,
                          device_.Allocate(p.bscans_per_volume * p.ascans_per_bscan * 4));
  OCTAVO_ASSIGN_OR_RETURN(repeat_rows_, device_.Allocate(p.rows() * 4));
  OCTAVO_RETURN_IF_ERROR(
      device_.CopyToDevice(compute_.ref(), repeat_rows_.data(), rows.data(), p.rows() * 4));
  return compute_.ref().Synchronize();
}

// What travels to the retire thread: events, digests and stamps for `slots` volumes and all blocks.
absl::Status ScanSession::AllocateRetiring(int64_t slots) {
  // A slot of the ring may be taken in parts; more of them than this would wait for the device.
  const int64_t event_count = 2 * scan_.spec.acquisition.ring_blocks + slots + 2;
  digest_words_ = static_cast<size_t>(memory::kSealWords) * (1 + context_.peers.size()) + 1;
  OCTAVO_ASSIGN_OR_RETURN(
      digests_, device_.AllocatePinned(event_count * static_cast<int64_t>(digest_words_) * 8));
  if (scan_.chain.raw_type == DType::kF32) {
    OCTAVO_ASSIGN_OR_RETURN(
        non_finite_, device_.AllocatePinned(event_count * static_cast<int64_t>((1 + peers_.size()) *
                                                                               sizeof(uint64_t))));
  }
  for (int64_t i = 0; i < event_count; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Event event, device_.NewEvent());
    events_.push_back(std::move(event));
    MutexLock lock(retire_mutex_);
    free_events_.push_back(static_cast<int>(i));
  }
  {
    MutexLock lock(retire_mutex_);
    retiring_.resize(static_cast<size_t>(event_count));
  }
  stamp_slots_ = event_count + 1;
  OCTAVO_ASSIGN_OR_RETURN(
      stamps_, device_.AllocatePinned(3 * stamp_slots_ * static_cast<int64_t>(sizeof(int64_t))));
  OCTAVO_ASSIGN_OR_RETURN(device_clock_, device_.ReadClock());
  return absl::OkStatus();
}

absl::Status ScanSession::Allocate(const std::vector<memory::Ledger::ChargeId>& charges) {
  Slots slots, raw_slots;
  absl::Status status =
      base::ExceptionToStatus([&] { return AllocateAll(charges, &slots, &raw_slots); });
  if (!status.ok())
    compute_ = Stream();  // waits: slots of ended scans are scrubbed on it, and go now
  return status;
}

absl::Status ScanSession::AllocateAll(const std::vector<memory::Ledger::ChargeId>& charges,
                                      Slots* slots, Slots* raw_slots) {
  record_bytes_ = RecordBytes(scan_.chain);
  record_average_ = scan_.chain.record_average;
  block_records_ = scan_.spec.acquisition.records_per_block;
  upload_records_ = scan_.chain.max_records_per_block;
  const auto slot_count = static_cast<size_t>(VolumeSlots(scan_));
  // Slots on several devices are not kept for other scans.
  memory::SlotCache* const cache = striped() ? nullptr : context_.slot_cache;
  slots_ = std::make_shared<memory::SlotPool>(context_.ledger, cache,
                                              LayoutOf(scan_, context_.device_index));
  OCTAVO_ASSIGN_OR_RETURN(upload_, device_.NewStream(StreamPriority::kNormal));
  OCTAVO_ASSIGN_OR_RETURN(compute_, device_.NewStream(StreamPriority::kHigh));
  OCTAVO_ASSIGN_OR_RETURN(copy_, device_.NewStream(StreamPriority::kLow));
  OCTAVO_RETURN_IF_ERROR(AllocateSlots(charges, cache, slots));
  OCTAVO_RETURN_IF_ERROR(AllocateRawSlots(charges, raw_slots));
  OCTAVO_RETURN_IF_ERROR(AllocateRing());
  OCTAVO_ASSIGN_OR_RETURN(scratch_, device_.Allocate(LargestPlane(scan_)));
  OCTAVO_ASSIGN_OR_RETURN(products_, device_.NewStream(StreamPriority::kHigh));
  OCTAVO_ASSIGN_OR_RETURN(volume_ready_, device_.NewEvent());
  OCTAVO_ASSIGN_OR_RETURN(processor_, SpectralProcessor::Create(scan_.chain, device_));
  first_records_ = std::make_unique<processing::FirstRecords>(scan_.chain);
  OCTAVO_RETURN_IF_ERROR(AllocateAngiogram());
  OCTAVO_RETURN_IF_ERROR(AllocatePlacement(device_, compute_.ref(), 0, placement_));
  for (int k = 0; scan_.spec.pattern.plan != nullptr && k < scan_.spec.pattern.plan->kinds; ++k) {
    spans_[k] = processing::SpansOf(scan_.spec.pattern, k);
  }
  OCTAVO_RETURN_IF_ERROR(AllocatePeers());
  OCTAVO_RETURN_IF_ERROR(AllocateRetiring(static_cast<int64_t>(slot_count)));
  // The publisher keeps the newest frames: enough for those, so that none is allocated while the
  // scan runs.
  context_.frames->Prepare(FrameBytes(scan_), static_cast<int>(PreparedFrames(scan_)));
  const size_t of_chains =
      scan_.spec.chains == nullptr ? 0 : scan_.spec.chains->chains.size() * slot_count + 1;
  OCTAVO_ASSIGN_OR_RETURN(
      auto chain_memory,
      processing::ChainState::Create(
          scan_, device_, static_cast<int64_t>(slot_count), context_.ledger,
          {charges.end() - static_cast<std::ptrdiff_t>(of_chains), charges.end()}));
  // Only now, when nothing can fail any more: slots in the pool release their charges themselves.
  for (auto& slot : *slots) slots_->Add(std::move(slot));
  for (auto& slot : *raw_slots) raw_slots_->Add(std::move(slot));
  charges_.assign(charges.begin() + static_cast<std::ptrdiff_t>(slot_count + raw_slots->size()),
                  charges.end() - static_cast<std::ptrdiff_t>(of_chains));
  if (chain_memory != nullptr) chain_memory->Begin();
  {
    MutexLock lock(update_mutex_);
    chain_memory_ = std::move(chain_memory);
  }
  for (const SessionPeer& peer : context_.peers) {
    charges_.insert(
        charges_.end(),
        peer.charges.begin() + (striped() ? static_cast<std::ptrdiff_t>(slot_count) : 0),
        peer.charges.end());
  }
  volume_records_ = scan_.volume_records;
  wanted_records_ = RecordsWanted(scan_);
  overrun_ = scan_.spec.overrun;
  source_->Want(wanted_records_ * record_average_);
  source_->OnNews([this](const std::string& text) {
    PublishEvent({.kind = model::EventKind::kSource, .text = text, .record = next_record_});
  });
  {
    MutexLock lock(status_mutex_);
    status_.plan = DescribeSource(scan_) + processor_->Describe() + "\n" + DescribeSpacing(scan_) +
                   processing::DescribeMemory(scan_, VolumeSlots(scan_));
  }
  (void)Failpoint("scan_allocated");
  context_.publisher->ScanStarted(name_, scan_.spec.labels,
                                  {.extents = {scan_.shape[0], scan_.shape[1], scan_.shape[2]},
                                   .has_aip = scan_.spec.products.aip,
                                   .has_angiogram = scan_.spec.products.angiography != 0,
                                   .striped = striped()});
  allocated_ = true;
  return absl::OkStatus();
}

}  // namespace octavo::scan
