#include "gpu/spectral/spectral.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/spectral/spectral_design.h"

namespace octavo::inline gpu {
namespace {

absl::Status Length(const char* field, size_t length, int64_t wanted) {
  if (static_cast<int64_t>(length) == wanted) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("has ", length, " values; needs ", wanted));
}

absl::Status Finite(const char* field, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return InvalidField(field, absl::StrCat("is not finite at ", i));
  }
  return absl::OkStatus();
}

// The memory that a processor allocates in addition to the backend's plan.
int64_t KeptBytes(const SpectralConfig& c) { return c.bscan_records * (RecordBytes(c) + 4); }
int64_t RepeatBytes(const SpectralConfig& c) { return c.repeat_ascans * (c.depth * 4 + 16); }
constexpr int64_t kPair = 2;
int64_t GroupBytes(const SpectralConfig& c) {
  if (c.background != math::Background::kRolling) return kPair * (RecordBytes(c) + 4);
  const int64_t sums = RollingShapeOf(c).RingEntries(RollingStepGroups(c)) *
                       (c.samples_per_record + 1) * static_cast<int64_t>(sizeof(double));
  return c.background_group_records * (RecordBytes(c) + 4) + sums;
}

}  // namespace

int64_t RecordBytes(const SpectralConfig& c) {
  return c.record_average *
         math::PackedBytes(c.packing, c.samples_per_record * c.channels, SizeOf(c.raw_type));
}

RollingShape RollingShapeOf(const SpectralConfig& c) {
  return {.volume_records = c.volume_records == 0 ? RollingShape::kNoVolumes : c.volume_records,
          .group_records = std::max<int64_t>(1, c.background_group_records),
          .window_records = c.background_window_records};
}

int64_t RollingStepGroups(const SpectralConfig& c) {
  return std::min(kMostRollingStepGroups, c.max_records_per_block / c.background_group_records + 2);
}

int64_t RollingStepRecords(const SpectralConfig& c) {
  return std::min(std::max(c.max_records_per_block, c.background_group_records),
                  RollingStepGroups(c) * c.background_group_records);
}

int64_t RollingRows(const SpectralConfig& c) {
  if (c.background != math::Background::kRolling) return 0;
  return RollingStepGroups(c) + c.bscan_records / c.background_group_records + 2;
}

namespace {

absl::Status ValidateRolling(const SpectralConfig& c) {
  const int64_t most = c.volume_records == 0
                           ? RollingShape::kMostRecords
                           : std::min(RollingShape::kMostRecords, c.volume_records);
  OCTAVO_RETURN_IF_ERROR(InRange("background.group_records", c.background_group_records, 1, most));
  return InRange(
      "background.window_records", c.background_window_records, 0,
      std::min(RollingShape::kMostRecords, RollingShape::kMostGroups * c.background_group_records));
}

absl::Status ValidateInput(const SpectralConfig& c) {
  OCTAVO_RETURN_IF_ERROR(InRange("samples_per_record", c.samples_per_record, 16, 65536));
  if (c.raw_type != DType::kU8 && c.raw_type != DType::kU16 && c.raw_type != DType::kI16 &&
      c.raw_type != DType::kF32) {
    return FieldNotAllowed("raw_type", Info(c.raw_type).name, "u8, u16, i16, f32");
  }
  if (c.packing != math::Packing::kNone && c.raw_type != DType::kU16) {
    return InvalidField("raw_type", absl::StrCat("is ", Info(c.raw_type).name,
                                                 "; packed samples of 12 bits are u16"));
  }
  OCTAVO_RETURN_IF_ERROR(InRange("channels", c.channels, 1, 16));
  OCTAVO_RETURN_IF_ERROR(InRange("channels", c.channels, 1, 65536 / c.samples_per_record));
  OCTAVO_RETURN_IF_ERROR(InRange("channel", c.channel, 0, c.channels - 1));
  OCTAVO_RETURN_IF_ERROR(InRange("record_average", c.record_average, 1, 256));
  OCTAVO_RETURN_IF_ERROR(InRange("max_records_per_block", c.max_records_per_block, 1, 1 << 24));
  // A quiet segment of a B-scan needs two A-scans to have a variance.
  const bool bscans =
      c.background == math::Background::kBscan || c.fixed_pattern != math::FixedPattern::kNone;
  const int64_t least =
      c.fixed_pattern == math::FixedPattern::kQuietSegment ? 2 * math::kFixedPatternSegments : 2;
  OCTAVO_RETURN_IF_ERROR(
      InRange("bscan_records", c.bscan_records, bscans ? least : 0, bscans ? 1 << 20 : 0));
  return absl::OkStatus();
}

absl::Status ValidateOutput(const SpectralConfig& c) {
  const bool known = c.output == DType::kU8 || c.output == DType::kI8 || c.output == DType::kU16 ||
                     c.output == DType::kF16 || c.output == DType::kF32 || c.output == DType::kC64;
  if (!known) return FieldNotAllowed("dtype", Info(c.output).name, "u8, i8, u16, f16, f32, c64");
  if ((c.value == math::Value::kComplex) != (c.output == DType::kC64)) {
    return InvalidField("dtype", absl::StrCat("is ", Info(c.output).name,
                                              c.value == math::Value::kComplex
                                                  ? "; complex values need c64"
                                                  : "; c64 is for complex values only"));
  }
  if (c.has_levels &&
      !(std::isfinite(c.level_lo) && std::isfinite(c.level_hi) && c.level_lo < c.level_hi)) {
    return InvalidField("levels", absl::StrCat("are ", c.level_lo, " to ", c.level_hi,
                                               "; lo must be less than hi"));
  }
  if (!c.has_levels && IsInteger(c.output))
    return InvalidField("levels", "are needed for integer output");
  if (c.has_levels && c.output == DType::kC64)
    return InvalidField("levels", "are given; complex values have none");
  OCTAVO_RETURN_IF_ERROR(InRange("repeats", c.repeats, 1, 4096));
  OCTAVO_RETURN_IF_ERROR(InRange("repeat_ascans", c.repeat_ascans, c.repeats > 1 ? 1 : 0,
                                 c.repeats > 1 ? int64_t{1} << 31 : 0));
  if (c.repeats > 1 && (c.value == math::Value::kReal || c.value == math::Value::kComplex)) {
    return InvalidField(
        "repeats",
        absl::StrCat("is ", c.repeats,
                     "; repeats are averaged as power, which real and complex values are not"));
  }
  const bool whole = c.slab_begin == 0 && c.slab_end == 0;
  if (!whole && !(c.slab_begin >= 0 && c.slab_begin < c.slab_end && c.slab_end <= c.depth)) {
    return InvalidField("slab", absl::StrCat("is depth samples ", c.slab_begin, " to ", c.slab_end,
                                             "; allowed 0 to ", c.depth));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SpectralProcessor::Validate(const SpectralConfig& c) {
  OCTAVO_RETURN_IF_ERROR(ValidateInput(c));
  if (c.background == math::Background::kStatic) {
    OCTAVO_RETURN_IF_ERROR(
        Length("background.spectrum", c.background_spectrum.size(), c.samples_per_record));
    OCTAVO_RETURN_IF_ERROR(Finite("background.spectrum", c.background_spectrum));
  }
  if (c.background == math::Background::kRolling) OCTAVO_RETURN_IF_ERROR(ValidateRolling(c));
  int64_t n = c.samples_per_record;
  if (c.interpolation != math::Interpolation::kNone) {
    OCTAVO_RETURN_IF_ERROR(InRange("k_linearisation.index (its length)",
                                   static_cast<int64_t>(c.k_index.size()), 16, 65536));
    n = static_cast<int64_t>(c.k_index.size());
    for (size_t j = 0; j < c.k_index.size(); ++j) {
      const double r = c.k_index[j];
      // A position may lie beyond the end by a few rounding errors of the caller. It takes the
      // outermost samples.
      constexpr double kRounding = 1e-6;
      if (!(r >= -kRounding && r <= static_cast<double>(c.samples_per_record - 1) + kRounding)) {
        return FieldOutOfRange("k_linearisation.index", absl::StrCat(r, " at ", j), 0,
                               c.samples_per_record - 1);
      }
      if (j > 0 && r < c.k_index[j - 1]) {
        return InvalidField("k_linearisation.index",
                            absl::StrCat("decreases at ", j, ": ", r, " after ", c.k_index[j - 1]));
      }
    }
  }
  OCTAVO_RETURN_IF_ERROR(Length("window_values", c.window.size(), n));
  OCTAVO_RETURN_IF_ERROR(Finite("window_values", c.window));
  if (!c.phase_rad.empty()) {
    OCTAVO_RETURN_IF_ERROR(Length("dispersion.phase", c.phase_rad.size(), n));
    OCTAVO_RETURN_IF_ERROR(Finite("dispersion.phase", c.phase_rad));
  }
  OCTAVO_RETURN_IF_ERROR(InRange("fft_length", c.fft_length, n, 131072));
  OCTAVO_RETURN_IF_ERROR(InRange("first_bin", c.first_bin, 0, c.fft_length - 1));
  OCTAVO_RETURN_IF_ERROR(InRange("depth", c.depth, 1, c.fft_length - c.first_bin));
  return ValidateOutput(c);
}

SpectralProcessor::SpectralProcessor(SpectralConfig config, Device& device,
                                     std::unique_ptr<SpectralPlan> plan)
    : config_(std::move(config)),
      record_bytes_(RecordBytes(config_)),
      device_(device),
      plan_(std::move(plan)) {}

absl::StatusOr<std::unique_ptr<SpectralProcessor>> SpectralProcessor::Create(
    const SpectralConfig& config, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Validate(config));
  SpectralConfig resolved = config;
  if (resolved.slab_end == 0) resolved.slab_end = resolved.depth;
  for (double& r : resolved.k_index)
    r = std::clamp(r, 0.0, static_cast<double>(resolved.samples_per_record - 1));
  OCTAVO_ASSIGN_OR_RETURN(SpectralOps* const ops, FindOperators<SpectralOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(auto plan, ops->CreatePlan(resolved));
  std::unique_ptr<SpectralProcessor> processor(
      new SpectralProcessor(std::move(resolved), device, std::move(plan)));
  const SpectralConfig& c = processor->config_;
  if (c.bscan_records > 0) {
    OCTAVO_ASSIGN_OR_RETURN(processor->kept_,
                            device.Allocate(c.bscan_records * processor->record_bytes_));
    OCTAVO_ASSIGN_OR_RETURN(processor->kept_table_, device.Allocate(c.bscan_records * 4));
  }
  processor->shape_ = RollingShapeOf(c);
  processor->grouped_ = processor->rolling() || (c.volume_records > 0 && processor->plan_->pairs());
  if (processor->grouped_) {
    if (!processor->rolling())
      processor->shape_ = {
          .volume_records = c.volume_records, .group_records = kPair, .window_records = 0};
    OCTAVO_ASSIGN_OR_RETURN(processor->group_, device.Allocate(processor->shape_.group_records *
                                                               processor->record_bytes_));
    OCTAVO_ASSIGN_OR_RETURN(processor->group_table_,
                            device.Allocate(processor->shape_.group_records * 4));
    processor->group_runs_.reserve(64);
  }
  if (processor->rolling()) {
    const int64_t entries = processor->shape_.RingEntries(RollingStepGroups(c));
    if (entries > 0) {
      OCTAVO_ASSIGN_OR_RETURN(processor->sums_,
                              device.Allocate(entries * processor->sum_length() *
                                              static_cast<int64_t>(sizeof(double))));
      processor->window_ = std::make_shared<RollingWindow>(processor->shape_, entries);
    }
    processor->runs_.reserve(64);
    processor->pieces_.reserve(static_cast<size_t>(kMostSumPieces));
    processor->means_.reserve(static_cast<size_t>(kMostRollingStepGroups));
  }
  if (c.raw_type == DType::kF32) {
    OCTAVO_ASSIGN_OR_RETURN(processor->non_finite_, device.Allocate(sizeof(uint64_t)));
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device.NewStream(StreamPriority::kNormal));
    OCTAVO_RETURN_IF_ERROR(
        device.Fill(stream.ref(), processor->non_finite_.data(), sizeof(uint64_t), 0));
    OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
  }
  if (c.repeats > 1) {
    OCTAVO_ASSIGN_OR_RETURN(processor->repeat_power_,
                            device.Allocate(c.repeat_ascans * c.depth * 4));
    OCTAVO_ASSIGN_OR_RETURN(processor->repeat_owner_, device.Allocate(c.repeat_ascans * 4));
    OCTAVO_ASSIGN_OR_RETURN(processor->repeat_count_, device.Allocate(c.repeat_ascans * 4));
    OCTAVO_ASSIGN_OR_RETURN(processor->repeat_clipped_, device.Allocate(c.repeat_ascans * 8));
  }
  return processor;
}

int64_t SpectralProcessor::DeviceBytes(const SpectralConfig& config, Device& device) {
  const absl::StatusOr<SpectralOps*> ops = FindOperators<SpectralOps>(device);
  if (!ops.ok()) return 0;  // Create will fail and allocate nothing
  return (*ops)->PlanBytes(config) + KeptBytes(config) + RepeatBytes(config) + GroupBytes(config) +
         9 * 256;
}

int64_t SpectralProcessor::device_bytes() const {
  return plan_->device_bytes() + kept_.bytes() + kept_table_.bytes() + repeat_power_.bytes() +
         repeat_owner_.bytes() + repeat_count_.bytes() + repeat_clipped_.bytes() + group_.bytes() +
         group_table_.bytes() + sums_.bytes() + non_finite_.bytes();
}

absl::Status SpectralProcessor::BeginVolume(StreamRef stream) {
  kept_records_ = 0;
  for (KeptRun& kept : group_runs_)
    kept.target = {};  // the records belong to a volume that was given up
  if (config_.repeats == 1) return absl::OkStatus();
  return device_.Fill(stream, repeat_owner_.data(), config_.repeat_ascans * 4, 0xFFFFFFFFu);
}

absl::Status SpectralProcessor::Process(StreamRef stream, const void* raw, int64_t records,
                                        const RecordPlacement& placement,
                                        const SpectralTarget& target) {
  OCTAVO_RETURN_IF_ERROR(InRange("records", records, 1, config_.max_records_per_block));
  OCTAVO_RETURN_IF_ERROR(
      InRange("placement.first_record", placement.first_record, 0, int64_t{1} << 40));
  const auto* bytes = static_cast<const uint8_t*>(raw);
  if (config_.raw_type == DType::kF32 && !placement.borrowed) {
    const DeviceSpan<const float> samples(static_cast<const float*>(raw),
                                          records * record_bytes_ / SizeOf(DType::kF32));
    OCTAVO_RETURN_IF_ERROR(plan_->CountNonFinite(stream, samples, non_finite_.span<uint64_t>()));
  }
  if (grouped_) return ProcessGroups(stream, bytes, records, placement, target);
  return ProcessPlaced(stream, bytes, records, placement, target);
}

// Steps 2 to 7, and step 1 unless the background is rolling.
absl::Status SpectralProcessor::ProcessPlaced(StreamRef stream, const uint8_t* raw, int64_t records,
                                              const RecordPlacement& placement,
                                              const SpectralTarget& target) {
  if (config_.bscan_records > 0 || config_.repeats > 1)
    return ProcessSpans(stream, raw, records, placement, target);
  return ProcessRuns(stream, raw, {.runs = 1, .active = records, .pitch = records}, placement,
                     target);
}

namespace {

// The same placement from record `count` on.
RecordPlacement Behind(RecordPlacement placement, int64_t count) {
  placement.first_record += count;
  if (placement.table != nullptr) placement.table += count;
  return placement;
}

}  // namespace

absl::Status SpectralProcessor::ProcessGroups(StreamRef stream, const uint8_t* raw, int64_t records,
                                              const RecordPlacement& placement,
                                              const SpectralTarget& target) {
  const int64_t first = placement.volume * shape_.volume_records + placement.first_record,
                end = first + records;
  if ((rolling() && first < next_number_) ||
      placement.first_record + records > shape_.volume_records) {
    return InvalidField(
        "placement.first_record",
        absl::StrCat("is ", placement.first_record, " of volume ", placement.volume, " with ",
                     records, " records; allowed are records in order within a volume of ",
                     shape_.volume_records));
  }
  if (group_records_ > 0 && (first < next_number_ || first >= group_end_))
    OCTAVO_RETURN_IF_ERROR(EndGroup(stream));
  next_number_ = end;
  // A B-scan whose end is lost is placed now, because its missing records will not arrive.
  if (group_records_ == 0 && kept_records_ > 0 &&
      kept_placement_.first_record + kept_records_ != placement.first_record) {
    OCTAVO_RETURN_IF_ERROR(EndBscan(stream));
  }
  for (int64_t at = first; at < end;) {
    const int64_t group_end = shape_.GroupEnd(at);
    const auto* from = raw + (at - first) * record_bytes_;
    if (group_records_ > 0 || group_end > end) {  // the group began before, or is not complete
      const int64_t count = std::min(group_end, end) - at;
      OCTAVO_RETURN_IF_ERROR(
          KeepOfGroup(stream, from, count, Behind(placement, at - first), target));
      at += count;
      if (at == group_end) OCTAVO_RETURN_IF_ERROR(EndGroup(stream));
      continue;
    }
    // Whole groups are processed in place, without a copy.
    const int64_t begin = at;
    if (rolling()) {
      for (int64_t groups = 0; groups < RollingStepGroups(config_) && at < end; ++groups) {
        const int64_t next = shape_.GroupEnd(at);
        if (next > end) break;
        const GroupRun run{.first = at, .records = next - at, .at = at - begin};
        AddGroup(shape_.GroupBegin(at), next, {&run, 1});
        at = next;
      }
      OCTAVO_RETURN_IF_ERROR(
          EnqueueBackgrounds(stream, from, placement.first_record + begin - first));
    } else {
      at = shape_.GroupEnd(end - 1) == end ? end : shape_.GroupBegin(end);
    }
    if (target.volume != nullptr)
      OCTAVO_RETURN_IF_ERROR(
          ProcessPlaced(stream, from, at - begin, Behind(placement, begin - first), target));
  }
  return absl::OkStatus();
}

absl::Status SpectralProcessor::KeepOfGroup(StreamRef stream, const uint8_t* raw, int64_t records,
                                            const RecordPlacement& placement,
                                            const SpectralTarget& target) {
  const int64_t first = placement.volume * shape_.volume_records + placement.first_record;
  if (group_records_ == 0) group_end_ = shape_.GroupEnd(first);
  OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(
      stream, group_.as<uint8_t>() + group_records_ * record_bytes_, raw, records * record_bytes_));
  RecordPlacement kept = placement;
  if (placement.table != nullptr) {
    kept.table = group_table_.as<int32_t>() + group_records_;
    OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(stream, group_table_.as<int32_t>() + group_records_,
                                                placement.table, records * 4));
  }
  KeptRun* const last = group_runs_.empty() ? nullptr : &group_runs_.back();
  if (last != nullptr && last->target.volume == target.volume &&
      last->run.first + last->run.records == first) {
    last->run.records += records;
  } else {
    group_runs_.push_back({.run = {.first = first, .records = records, .at = group_records_},
                           .placement = kept,
                           .target = target});
  }
  group_records_ += records;
  return absl::OkStatus();
}

// Ends a group: no record beyond those that were kept will arrive.
absl::Status SpectralProcessor::EndGroup(StreamRef stream) {
  if (group_records_ == 0) return absl::OkStatus();
  group_records_ = 0;
  const auto* raw = group_.as<uint8_t>();
  if (rolling()) {
    runs_.clear();
    for (const KeptRun& kept : group_runs_) runs_.push_back(kept.run);
    AddGroup(shape_.GroupBegin(group_end_ - 1), group_end_, runs_);
    OCTAVO_RETURN_IF_ERROR(
        EnqueueBackgrounds(stream, raw, group_runs_.front().placement.first_record));
  }
  for (const KeptRun& kept : group_runs_) {
    if (kept.target.volume == nullptr) continue;
    OCTAVO_RETURN_IF_ERROR(ProcessPlaced(stream, raw + kept.run.at * record_bytes_,
                                         kept.run.records, kept.placement, kept.target));
  }
  group_runs_.clear();
  return absl::OkStatus();
}

// Adds the sums of the parts of a group whose records arrived as `runs`, and the mean that becomes
// its background.
void SpectralProcessor::AddGroup(int64_t begin, int64_t end, std::span<const GroupRun> runs) {
  int64_t cuts[RollingShape::kMostParts + 1];
  const int parts = shape_.Parts(begin, end, cuts);
  const size_t before = pieces_.size();
  for (int i = 0; i < parts; ++i) {
    SumPiece piece;
    for (const GroupRun& run :
         runs) {  // the runs are neighbours in memory, whatever is missing between them
      const int64_t from = std::max(cuts[i], run.first),
                    to = std::min(cuts[i + 1], run.first + run.records);
      if (from >= to) continue;
      if (piece.records == 0) piece.first = static_cast<int32_t>(run.at + from - run.first);
      piece.records += static_cast<int32_t>(to - from);
    }
    if (piece.records == 0) continue;
    piece.entry =
        static_cast<int32_t>(window_ != nullptr ? window_->Add(cuts[i]) : std::ssize(pieces_));
    if (piece.entry >= 0) pieces_.push_back(piece);
  }
  const int64_t in_volume = begin % shape_.volume_records;
  MeanOfSums mean{
      .row = static_cast<int32_t>(in_volume / shape_.group_records % RollingRows(config_))};
  if (window_ != nullptr) {
    const RollingWindow::Entries entries = window_->WindowOf(end);
    mean.first = static_cast<int32_t>(entries.first);
    mean.entries = static_cast<int32_t>(entries.count);
  } else {
    mean.first = static_cast<int32_t>(before);
    mean.entries = static_cast<int32_t>(pieces_.size() - before);
  }
  means_.push_back(mean);
}

// `first_record`: the first record of the groups, counted within the volume.
absl::Status SpectralProcessor::EnqueueBackgrounds(StreamRef stream, const uint8_t* raw,
                                                   int64_t first_record) {
  // A B-scan may still wait for an end that is lost. It ends now, because its backgrounds are about
  // to be replaced.
  if (kept_records_ > 0 && kept_placement_.first_record + kept_records_ != first_record)
    OCTAVO_RETURN_IF_ERROR(EndBscan(stream));
  const SumRing ring{.sums = sums_.as<double>(),
                     .entries = window_ != nullptr ? window_->entries() : 0};
  if (!pieces_.empty()) {
    if (shared_.before != nullptr) OCTAVO_RETURN_IF_ERROR(shared_.before());
    OCTAVO_RETURN_IF_ERROR(plan_->SumRecords(stream, raw, pieces_, ring));
  }
  for (size_t i = 0; shared_.after != nullptr && i < pieces_.size();) {
    size_t count = 1;
    while (i + count < pieces_.size() &&
           pieces_[i + count].entry == pieces_[i].entry + static_cast<int32_t>(count))
      ++count;
    OCTAVO_RETURN_IF_ERROR(shared_.after(pieces_[i].entry, static_cast<int64_t>(count)));
    i += count;
  }
  OCTAVO_RETURN_IF_ERROR(plan_->MakeBackgrounds(stream, means_, ring));
  pieces_.clear();
  means_.clear();
  return absl::OkStatus();
}

absl::Status SpectralProcessor::Advance(StreamRef stream, int64_t volume, int64_t first_record) {
  if (group_records_ == 0 || volume * shape_.volume_records + first_record < group_end_)
    return absl::OkStatus();
  return EndGroup(stream);
}

absl::StatusOr<bool> SpectralProcessor::Continue(StreamRef stream, SpectralProcessor& before) {
  if (non_finite_.bytes() > 0 && before.non_finite_.bytes() > 0) {
    OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(stream, non_finite_.data(),
                                                before.non_finite_.data(), sizeof(uint64_t)));
  }
  if (!rolling()) return false;
  if (!before.rolling()) return window_ == nullptr;
  next_number_ = before.next_number_;
  if (window_ == nullptr) return true;
  if (before.window_ == nullptr || !(before.window_->shape() == window_->shape()) ||
      before.sums_.bytes() != sums_.bytes())
    return false;
  window_ = before.window_;
  OCTAVO_RETURN_IF_ERROR(
      device_.CopyOnDevice(stream, sums_.data(), before.sums_.data(), sums_.bytes()));
  return true;
}

void SpectralProcessor::ShareWindow(std::shared_ptr<RollingWindow> window, SharedSums shared) {
  window_ = std::move(window);
  shared_ = std::move(shared);
}

namespace {

// B-scan i of the volume; empty beyond the last one.
BscanSpan SpanOf(const RecordPlacement& p, int64_t i) {
  if (p.table != nullptr) return i < p.span_count ? p.spans[i] : BscanSpan();
  if (i >= p.raster.bscans_per_volume) return {};
  return {.first_record = i * (p.raster.ascans_per_bscan + p.raster.flyback_records),
          .records = p.raster.ascans_per_bscan,
          .repeat = 0};
}

// The first B-scan that ends after record `at`.
int64_t SpanAfter(const RecordPlacement& p, int64_t at) {
  if (p.table == nullptr) {
    const int64_t line = p.raster.ascans_per_bscan + p.raster.flyback_records;
    return at / line + (at % line >= p.raster.ascans_per_bscan ? 1 : 0);
  }
  return std::partition_point(
             p.spans, p.spans + p.span_count,
             [&](const BscanSpan& s) { return s.first_record + s.records <= at; }) -
         p.spans;
}

// Whether `next` is a further run of equal length that begins `pitch` records after the previous
// one.
bool Continues(const BscanSpan& span, const BscanSpan& next, int64_t runs, int64_t pitch) {
  return next.records == span.records && next.repeat == span.repeat &&
         next.first_record == span.first_record + runs * pitch;
}

}  // namespace

// Processes whole B-scans at once if the chain depends on them, and keeps a B-scan that the call
// cuts until the rest has arrived. Repeats are processed one after the other, because an A-scan
// must not occur twice in a launch that adds to its sum.
absl::Status SpectralProcessor::ProcessSpans(StreamRef stream, const uint8_t* raw, int64_t records,
                                             const RecordPlacement& placement,
                                             const SpectralTarget& target) {
  if (placement.table != nullptr && placement.span_count < 1)
    return InvalidField("placement.spans", "are none; these options need the volume's B-scans");
  if (placement.table == nullptr)
    OCTAVO_RETURN_IF_ERROR(InRange("placement.raster.ascans_per_bscan",
                                   placement.raster.ascans_per_bscan, 1, 1 << 24));
  const bool whole = config_.bscan_records > 0;
  if (kept_records_ > 0 && kept_placement_.first_record + kept_records_ != placement.first_record) {
    OCTAVO_RETURN_IF_ERROR(EndBscan(stream));  // a gap
  }
  const int64_t end = placement.first_record + records;
  int64_t at = placement.first_record;
  for (int64_t i = SpanAfter(placement, at); at < end; ++i) {
    const BscanSpan span = SpanOf(placement, i);
    if (span.records == 0) break;  // only flyback is left
    if (whole)
      OCTAVO_RETURN_IF_ERROR(
          InRange("placement.spans.records", span.records, 1, config_.bscan_records));
    at = std::max(at, span.first_record);  // skips flyback before the span
    if (at >= end) break;
    RecordPlacement part = placement;
    part.first_record = at;
    if (part.table != nullptr) part.table += at - placement.first_record;
    const uint8_t* from = raw + (at - placement.first_record) * record_bytes_;
    const int64_t wanted = span.first_record + span.records - at,
                  count = std::min(wanted, end - at);
    if (!whole) {
      // All records up to the next repeat, including the flyback.
      int64_t stop = at + count;
      for (; stop < end; ++i) {
        const BscanSpan next = SpanOf(placement, i + 1);
        if (next.records == 0 || next.repeat != span.repeat) break;
        stop = std::min(end, next.first_record + next.records);
      }
      OCTAVO_RETURN_IF_ERROR(ProcessRuns(
          stream, from, {.runs = 1, .active = stop - at, .pitch = stop - at}, part, target));
      at = stop;
    } else if (kept_records_ > 0 || count < wanted) {
      OCTAVO_RETURN_IF_ERROR(Keep(stream, from, count, part, target));
      if (count == wanted) OCTAVO_RETURN_IF_ERROR(EndBscan(stream));
      at += count;
    } else {
      int64_t runs = 1, pitch = count;
      if (at == span.first_record && SpanOf(placement, i + 1).records > 0) {
        pitch = SpanOf(placement, i + 1).first_record - at;
        while (at + runs * pitch + count <= end &&
               Continues(span, SpanOf(placement, i + 1), runs, pitch)) {
          ++runs;
          ++i;
        }
      }
      OCTAVO_RETURN_IF_ERROR(
          ProcessRuns(stream, from, {.runs = runs, .active = count, .pitch = pitch}, part, target));
      at += (runs - 1) * pitch + count;
    }
  }
  return absl::OkStatus();
}

absl::Status SpectralProcessor::Keep(StreamRef stream, const uint8_t* raw, int64_t records,
                                     const RecordPlacement& placement,
                                     const SpectralTarget& target) {
  if (kept_records_ == 0) {
    kept_target_ = target;
    kept_placement_ = placement;
    kept_placement_.spans = nullptr;
    if (placement.table != nullptr) kept_placement_.table = kept_table_.as<int32_t>();
  }
  OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(
      stream, kept_.as<uint8_t>() + kept_records_ * record_bytes_, raw, records * record_bytes_));
  if (placement.table != nullptr) {
    OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(stream, kept_table_.as<int32_t>() + kept_records_,
                                                placement.table, records * 4));
  }
  kept_records_ += records;
  return absl::OkStatus();
}

absl::Status SpectralProcessor::EndVolume(StreamRef stream) {
  OCTAVO_RETURN_IF_ERROR(EndGroup(stream));
  return EndBscan(stream);
}

absl::Status SpectralProcessor::EndBscan(StreamRef stream) {
  if (kept_records_ == 0) return absl::OkStatus();
  const int64_t records = std::exchange(kept_records_, 0);
  return ProcessRuns(stream, kept_.as<uint8_t>(), {.runs = 1, .active = records, .pitch = records},
                     kept_placement_, kept_target_);
}

absl::Status SpectralProcessor::ProcessRuns(StreamRef stream, const uint8_t* raw,
                                            const RecordRuns& runs,
                                            const RecordPlacement& placement,
                                            const SpectralTarget& target) {
  return plan_->Process(stream, raw, runs, placement, target,
                        {.power = repeat_power_.as<float>(),
                         .owner = repeat_owner_.as<int32_t>(),
                         .count = repeat_count_.as<int32_t>(),
                         .clipped = repeat_clipped_.as<uint32_t>()});
}

std::string SpectralProcessor::Describe() const {
  return absl::StrCat(DescribeChain(config_), "backend: ", plan_->description());
}

namespace {
// " with a dispersion phase of 0 to 16.4 rad, by at most 0.128 rad from one sample to the next"
std::string DescribePhase(const std::vector<float>& phase) {
  if (phase.empty()) return "";
  float jump = 0;
  for (size_t j = 0; j + 1 < phase.size(); ++j)
    jump = std::max(jump, std::abs(phase[j + 1] - phase[j]));
  const auto [least, most] = std::minmax_element(phase.begin(), phase.end());
  return absl::StrFormat(
      " with a dispersion phase of %.3g to %.3g rad, by at most %.3g rad from one sample to the "
      "next",
      *least, *most, jump);
}
}  // namespace

std::string DescribeChain(const SpectralConfig& c) {
  std::string text = absl::StrCat(
      "input: ", c.samples_per_record, " samples of ",
      c.packing == math::Packing::kNone ? Info(c.raw_type).name : "12 bits packed", " a record");
  if (c.channels > 1) absl::StrAppend(&text, ", channel ", c.channel, " of ", c.channels);
  if (c.record_average > 1) absl::StrAppend(&text, ", mean of ", c.record_average, " records");
  text += "\n";
  switch (c.background) {
    case math::Background::kNone: text += "background: none\n"; break;
    case math::Background::kStatic: text += "background: the given spectrum\n"; break;
    case math::Background::kRolling: {
      absl::StrAppend(&text, "background: of each group of ", c.background_group_records,
                      " records the mean of ");
      absl::StrAppend(&text,
                      c.background_window_records == 0
                          ? std::string("the group")
                          : absl::StrCat("the last ", c.background_window_records),
                      "\n");
      break;
    }
    case math::Background::kBscan:
      absl::StrAppend(&text, "background: mean of the B-scan's ", c.bscan_records, " records\n");
      break;
  }
  switch (c.interpolation) {
    case math::Interpolation::kNone: text += "k-linearisation: none\n"; break;
    case math::Interpolation::kLinear:
      absl::StrAppend(&text, "k-linearisation: linear to ", c.k_index.size(), " samples\n");
      break;
    case math::Interpolation::kCubic:
      absl::StrAppend(&text, "k-linearisation: cubic to ", c.k_index.size(), " samples\n");
      break;
    case math::Interpolation::kLanczos:
      absl::StrAppend(&text, "k-linearisation: Lanczos (a = 4) to ", c.k_index.size(),
                      " samples\n");
      break;
  }
  absl::StrAppend(&text, "window: ", c.window.size(), " samples", DescribePhase(c.phase_rad), "\n",
                  "transform: inverse DFT of ", c.fft_length, ", bins ", c.first_bin, " to ",
                  c.first_bin + c.depth - 1, "\n");
  if (c.fixed_pattern != math::FixedPattern::kNone) {
    absl::StrAppend(&text, "fixed pattern: less the complex mean of ",
                    c.fixed_pattern == math::FixedPattern::kMean
                        ? "the B-scan"
                        : "the quietest of 9 segments of the B-scan",
                    " at each depth\n");
  }
  static constexpr const char* kValues[] = {"dB", "magnitude", "power", "real part", "complex"};
  absl::StrAppend(&text, "value: ", kValues[static_cast<int>(c.value)]);
  if (c.repeats > 1) absl::StrAppend(&text, " of the mean power of ", c.repeats, " repeats");
  absl::StrAppend(&text, ", stored as ", Info(c.output).name);
  if (c.has_levels) absl::StrAppend(&text, " with levels ", c.level_lo, " to ", c.level_hi);
  return text + "\n";
}

}  // namespace octavo::inline gpu
