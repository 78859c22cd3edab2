#include "server/scan/scan_memory.h"

#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/exportable_memory.h"
#include "server/model/volume_operation.h"
#include "server/pattern/plan.h"
#include "server/processing/raw_records.h"
#include "server/source/source.h"

namespace octavo::scan {
namespace {

constexpr int64_t kPreparedFrameBytes = 64 << 20;

// The layout of one device's part of a striped volume.
memory::SlotLayout BytesOfStripe(const model::ResolvedScan& scan) {
  const int64_t ascans = StripesOf(scan).MostRows(scan.shape[0]) * scan.shape[1];
  return {.device = 0,
          .volume = AlignedBytes(ascans * scan.shape[2] * SizeOf(scan.chain.output)),
          .mip = AlignedBytes(ascans * SizeOf(ProjectionOf(scan.chain.output))),
          .aip = scan.spec.products.aip ? AlignedBytes(ascans * 4) : 0,
          .digest = kMemoryAlignment};
}

// The slot's charge on its home device: for a striped volume its first stripe and the whole
// projections.
memory::SlotLayout BytesOfSlot(const model::ResolvedScan& scan, int device = 0) {
  const int64_t plane = scan.shape[0] * scan.shape[1];
  if (scan.stripe_devices > 1) {
    const memory::SlotLayout stripe = BytesOfStripe(scan);
    return {.device = device,
            .volume = stripe.sum(),
            .mip = AlignedBytes(plane * SizeOf(ProjectionOf(scan.chain.output))),
            .aip = scan.spec.products.aip ? AlignedBytes(plane * 4) : 0,
            .digest = 0};
  }
  return {.device = device,
          .volume = ClientMemory::Bytes(AlignedBytes(scan.volume_bytes)),
          .mip = AlignedBytes(plane * SizeOf(ProjectionOf(scan.chain.output))),
          .aip = scan.spec.products.aip ? AlignedBytes(plane * 4) : 0,
          .digest = kMemoryAlignment};
}

int64_t PlacementBytes(const model::ResolvedScan& scan) {
  const auto& plan = scan.spec.pattern.plan;
  return plan == nullptr ? 0
                         : plan->kinds * AlignedBytes(plan->volume_records *
                                                      static_cast<int64_t>(sizeof(int32_t)));
}

int64_t AngiogramBytes(const model::ResolvedScan& scan) {
  const pattern::Pattern& p = scan.spec.pattern;
  return scan.spec.products.angiography == 0
             ? 0
             : AlignedBytes(p.bscans_per_volume * p.ascans_per_bscan * 4) +
                   AlignedBytes(p.rows() * 4);
}

absl::Status AllocateStripe(const model::ResolvedScan& scan, Device& device,
                            memory::VolumeStripe* stripe) {
  const memory::SlotLayout bytes = BytesOfStripe(scan);
  OCTAVO_ASSIGN_OR_RETURN(stripe->volume, device.Allocate(bytes.volume));
  OCTAVO_ASSIGN_OR_RETURN(stripe->mip, device.Allocate(bytes.mip));
  if (bytes.aip > 0) {
    OCTAVO_ASSIGN_OR_RETURN(stripe->aip, device.Allocate(bytes.aip));
  }
  OCTAVO_ASSIGN_OR_RETURN(stripe->digest, device.Allocate(bytes.digest));
  return absl::OkStatus();
}

}  // namespace

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

int64_t VolumeSlots(const model::ResolvedScan& scan) {
  const model::Retention& retention = scan.spec.retention;
  int64_t slots = retention.hold_slots;
  // A ring needs slots beside the kept ones: one is being filled, one is being finished, and one is
  // for readers.
  if (retention.mode == model::RetentionMode::kLive)
    slots += retention.keep_last > 0 ? 2 + retention.keep_last : 3;
  // One is filled, one is being finished, one is on its way to the other tier.
  if (model::Spills(retention.on_full)) slots = std::max<int64_t>(slots, 3);
  if (retention.disposition != model::Disposition::kAsk) slots = std::max<int64_t>(slots, 2);
  if (scan.spec.pattern.volumes > 0) slots = std::min(slots, scan.spec.pattern.volumes);
  return std::max<int64_t>(slots, 1);
}

memory::SlotLayout LayoutOf(const model::ResolvedScan& scan, int device) {
  return BytesOfSlot(scan, device);
}

std::vector<model::AdmissionReport::Item> Needs(const model::ResolvedScan& scan, Device& device) {
  const int64_t slots = VolumeSlots(scan);
  std::vector<model::AdmissionReport::Item> needs = {{.kind = model::NeedKind::kVolumeSlots,
                                                      .bytes = slots * BytesOfSlot(scan).sum(),
                                                      .count = slots}};
  if (scan.spec.retention.hold_raw) {
    needs.push_back(
        {.kind = model::NeedKind::kRawVolumeSlots,
         .bytes = slots * (ClientMemory::Bytes(processing::RawRecorder::SlotBytes(scan)) +
                           kMemoryAlignment),
         .count = slots});
    needs.push_back({.kind = model::NeedKind::kRawHistory,
                     .bytes = processing::RawRecorder::HistoryBytes(scan),
                     .count = 1});
  }
  needs.insert(needs.end(), {{.kind = model::NeedKind::kRawBlocks,
                              .bytes = kRawBuffers * AlignedBytes(scan.chain.max_records_per_block *
                                                                  RecordBytes(scan.chain)),
                              .count = 1},
                             {.kind = model::NeedKind::kChainWorkspace,
                              .bytes = SpectralProcessor::DeviceBytes(scan.chain, device),
                              .count = 1},
                             {.kind = model::NeedKind::kProjectionScratch,
                              .bytes = AlignedBytes(LargestPlane(scan)),
                              .count = 1}});
  if (const int64_t bytes = AngiogramBytes(scan); bytes > 0)
    needs.push_back({.kind = model::NeedKind::kAngiogram, .bytes = bytes, .count = 1});
  if (const int64_t bytes = PlacementBytes(scan); bytes > 0)
    needs.push_back({.kind = model::NeedKind::kPlacementTable, .bytes = bytes, .count = 1});
  for (auto& item : processing::ChainState::Needs(scan, device, slots))
    needs.push_back(std::move(item));  // the last: see ScanMemory
  return needs;
}

int64_t PinnedBytes(const model::ResolvedScan& scan) {
  const int64_t slots = scan.spec.acquisition.ring_blocks * scan.chain.max_records_per_block *
                        RecordBytes(scan.chain);
  const int64_t lent = source::LentBytes(scan.spec);
  // Means of records are made in slots, even of records that are lent.
  const int64_t ring = lent == 0 ? slots : lent + (scan.chain.record_average > 1 ? slots : 0);
  return ring + PreparedFrames(scan) * FrameBytes(scan);
}

memory::StripeRule StripesOf(const model::ResolvedScan& scan) {
  const pattern::Pattern& p = scan.spec.pattern;
  const int64_t bscans = std::max<int64_t>(1, std::ssize(p.plan->kind[0].segments));
  // Neighbouring rows stay together so that each device gets its share of a block in one piece:
  // small pieces do not fill a link.
  int64_t run = std::max<int64_t>(
      1, scan.chain.max_records_per_block * bscans / scan.volume_records / scan.stripe_devices);
  // Digests of parts add up where they begin at whole words.
  while (run * scan.shape[1] * scan.shape[2] * SizeOf(scan.chain.output) % 8 != 0) ++run;
  return {.bscans = run, .devices = scan.stripe_devices};
}

std::vector<model::AdmissionReport::Item> PeerNeeds(const model::ResolvedScan& scan,
                                                    Device& device) {
  std::vector<model::AdmissionReport::Item> needs = Needs(scan, device);
  std::vector<model::AdmissionReport::Item> kept;
  for (auto& item : needs) {
    if (item.kind == model::NeedKind::kVolumeSlots && scan.stripe_devices > 1) {
      const int64_t slots = VolumeSlots(scan);
      kept.push_back({.kind = model::NeedKind::kVolumeParts,
                      .bytes = slots * BytesOfStripe(scan).sum(),
                      .count = slots});
    } else if (item.kind == model::NeedKind::kVolumeSlots) {
      kept.push_back({.kind = model::NeedKind::kTravellingBscans,
                      .bytes = item.bytes / item.count,
                      .count = 1});
    } else if (item.kind == model::NeedKind::kRawBlocks ||
               item.kind == model::NeedKind::kChainWorkspace ||
               item.kind == model::NeedKind::kPlacementTable) {
      kept.push_back(std::move(item));
    }
  }
  return kept;
}

absl::Status AllocateSlot(const model::ResolvedScan& scan, Device& device,
                          memory::VolumeSlot* slot) {
  const memory::SlotLayout bytes = BytesOfSlot(scan);
  OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(device, bytes.volume));
  OCTAVO_ASSIGN_OR_RETURN(slot->mip, device.Allocate(bytes.mip));
  if (bytes.aip > 0) {
    OCTAVO_ASSIGN_OR_RETURN(slot->aip, device.Allocate(bytes.aip));
  }
  OCTAVO_ASSIGN_OR_RETURN(slot->digest, device.Allocate(bytes.digest));
  return absl::OkStatus();
}

// Slots on several devices are not kept for other scans.
ScanMemory::ScanMemory(const model::ResolvedScan& scan, memory::Ledger* ledger,
                       memory::SlotCache* cache, std::vector<ScanDevice> devices)
    : scan_(scan),
      ledger_(ledger),
      cache_(scan.stripe_devices > 1 ? nullptr : cache),
      devices_(std::move(devices)),
      slot_count_(static_cast<size_t>(VolumeSlots(scan))),
      slots_(
          std::make_shared<memory::SlotPool>(ledger, cache_, LayoutOf(scan, devices_[0].index))) {}

absl::Status ScanMemory::AllocateSlots(StreamRef stream) {
  Device& home = *devices_[0].device;
  const std::vector<memory::Ledger::ChargeId>& charges = devices_[0].charges;
  for (size_t i = 0; i < slot_count_; ++i) {
    std::unique_ptr<memory::VolumeSlot> slot =
        cache_ == nullptr ? nullptr : cache_->Take(charges[i]);
    if (slot != nullptr) {
      // The slot held volumes of another scan.
      for (const DeviceBuffer* part : {&slot->volume, &slot->mip, &slot->aip, &slot->digest}) {
        if (part->bytes() > 0)
          OCTAVO_RETURN_IF_ERROR(home.Fill(stream, part->data(), part->bytes(), 0));
      }
      made_.push_back(std::move(slot));
      continue;
    }
    slot = std::make_unique<memory::VolumeSlot>();
    slot->charge = charges[i];
    OCTAVO_RETURN_IF_ERROR(scan_.stripe_devices > 1 ? AllocateStriped(slot.get())
                                                    : AllocateSlot(scan_, home, slot.get()));
    for (size_t s = 1; s < slot->stripes.size(); ++s)
      slot->stripes[s].charge = devices_[s].charges[i];
    made_.push_back(std::move(slot));
  }
  return scan_.spec.retention.hold_raw ? AllocateRawSlots() : absl::OkStatus();
}

absl::Status ScanMemory::AllocateStriped(memory::VolumeSlot* slot) {
  Device& home = *devices_[0].device;
  const memory::SlotLayout bytes = BytesOfSlot(scan_);
  OCTAVO_ASSIGN_OR_RETURN(slot->mip, home.Allocate(bytes.mip));
  if (bytes.aip > 0) {
    OCTAVO_ASSIGN_OR_RETURN(slot->aip, home.Allocate(bytes.aip));
  }
  slot->stripe_bscans = StripesOf(scan_).bscans;
  for (const ScanDevice& of : devices_) {
    slot->stripes.push_back({.device = of.index});
    OCTAVO_RETURN_IF_ERROR(AllocateStripe(scan_, *of.device, &slot->stripes.back()));
  }
  return absl::OkStatus();
}

absl::Status ScanMemory::AllocateRawSlots() {
  Device& home = *devices_[0].device;
  raw_slots_ = std::make_shared<memory::SlotPool>(ledger_);
  for (size_t i = 0; i < slot_count_; ++i) {
    auto slot = std::make_unique<memory::VolumeSlot>();
    slot->charge = devices_[0].charges[slot_count_ + i];
    OCTAVO_ASSIGN_OR_RETURN(
        slot->volume, ClientMemory::Allocate(home, processing::RawRecorder::SlotBytes(scan_)));
    OCTAVO_ASSIGN_OR_RETURN(slot->digest, home.Allocate(kMemoryAlignment));
    made_raw_.push_back(std::move(slot));
  }
  return absl::OkStatus();
}

// The last charges of the home device: see Needs.
size_t ScanMemory::ChargesOfChains() const {
  return scan_.spec.chains == nullptr ? 0 : scan_.spec.chains->chains.size() * slot_count_ + 1;
}

absl::Status ScanMemory::AllocateChains() {
  const std::vector<memory::Ledger::ChargeId>& charges = devices_[0].charges;
  OCTAVO_ASSIGN_OR_RETURN(
      auto chains,
      processing::ChainState::Create(
          scan_, *devices_[0].device, static_cast<int64_t>(slot_count_), ledger_,
          {charges.end() - static_cast<std::ptrdiff_t>(ChargesOfChains()), charges.end()}));
  MutexLock lock(mutex_);
  chains_ = std::move(chains);
  return absl::OkStatus();
}

void ScanMemory::Begin() {
  const std::vector<memory::Ledger::ChargeId>& charges = devices_[0].charges;
  charges_.assign(charges.begin() + static_cast<std::ptrdiff_t>(slot_count_ + made_raw_.size()),
                  charges.end() - static_cast<std::ptrdiff_t>(ChargesOfChains()));
  for (auto& slot : made_) slots_->Add(std::move(slot));
  for (auto& slot : made_raw_) raw_slots_->Add(std::move(slot));
  made_.clear();
  made_raw_.clear();
  for (size_t d = 1; d < devices_.size(); ++d) {  // first the charges of a striped scan's parts
    const auto& of_peer = devices_[d].charges;
    const auto parts = static_cast<std::ptrdiff_t>(scan_.stripe_devices > 1 ? slot_count_ : 0);
    charges_.insert(charges_.end(), of_peer.begin() + parts, of_peer.end());
  }
  {
    MutexLock lock(mutex_);
    if (chains_ != nullptr) chains_->Begin();
  }
  begun_ = true;
}

std::shared_ptr<processing::ChainState> ScanMemory::chains() {
  MutexLock lock(mutex_);
  return chains_;
}

void ScanMemory::EndChains() {
  MutexLock lock(mutex_);
  chains_ = nullptr;
}

void ScanMemory::CloseSlots() {
  slots_->Close();
  if (raw_slots_ != nullptr) raw_slots_->Close();
}

void ScanMemory::ReleaseCharges() {
  for (const auto id : charges_) ledger_->Release(id);
  charges_.clear();
}

}  // namespace octavo::scan
