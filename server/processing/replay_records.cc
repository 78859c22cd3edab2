#include "server/processing/replay_records.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/pattern/plan.h"
#include "server/processing/raw_records.h"
#include "server/processing/resolve_processing.h"

namespace octavo::processing {
namespace {

int KindOf(const model::ResolvedScan& scan, const RawRecords& records) {
  const auto& plan = scan.spec.pattern.plan;
  return plan != nullptr && plan->kinds > 1 ? static_cast<int>(records.volume_index & 1) : 0;
}

}  // namespace

math::RasterPlacement RasterOf(const model::ResolvedScan& scan) {
  return {.ascans_per_bscan = scan.spec.pattern.ascans_per_bscan,
          .bscans_per_volume = scan.spec.pattern.bscans_per_volume,
          .flyback_records = scan.spec.pattern.flyback_records,
          .bidirectional = scan.spec.pattern.bidirectional};
}

std::vector<BscanSpan> SpansOf(const pattern::Pattern& pattern, int kind) {
  std::vector<BscanSpan> spans;
  if (pattern.plan == nullptr) return spans;
  // A path is cut into its stored rows.
  const int64_t columns = pattern.ascans_per_bscan;
  for (const pattern::PatternSegment& s : pattern.plan->kind[kind].segments) {
    for (int64_t j = 0; j < s.ascans; j += columns)
      spans.push_back({.first_record = s.first_record + j, .records = columns, .repeat = s.repeat});
  }
  return spans;
}

absl::Status RawOfAnEarlierProcess(const model::VolumeStatus& volume, const std::string& field) {
  return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                      field, ": ", volume.name,
                      " are raw spectra that were recovered after a restart: they can be read and "
                      "committed; to process them again, replay the committed file")),
                  {.reason = Reason::kRecovered, .field = field, .numbers = {}});
}

absl::StatusOr<model::ResolvedScan> ResolveReprocess(const model::VolumeStatus& raw,
                                                     const model::Processing& processing) {
  if (raw.is_raw && raw.recovered) return RawOfAnEarlierProcess(raw, "volume");
  if (raw.raw == nullptr || raw.origin == nullptr) {
    return InvalidField(
        "volume",
        absl::StrCat(
            "is ", raw.name,
            ", which holds no raw spectra; scan with retention.hold_raw and give the raw volume"));
  }
  OCTAVO_ASSIGN_OR_RETURN(model::ResolvedScan scan, ResolveProcessingAnew(*raw.origin, processing));
  const int64_t most = raw.raw->MostWindowRecords(scan.chain.background_group_records);
  if (scan.chain.background == math::Background::kRolling &&
      scan.chain.background_window_records > most) {
    return InvalidField(
        "processing.background.window_records",
        absl::StrCat("is ", scan.chain.background_window_records,
                     "; with the records that were kept before the volume allowed 0 to ", most));
  }
  return scan;
}

model::VolumeStatus DescribeReprocessed(const model::VolumeStatus& raw,
                                        const std::shared_ptr<const model::ResolvedScan>& scan) {
  model::VolumeStatus status;
  status.scan = raw.scan;
  status.title = raw.title;
  status.index = raw.index;
  std::copy(scan->shape, scan->shape + 3, status.shape);
  std::copy(scan->spacing_um, scan->spacing_um + 3, status.spacing_um);
  std::copy(scan->spacing_assumed, scan->spacing_assumed + 3, status.spacing_assumed);
  status.dtype = scan->chain.output;
  status.has_levels = scan->chain.has_levels;
  status.level_lo = scan->chain.level_lo;
  status.level_hi = scan->chain.level_hi;
  status.value = scan->spec.processing.value;
  status.acquired_begin = raw.acquired_begin;
  status.acquired_end = raw.acquired_end;
  status.bytes = scan->volume_bytes;
  status.labels = raw.labels;
  const auto& missing = raw.raw->missing_ascans;
  for (const auto& range : missing) status.missing_ascans += range.second;
  status.complete = missing.empty();
  status.missing.assign(missing.begin(),
                        missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
  if (missing.size() > 32)
    status.all_missing = std::make_shared<const std::vector<std::pair<int64_t, int64_t>>>(missing);
  status.device = raw.device;
  status.derived_from = raw.name;
  status.operations = {"reprocess"};
  status.origin = scan;
  return status;
}

int64_t Reprocessor::DeviceBytes(const model::ResolvedScan& scan, Device& device) {
  int64_t bytes = SpectralProcessor::DeviceBytes(scan.chain, device) + kMemoryAlignment;
  if (const auto& plan = scan.spec.pattern.plan; plan != nullptr)
    bytes += AlignedBytes(plan->volume_records * static_cast<int64_t>(sizeof(int32_t)));
  return bytes;
}

absl::StatusOr<std::unique_ptr<Reprocessor>> Reprocessor::Create(const model::ResolvedScan& scan,
                                                                 volume::VolumeHold raw,
                                                                 Device& device, StreamRef stream) {
  std::unique_ptr<Reprocessor> self(new Reprocessor(scan, std::move(raw), device));
  const RawRecords& records = *self->raw_.status.raw;
  OCTAVO_ASSIGN_OR_RETURN(self->processor_, SpectralProcessor::Create(scan.chain, device));
  OCTAVO_ASSIGN_OR_RETURN(self->clipped_,
                          device.Allocate(2 * static_cast<int64_t>(sizeof(uint64_t))));
  if (const auto& plan = scan.spec.pattern.plan; plan != nullptr) {
    const int kind = KindOf(scan, records);
    const auto& table = plan->kind[kind].placement;
    const auto bytes = static_cast<int64_t>(table.size() * sizeof table[0]);
    OCTAVO_ASSIGN_OR_RETURN(self->placement_, device.Allocate(bytes));
    OCTAVO_RETURN_IF_ERROR(
        device.CopyToDevice(stream, self->placement_.data(), table.data(), bytes));
    self->spans_ = SpansOf(scan.spec.pattern, kind);
  }
  // Wait for the copies, which read the table from the scan's memory and the processor's tables
  // from the processor's.
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  return self;
}

int64_t Reprocessor::blocks() const {
  int64_t blocks = 0;
  for (const auto& run : raw_.status.raw->came)
    blocks +=
        (run.records + scan_.chain.max_records_per_block - 1) / scan_.chain.max_records_per_block;
  return blocks;
}

// Records from `first` of a volume on, stored in the raw volume's memory from its record `at` on.
absl::Status Reprocessor::Process(StreamRef stream, int64_t at, int64_t volume, int64_t first,
                                  int64_t records, const SpectralTarget& target) {
  const auto* table = placement_.as<int32_t>();
  return processor_->Process(
      stream, raw_.slot->volume.as<uint8_t>() + at * raw_.status.raw->record_bytes, records,
      {.raster = RasterOf(scan_),
       .volume = volume,
       .first_record = first,
       .table = table == nullptr ? nullptr : table + first,
       .spans = spans_.data(),
       .span_count = std::ssize(spans_)},
      target);
}

// The earlier records in the windows of the first groups.
absl::Status Reprocessor::ProcessLead(StreamRef stream) {
  const RawRecords& records = *raw_.status.raw;
  int64_t at = records.volume_records;
  for (const auto& run : records.lead) {
    for (int64_t done = 0; done < run.records;) {
      const int64_t number = run.first + done, volume = number / records.volume_records,
                    first = number % records.volume_records;
      const int64_t count = std::min(
          {scan_.chain.max_records_per_block, run.records - done, records.volume_records - first});
      OCTAVO_RETURN_IF_ERROR(Process(stream, at + done, volume, first, count, {}));
      done += count;
    }
    at += run.records;
  }
  return absl::OkStatus();
}

absl::Status Reprocessor::Run(StreamRef stream, const Output& out,
                              const std::function<absl::Status(int64_t)>& on_block) {
  const RawRecords& records = *raw_.status.raw;
  const SpectralTarget target{.volume = out.volume,
                              .volume_ascans = scan_.shape[0] * scan_.shape[1],
                              .mip = out.mip,
                              .aip = nullptr,
                              .clipped = clipped_.as<uint64_t>()};
  OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, clipped_.data(), clipped_.bytes(), 0));
  const DType projection = ProjectionOf(scan_.chain.output);
  if (out.mip != nullptr) {
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, out.mip, target.volume_ascans * SizeOf(projection),
                                        FillPattern(projection)));
  }
  const bool rolling = scan_.chain.background == math::Background::kRolling;
  if (rolling && RollingShapeOf(scan_.chain).LooksBack())
    OCTAVO_RETURN_IF_ERROR(ProcessLead(stream));
  OCTAVO_RETURN_IF_ERROR(processor_->BeginVolume(stream));
  int64_t number = 0;
  for (const auto& run : records.came) {
    for (int64_t done = 0; done < run.records;) {
      if (on_block) OCTAVO_RETURN_IF_ERROR(on_block(number++));
      const int64_t first = run.first + done,
                    count = std::min(scan_.chain.max_records_per_block, run.records - done);
      const int64_t active = std::clamp<int64_t>(records.active_records - first, 0, count);
      if (active > 0)
        OCTAVO_RETURN_IF_ERROR(Process(stream, first, records.volume_index, first, active, target));
      if (rolling && active < count) {
        OCTAVO_RETURN_IF_ERROR(Process(stream, first + active, records.volume_index, first + active,
                                       count - active, {}));
      }
      done += count;
    }
  }
  OCTAVO_RETURN_IF_ERROR(processor_->EndVolume(stream));
  const int64_t ascan_bytes = scan_.shape[2] * SizeOf(scan_.chain.output);
  for (const auto& [first, count] : records.missing_ascans) {
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream,
                                        static_cast<uint8_t*>(out.volume) + first * ascan_bytes,
                                        count * ascan_bytes, FillPattern(scan_.chain.output)));
  }
  return absl::OkStatus();
}

absl::Status Reprocessor::ReadClipped(StreamRef stream, model::VolumeStatus* volume) {
  OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer words, device_.AllocatePinned(clipped_.bytes()));
  OCTAVO_RETURN_IF_ERROR(
      device_.CopyToHost(stream, words.data(), clipped_.data(), clipped_.bytes()));
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  volume->clipped_below = words.as<int64_t>()[0];
  volume->clipped_above = words.as<int64_t>()[1];
  return absl::OkStatus();
}

}  // namespace octavo::processing
