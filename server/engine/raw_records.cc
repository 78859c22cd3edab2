#include "server/engine/raw_records.h"

#include <algorithm>

#include "gpu/base/status.h"
#include "gpu/spectral_span.h"
#include "server/engine/pattern/plan.h"

namespace octavo::engine {
namespace {

constexpr int64_t kAlign = 256;
int64_t Padded(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// As far back as the scan's own rolling background looks, and a block at least: the default of other processings.
int64_t HistoryRecords(const ResolvedScan& scan) {
  return std::max(scan.spec.acquisition.records_per_block,
                  scan.chain.background == math::Background::kRolling ? scan.chain.background_window_records : 0);
}

// The lead, and what the first and the last block hold of other volumes.
int64_t SideRecords(const ResolvedScan& scan) { return HistoryRecords(scan) + 2 * scan.spec.acquisition.records_per_block; }

}  // namespace

int64_t RawRecords::MostWindowRecords() const {
  if (lead_is_all || blocks.empty()) return 1 << 20;
  return lead_records + blocks.front().records;
}

int64_t RawRecorder::VolumeBytes(const ResolvedScan& scan) { return scan.volume_records * RecordBytes(scan.chain); }
int64_t RawRecorder::SlotBytes(const ResolvedScan& scan) { return Padded((scan.volume_records + SideRecords(scan)) * RecordBytes(scan.chain)); }
int64_t RawRecorder::HistoryBytes(const ResolvedScan& scan) { return Padded(HistoryRecords(scan) * RecordBytes(scan.chain)); }

VolumeStatus RawRecorder::Describe(const ResolvedScan& scan) {
  const Acquisition& a = scan.spec.acquisition;
  const Pattern& p = scan.spec.pattern;
  VolumeStatus status;
  const int64_t line = p.ascans_per_bscan + p.flyback_records, average = scan.chain.record_average;
  const bool lines = p.plan == nullptr && line * p.bscans_per_volume == scan.volume_records;
  const bool packed = a.packing != math::Packing::kNone;
  status.shape[0] = lines ? p.bscans_per_volume : 1;
  status.shape[1] = (lines ? line : scan.volume_records) * average;
  status.shape[2] = packed ? a.SourceRecordBytes() : a.samples_per_record * a.channels;
  status.dtype = packed ? DType::kU8 : a.raw_type;
  status.spacing_um[0] = scan.spacing_um[0];
  status.spacing_um[1] = scan.spacing_um[1];
  status.quantity = !packed ? "raw_spectra" : a.packing == math::Packing::kLowFirst12 ? "raw_spectra_u12p" : "raw_spectra_u12_packed";
  status.display_hi = packed ? 255 : RangeOf(a.raw_type, a.packing, a.adc_bits).hi;
  status.bytes = VolumeBytes(scan);
  status.is_raw = true;
  return status;
}

RawRecorder::RawRecorder(const ResolvedScan& scan, Device& device)
    : device_(device),
      record_bytes_(RecordBytes(scan.chain)),
      volume_records_(scan.volume_records),
      history_records_(HistoryRecords(scan)),
      side_records_(SideRecords(scan)),
      average_(scan.chain.record_average) {}

absl::StatusOr<std::unique_ptr<RawRecorder>> RawRecorder::Create(const ResolvedScan& scan, Device& device) {
  std::unique_ptr<RawRecorder> recorder(new RawRecorder(scan, device));
  OCTAVO_ASSIGN_OR_RETURN(recorder->history_, device.Allocate(HistoryBytes(scan)));
  return recorder;
}

absl::Status RawRecorder::Copy(StreamRef stream, int64_t to, const uint8_t* from, int64_t records) {
  return device_.CopyOnDevice(stream, memory_ + to * record_bytes_, from, records * record_bytes_);
}

void RawRecorder::BeginBlock(const void* raw, int64_t records) {
  block_ = static_cast<const uint8_t*>(raw);
  block_records_ = records;
  placed_.clear();
}

absl::Status RawRecorder::BeginVolume(StreamRef stream, void* memory, int64_t volume_index) {
  memory_ = static_cast<uint8_t*>(memory);
  placed_.clear();
  came_.clear();
  side_used_ = 0;
  records_ = nullptr;
  if (memory_ == nullptr) return absl::OkStatus();
  records_ = std::make_shared<RawRecords>();
  records_->record_bytes = record_bytes_;
  records_->volume_records = volume_records_;
  records_->volume_index = volume_index;
  // The history ends before the block in which the volume begins.
  const int64_t count = std::min(seen_, history_records_);
  const int64_t oldest = (history_next_ + history_records_ - count) % history_records_;
  for (int64_t done = 0; done < count;) {
    const int64_t from = (oldest + done) % history_records_, part = std::min(count - done, history_records_ - from);
    OCTAVO_RETURN_IF_ERROR(Copy(stream, volume_records_ + done, history_.as<uint8_t>() + from * record_bytes_, part));
    done += part;
  }
  if (count > 0) records_->lead.push_back({.at = volume_records_, .records = count});
  records_->lead_records = count;
  records_->lead_is_all = seen_ == count;
  side_used_ = count;
  return absl::OkStatus();
}

absl::Status RawRecorder::Place(StreamRef stream, const void* raw, int64_t first_record, int64_t records, int64_t processed) {
  if (memory_ == nullptr) return absl::OkStatus();
  const auto* from = static_cast<const uint8_t*>(raw);
  const int64_t count = std::min(records, volume_records_ - first_record);
  OCTAVO_RETURN_IF_ERROR(Copy(stream, first_record, from, count));
  placed_.push_back({.in_block = (from - block_) / record_bytes_, .first_record = first_record, .records = count, .processed = processed});
  if (!came_.empty() && came_.back().first + came_.back().second == first_record) {
    came_.back().second += count;
  } else {
    came_.emplace_back(first_record, count);
  }
  return absl::OkStatus();
}

// The block goes into the volume's account: its placed records are there already, the others go to the side.
absl::Status RawRecorder::KeepRest(StreamRef stream) {
  int64_t own = 0;
  for (const Placed& placed : placed_) own += placed.records;
  const bool fits = side_used_ + block_records_ - own <= side_records_;
  if (!fits) records_->whole_blocks = false;
  RawRecords::Block block;
  const auto rest = [&](int64_t begin, int64_t end) -> absl::Status {
    if (!fits || begin >= end) return absl::OkStatus();
    OCTAVO_RETURN_IF_ERROR(Copy(stream, volume_records_ + side_used_, block_ + begin * record_bytes_, end - begin));
    block.pieces.push_back({.at = volume_records_ + side_used_, .records = end - begin});
    block.records += end - begin;
    side_used_ += end - begin;
    return absl::OkStatus();
  };
  int64_t at = 0;
  for (const Placed& placed : placed_) {
    OCTAVO_RETURN_IF_ERROR(rest(at, placed.in_block));
    if (placed.processed > 0) {
      block.segments.push_back({.in_block = block.records, .first_record = placed.first_record, .records = placed.processed});
    }
    const bool follows = !block.pieces.empty() && block.pieces.back().at + block.pieces.back().records == placed.first_record;
    if (follows) {
      block.pieces.back().records += placed.records;
    } else {
      block.pieces.push_back({.at = placed.first_record, .records = placed.records});
    }
    block.records += placed.records;
    at = placed.in_block + placed.records;
  }
  OCTAVO_RETURN_IF_ERROR(rest(at, block_records_));
  placed_.clear();
  if (block.records > 0) records_->blocks.push_back(std::move(block));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const RawRecords>> RawRecorder::EndVolume(StreamRef stream,
                                                                         const std::vector<std::pair<int64_t, int64_t>>& missing_ascans) {
  if (memory_ == nullptr) return std::shared_ptr<const RawRecords>();
  if (!placed_.empty()) OCTAVO_RETURN_IF_ERROR(KeepRest(stream));
  missing_.clear();
  const auto gap = [&](int64_t begin, int64_t end) -> absl::Status {
    if (begin >= end) return absl::OkStatus();
    missing_.emplace_back(begin * average_, (end - begin) * average_);
    return device_.Fill(stream, memory_ + begin * record_bytes_, (end - begin) * record_bytes_, 0);
  };
  int64_t at = 0;
  for (const auto& [first, count] : came_) {
    OCTAVO_RETURN_IF_ERROR(gap(at, first));
    at = first + count;
  }
  OCTAVO_RETURN_IF_ERROR(gap(at, volume_records_));
  records_->missing_ascans = missing_ascans;
  memory_ = nullptr;
  return std::shared_ptr<const RawRecords>(std::move(records_));
}

absl::Status RawRecorder::EndBlock(StreamRef stream) {
  if (block_ == nullptr) return absl::OkStatus();
  if (memory_ != nullptr) OCTAVO_RETURN_IF_ERROR(KeepRest(stream));
  // The newest of it into the ring.
  const int64_t count = std::min(block_records_, history_records_);
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min(count - done, history_records_ - history_next_);
    OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(stream, history_.as<uint8_t>() + history_next_ * record_bytes_,
                                                block_ + (block_records_ - count + done) * record_bytes_, part * record_bytes_));
    history_next_ = (history_next_ + part) % history_records_;
    done += part;
  }
  seen_ += block_records_;
  block_ = nullptr;
  return absl::OkStatus();
}

}  // namespace octavo::engine
