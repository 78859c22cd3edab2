#include "server/processing/single_ascan.h"

#include <algorithm>
#include <utility>

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "gpu/spectral/spectral_record.h"

namespace octavo::processing {

// Backgrounds are subtracted before, so that the processor needs none of the records around. The
// samples reach it as 32-bit numbers: the numbers that its own first step would have made.
absl::Status SingleAscan::Prepare(int64_t records) {
  if (processor_ != nullptr && records <= most_records_) return absl::OkStatus();
  if (device_ == nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(OpenedDevices opened, OpenDevices("host"));
    device_ = std::move(opened.devices.front());
    OCTAVO_ASSIGN_OR_RETURN(stream_, device_->NewStream(StreamPriority::kLow));
  }
  SpectralConfig config = choice_.scan()->chain;
  config.raw_type = DType::kF32;
  config.packing = math::Packing::kNone;
  config.channels = 1;
  config.channel = 0;
  config.record_average = 1;
  config.max_records_per_block = records;
  config.volume_records = 0;
  config.background = math::Background::kNone;
  config.background_spectrum.clear();
  config.background_group_records = config.background_window_records = 0;
  if (config.fixed_pattern == math::FixedPattern::kNone) config.bscan_records = 0;
  config.slab_begin = config.slab_end = 0;
  processor_ = nullptr;
  OCTAVO_ASSIGN_OR_RETURN(processor_, SpectralProcessor::Create(config, *device_));
  most_records_ = records;
  return absl::OkStatus();
}

std::vector<float> SingleAscan::BackgroundOf(const RecordUnit& unit, int64_t record,
                                             const uint8_t* records) const {
  const SpectralConfig& chain = choice_.scan()->chain;
  if (chain.background == math::Background::kNone) return {};
  if (chain.background == math::Background::kStatic) return chain.background_spectrum;
  RecordMean mean(chain);
  const auto [first, end] = choice_.BackgroundOf(record);
  for (int64_t i = first; i < end; ++i)
    mean.Add(records + (i - unit.need_first) * RecordBytes(chain));
  return mean.Mean();
}

std::vector<float> SingleAscan::Corrected(const RecordUnit& unit, const uint8_t* records) const {
  const SpectralConfig& chain = choice_.scan()->chain;
  const uint8_t* const record = records + (unit.record - unit.need_first) * RecordBytes(chain);
  return CorrectRecord(chain, LoadRecord(chain, record, BackgroundOf(unit, unit.record, records)));
}

absl::StatusOr<std::vector<uint8_t>> SingleAscan::Ascan(const RecordUnit& unit,
                                                        const uint8_t* records) {
  const SpectralConfig& chain = choice_.scan()->chain;
  // The others of its B-scan only made its background.
  const bool alone = chain.fixed_pattern == math::FixedPattern::kNone && chain.repeats == 1;
  const int64_t first = alone ? unit.record : unit.first, end = alone ? first + 1 : unit.end;
  const int64_t count = end - first;
  OCTAVO_RETURN_IF_ERROR(Prepare(count));
  std::vector<float> samples;
  samples.reserve(static_cast<size_t>(count * chain.samples_per_record));
  std::vector<int32_t> table(static_cast<size_t>(count), -1);
  std::vector<float> background;
  std::pair<int64_t, int64_t> of{-1, -1};  // the records that `background` was made of
  for (int64_t i = first; i < end; ++i) {
    if (choice_.AscanOf(i) == unit.ascan) table[static_cast<size_t>(i - first)] = 0;
    if (const auto next = choice_.BackgroundOf(i); i == first || next != of) {
      background = BackgroundOf(unit, i, records);
      of = next;
    }
    const std::vector<float> one =
        LoadRecord(chain, records + (i - unit.need_first) * RecordBytes(chain), background);
    samples.insert(samples.end(), one.begin(), one.end());
  }
  std::vector<BscanSpan> spans;
  const int64_t base = unit.first - unit.volume * choice_.scan()->volume_records;
  for (const RecordChoice::Span& s : choice_.SpansIn(unit)) {
    spans.push_back(
        {.first_record = s.first - base, .records = s.end - s.first, .repeat = s.repeat});
  }
  std::vector<uint8_t> ascan(static_cast<size_t>(chain.depth * SizeOf(chain.output)));
  const StreamRef stream = stream_.ref();
  OCTAVO_RETURN_IF_ERROR(processor_->BeginVolume(stream));
  OCTAVO_RETURN_IF_ERROR(processor_->Process(
      stream, samples.data(), count,
      {.table = table.data(), .spans = spans.data(), .span_count = std::ssize(spans)},
      {.volume = ascan.data(), .volume_ascans = 1}));
  OCTAVO_RETURN_IF_ERROR(processor_->EndVolume(stream));
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  return ascan;
}

}  // namespace octavo::processing
