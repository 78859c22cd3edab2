#include "server/processing/raw_records.h"

#include <algorithm>

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/spectral/spectral_span.h"
#include "server/pattern/plan.h"

namespace octavo::processing {
namespace {

// The window of the scan's own rolling background, and at least a block, for other processings.
int64_t HistoryRecords(const model::ResolvedScan& scan) {
  return std::max(scan.spec.acquisition.records_per_block,
                  scan.chain.background == math::Background::kRolling
                      ? scan.chain.background_window_records
                      : 0);
}

}  // namespace

int64_t RawRecords::MostWindowRecords(int64_t group_records) const {
  if (lead_is_all) return RollingShape::kMostRecords;
  // The first window ends with the first group.
  const int64_t before = lead.empty() ? 0 : volume_index * volume_records - lead.front().first;
  return std::min(RollingShape::kMostRecords, before + std::min(group_records, volume_records));
}

int64_t RawRecorder::VolumeBytes(const model::ResolvedScan& scan) {
  return scan.volume_records * RecordBytes(scan.chain);
}
int64_t RawRecorder::SlotBytes(const model::ResolvedScan& scan) {
  return AlignedBytes((scan.volume_records + HistoryRecords(scan)) * RecordBytes(scan.chain));
}
int64_t RawRecorder::HistoryBytes(const model::ResolvedScan& scan) {
  return AlignedBytes(HistoryRecords(scan) * RecordBytes(scan.chain));
}

model::VolumeStatus RawRecorder::Describe(const model::ResolvedScan& scan) {
  const model::Acquisition& a = scan.spec.acquisition;
  const pattern::Pattern& p = scan.spec.pattern;
  model::VolumeStatus status;
  const int64_t line = p.ascans_per_bscan + p.flyback_records, average = scan.chain.record_average;
  const bool lines = p.plan == nullptr && line * p.bscans_per_volume == scan.volume_records;
  const bool packed = a.packing != math::Packing::kNone;
  status.shape[0] = lines ? p.bscans_per_volume : 1;
  status.shape[1] = (lines ? line : scan.volume_records) * average;
  status.shape[2] = packed ? a.SourceRecordBytes() : a.samples_per_record * a.channels;
  status.dtype = packed ? DType::kU8 : a.raw_type;
  status.spacing_um[0] = scan.spacing_um[0];
  status.spacing_um[1] = scan.spacing_um[1];
  status.spacing_assumed[0] = scan.spacing_assumed[0];
  status.spacing_assumed[1] = scan.spacing_assumed[1];
  status.spacing_assumed[2] = true;  // samples of a spectrum have no length
  status.quantity = !packed ? model::Quantity::kRawSpectra
                    : a.packing == math::Packing::kLowFirst12
                        ? model::Quantity::kRawSpectraU12p
                        : model::Quantity::kRawSpectraU12Packed;
  status.display_hi = packed ? 255 : RangeOf(a.raw_type, a.packing, a.adc_bits).hi;
  status.bytes = VolumeBytes(scan);
  status.is_raw = true;
  return status;
}

RawRecorder::RawRecorder(const model::ResolvedScan& scan, Device& device)
    : device_(device),
      record_bytes_(RecordBytes(scan.chain)),
      volume_records_(scan.volume_records),
      history_records_(HistoryRecords(scan)),
      average_(scan.chain.record_average) {}

absl::StatusOr<std::unique_ptr<RawRecorder>> RawRecorder::Create(const model::ResolvedScan& scan,
                                                                 Device& device) {
  std::unique_ptr<RawRecorder> recorder(new RawRecorder(scan, device));
  OCTAVO_ASSIGN_OR_RETURN(recorder->history_, device.Allocate(HistoryBytes(scan)));
  return recorder;
}

absl::Status RawRecorder::Copy(StreamRef stream, int64_t to, const uint8_t* from, int64_t records) {
  return device_.CopyOnDevice(stream, memory_ + to * record_bytes_, from, records * record_bytes_);
}

absl::Status RawRecorder::BeginVolume(StreamRef stream, void* memory, int64_t volume_index,
                                      int64_t active_records) {
  memory_ = static_cast<uint8_t*>(memory);
  records_ = nullptr;
  if (memory_ == nullptr) return absl::OkStatus();
  records_ = std::make_shared<RawRecords>();
  records_->record_bytes = record_bytes_;
  records_->volume_records = volume_records_;
  records_->volume_index = volume_index;
  records_->active_records = active_records;
  const int64_t oldest = (history_next_ + history_records_ - held_) % history_records_;
  for (int64_t done = 0; done < held_;) {
    const int64_t from = (oldest + done) % history_records_,
                  part = std::min(held_ - done, history_records_ - from);
    OCTAVO_RETURN_IF_ERROR(
        Copy(stream, volume_records_ + done, history_.as<uint8_t>() + from * record_bytes_, part));
    done += part;
  }
  records_->lead.assign(runs_.begin(), runs_.end());
  records_->lead_is_all = seen_ == held_;
  return absl::OkStatus();
}

absl::Status RawRecorder::Take(StreamRef stream, const void* raw, int64_t volume_index,
                               int64_t first_record, int64_t records) {
  const auto* from = static_cast<const uint8_t*>(raw);
  if (memory_ != nullptr && volume_index == records_->volume_index) {
    OCTAVO_RETURN_IF_ERROR(Copy(stream, first_record, from, records));
    auto& came = records_->came;
    if (!came.empty() && came.back().first + came.back().records == first_record) {
      came.back().records += records;
    } else {
      came.push_back({.first = first_record, .records = records});
    }
  }
  return Remember(stream, from, volume_index * volume_records_ + first_record, records);
}

// Copy the newest records into the ring.
absl::Status RawRecorder::Remember(StreamRef stream, const uint8_t* from, int64_t number,
                                   int64_t records) {
  const int64_t count = std::min(records, history_records_);
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min(count - done, history_records_ - history_next_);
    OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(
        stream, history_.as<uint8_t>() + history_next_ * record_bytes_,
        from + (records - count + done) * record_bytes_, part * record_bytes_));
    history_next_ = (history_next_ + part) % history_records_;
    done += part;
  }
  seen_ += records;
  held_ += records;
  if (!runs_.empty() && runs_.back().first + runs_.back().records == number) {
    runs_.back().records += records;
  } else {
    runs_.push_back({.first = number, .records = records});
  }
  while (held_ > history_records_) {
    RawRecords::Run& oldest = runs_.front();
    const int64_t gone = std::min(held_ - history_records_, oldest.records);
    oldest.first += gone;
    oldest.records -= gone;
    held_ -= gone;
    if (oldest.records == 0) runs_.pop_front();
  }
  return absl::OkStatus();
}

void RawRecorder::Forget() {
  seen_ = held_ = 0;
  runs_.clear();
}

absl::StatusOr<std::shared_ptr<const RawRecords>> RawRecorder::EndVolume(
    StreamRef stream, const std::vector<std::pair<int64_t, int64_t>>& missing_ascans) {
  if (memory_ == nullptr) return std::shared_ptr<const RawRecords>();
  missing_.clear();
  const auto gap = [&](int64_t begin, int64_t end) -> absl::Status {
    if (begin >= end) return absl::OkStatus();
    missing_.emplace_back(begin * average_, (end - begin) * average_);
    return device_.Fill(stream, memory_ + begin * record_bytes_, (end - begin) * record_bytes_, 0);
  };
  int64_t at = 0;
  for (const auto& [first, count] : records_->came) {
    OCTAVO_RETURN_IF_ERROR(gap(at, first));
    at = first + count;
  }
  OCTAVO_RETURN_IF_ERROR(gap(at, volume_records_));
  records_->missing_ascans = missing_ascans;
  memory_ = nullptr;
  return std::shared_ptr<const RawRecords>(std::move(records_));
}

}  // namespace octavo::processing
