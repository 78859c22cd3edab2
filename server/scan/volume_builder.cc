#include "server/scan/volume_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/pattern/plan.h"
#include "server/processing/replay_records.h"

namespace octavo::scan {
namespace {

AscanCoverage CoverageOf(const model::ResolvedScan& scan, int64_t volume) {
  if (scan.spec.pattern.plan == nullptr) return AscanCoverage(processing::RasterOf(scan));
  const pattern::PatternPlan::Kind& kind = scan.spec.pattern.plan->Of(volume);
  return AscanCoverage(kind.placement, kind.active_records,
                       scan.spec.pattern.averaged() ? scan.spec.pattern.passes() : 1);
}

// The gaps that a status lists: the first 32.
std::vector<std::pair<int64_t, int64_t>> FirstOf(
    const std::vector<std::pair<int64_t, int64_t>>& missing) {
  return {missing.begin(), missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing))};
}

}  // namespace

VolumeBuilder::VolumeBuilder(model::ResolvedScan* scan, DeviceLanes* lanes, Context context)
    : scan_(*scan), lanes_(*lanes), context_(std::move(context)) {}

absl::Status VolumeBuilder::Allocate() {
  first_records_ = std::make_unique<processing::FirstRecords>(scan_.chain);
  if (!scan_.spec.retention.hold_raw) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(recorder_, processing::RawRecorder::Create(scan_, lanes_.home()));
  return absl::OkStatus();
}

int64_t VolumeBuilder::EndOfActive() const {
  const int64_t active = active_->coverage.active_records();
  return rolling() ? RollingShapeOf(scan_.chain).GroupEnd(active - 1) : active;
}

void VolumeBuilder::LookAt(const uint8_t* records, const source::SourceBlock& block) {
  before_ns_ = std::exchange(last_ns_, block.acquired.monotonic_ns);
  if (first_records_ != nullptr) first_records_->Take(records, block.first_record, block.records);
}

const std::shared_ptr<const model::ResolvedScan>& VolumeBuilder::Origin() {
  if (origin_ == nullptr) origin_ = std::make_shared<const model::ResolvedScan>(scan_);
  return origin_;
}

// A block is here when its last record has arrived: of a volume that has no block yet, records may
// have been acquired when the scan was stopped. They arrive one after another, at the rate of the
// scan, and not before the block that came last.
bool VolumeBuilder::BeganBeforeTheStop(int64_t index, const source::SourceBlock& block) const {
  const double rate = model::RecordRateHz(scan_.spec);
  const auto records = static_cast<double>(block.records);
  const auto end = static_cast<double>(block.acquired.monotonic_ns);
  const double begin =
      std::max(static_cast<double>(before_ns_), rate > 0 ? end - records / rate * 1e9 : end);
  const double part = std::clamp(
      static_cast<double>(index * scan_.volume_records - block.first_record) / records, 0.0, 1.0);
  return begin + part * (end - begin) < static_cast<double>(context_.life->stopped_ns());
}

absl::Status VolumeBuilder::Begin(int64_t index, const source::SourceBlock& block) {
  if (context_.life->stop_at_volume() && !BeganBeforeTheStop(index, block)) {
    over_ = true;
    return absl::OkStatus();
  }
  if (index > next_volume_) {  // a gap contains the whole volume
    context_.progress->VolumesDropped(index - next_volume_);
    context_.progress->missing_ascans += (index - next_volume_) * scan_.shape[0] * scan_.shape[1];
  }
  OCTAVO_RETURN_IF_ERROR(TakeUpdate(index));
  auto volume = std::make_shared<ActiveVolume>(CoverageOf(scan_, index));
  volume->index = index;
  volume->display_lo = scan_.display_lo;
  volume->display_hi = scan_.display_hi;
  // Before it takes a slot: the retire thread, which counts free slots, then the volumes to come,
  // moves no volume for one that has its slot.
  context_.progress->volumes_begun = index + 1;
  OCTAVO_RETURN_IF_ERROR(TakeSlots(volume.get()));
  next_volume_ = index + 1;
  if (volume->slot == nullptr) {
    if (const auto reason = context_.retention->EndOfScan(); reason.has_value()) {
      context_.life->EndWith(model::ScanState::kDone, Reason::kHoldSlotsFull, *reason);
      over_ = true;
      return absl::OkStatus();
    }
  } else {
    (void)Origin();
    model::VolumeStatus status = Describe(*volume->slot);
    status.index = index;
    AddToStore(std::move(status), block, volume->slot, &volume->status);
    if (volume->raw_slot != nullptr) {
      model::VolumeStatus raw = processing::RawRecorder::Describe(scan_);
      raw.index = index;
      AddToStore(std::move(raw), block, volume->raw_slot, &volume->raw_status);
    }
  }
  active_ = std::move(volume);  // before any step that may fail: the end of the scan finds it
  context_.progress->VolumeBegun(index);
  if (active_->slot != nullptr) {
    context_.events->Record({.kind = model::EventKind::kVolumeStarted,
                             .text = "volume ACQUIRING",
                             .volume_index = index,
                             .record = index * scan_.volume_records});
  }
  return lanes_.BeginVolume(active_->slot.get());
}

// All of a volume has the same processing: updates that arrived since the last volume began take
// effect here.
absl::Status VolumeBuilder::TakeUpdate(int64_t volume) {
  ProcessingUpdates::Update update;
  if (!context_.updates->Take(&update)) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const bool goes_on, lanes_.Replace(std::move(update.processors), volume));
  scan_ = std::move(update.scan);
  origin_ = nullptr;
  if (first_records_ != nullptr)
    first_records_ = std::make_unique<processing::FirstRecords>(scan_.chain);
  context_.events->Publish({.kind = model::EventKind::kProcessing,
                            .text = "processing changed",
                            .volume_index = volume,
                            .record = volume * scan_.volume_records});
  if (!goes_on && recorder_ != nullptr && rolling()) recorder_->Forget();
  return absl::OkStatus();
}

absl::Status VolumeBuilder::TakeSlots(ActiveVolume* volume) {
  volume->slot = context_.retention->TakeSlot(context_.memory->slots());
  if (memory::SlotPool* raw = context_.memory->raw_slots();
      raw != nullptr && volume->slot != nullptr) {
    volume->raw_slot = context_.retention->TakeSlot(*raw);
    if (volume->raw_slot == nullptr) volume->slot = nullptr;  // both or none
  }
  if (recorder_ == nullptr) return absl::OkStatus();
  return recorder_->BeginVolume(
      lanes_.compute(), volume->raw_slot == nullptr ? nullptr : volume->raw_slot->volume.data(),
      volume->index, volume->coverage.active_records());
}

model::VolumeStatus VolumeBuilder::Describe(const memory::VolumeSlot& slot) const {
  model::VolumeStatus status;
  std::copy(scan_.shape, scan_.shape + 3, status.shape);
  std::copy(scan_.spacing_um, scan_.spacing_um + 3, status.spacing_um);
  std::copy(scan_.spacing_assumed, scan_.spacing_assumed + 3, status.spacing_assumed);
  status.dtype = scan_.chain.output;
  status.has_levels = scan_.chain.has_levels;
  status.level_lo = scan_.chain.level_lo;
  status.level_hi = scan_.chain.level_hi;
  status.value = scan_.spec.processing.value;
  status.spread_devices = lanes_.SpreadNames();
  status.stripe_bscans = slot.stripe_bscans;
  status.bytes = scan_.volume_bytes;
  return status;
}

// The part of the description that all volumes of the scan share.
void VolumeBuilder::AddToStore(model::VolumeStatus status, const source::SourceBlock& block,
                               const std::shared_ptr<memory::VolumeSlot>& slot,
                               model::VolumeStatus* out) {
  status.name = absl::StrCat("volumes/", base::NewId(context_.server_id));
  status.scan = context_.scan;
  status.title = scan_.spec.title;
  status.acquired_begin = status.acquired_end = block.acquired;
  status.device = base::DeviceName(context_.device_index);
  status.labels = scan_.spec.labels;
  status.ttl_seconds = scan_.spec.retention.ttl_seconds;
  status.ttl_warning_seconds = scan_.spec.retention.ttl_warning_seconds;
  status.session = scan_.spec.session;
  status.owner = scan_.spec.owner;
  status.origin = origin_;
  *out = std::move(status);
  context_.store->Add(*out, slot, context_.device_index);
}

absl::StatusOr<bool> VolumeBuilder::Add(const Segment& segment, const uint8_t* raw,
                                        const source::SourceBlock& block) {
  if (recorder_ != nullptr) {
    OCTAVO_RETURN_IF_ERROR(recorder_->Take(lanes_.compute(), raw, segment.volume,
                                           segment.first_record, segment.records));
  }
  if (active_ == nullptr) return false;
  if (segment.active > 0) active_->coverage.Placed(segment.first_record, segment.active);
  active_->status.acquired_end = block.acquired;
  // A volume is complete with its last A-scan, not when the next volume begins.
  return active_->coverage.all_seen() && segment.first_record + segment.records >= EndOfActive();
}

std::shared_ptr<ActiveVolume> VolumeBuilder::TakeActive() {
  return std::exchange(active_, nullptr);
}

absl::Status VolumeBuilder::End(ActiveVolume& volume) {
  volume.coverage.Finish();
  context_.progress->missing_ascans += volume.coverage.missing_ascans();
  const int64_t last = scan_.spec.pattern.volumes - 1;
  if (volume.index == last) {
    context_.life->EndWith(model::ScanState::kDone, Reason::kCompleted,
                           absl::StrCat("all ", last + 1, " volumes acquired"));
    over_ = true;
  } else if (context_.life->stop_at_volume()) {
    over_ = true;
  }
  if (volume.slot == nullptr) {
    context_.events->Publish({.kind = model::EventKind::kVolumeDropped,
                              .text = "volume DROPPED",
                              .volume_index = volume.index});
    context_.progress->VolumesDropped(1);
    return absl::OkStatus();
  }
  const auto& missing = volume.coverage.missing();
  OCTAVO_RETURN_IF_ERROR(lanes_.EndVolume(*volume.slot, missing));
  model::VolumeStatus& status = volume.status;
  status.complete = volume.coverage.missing_ascans() == 0;
  status.missing_ascans = volume.coverage.missing_ascans();
  if (missing.size() > 32)
    status.all_missing = std::make_shared<const std::vector<std::pair<int64_t, int64_t>>>(missing);
  status.missing = FirstOf(missing);
  if (volume.raw_slot != nullptr) {
    model::VolumeStatus& raw = volume.raw_status;
    OCTAVO_ASSIGN_OR_RETURN(raw.raw, recorder_->EndVolume(lanes_.compute(), missing));
    raw.acquired_end = status.acquired_end;
    raw.complete = status.complete;
    raw.missing_ascans = status.missing_ascans;
    raw.missing = FirstOf(recorder_->missing_records());
  }
  volume.first_records = std::move(first_records_);
  return absl::OkStatus();
}

void VolumeBuilder::Fail(const ActiveVolume& volume) {
  if (volume.slot == nullptr) return;
  const auto [code, reason] = context_.life->why();
  context_.store->Fail(volume.status.name, code, reason);
  if (volume.raw_slot != nullptr) context_.store->Fail(volume.raw_status.name, code, reason);
}

void VolumeBuilder::CountLost() {
  const int64_t lost = scan_.spec.pattern.volumes - next_volume_;
  context_.progress->missing_ascans += lost * scan_.shape[0] * scan_.shape[1];
  context_.progress->VolumesDropped(lost);
}

}  // namespace octavo::scan
