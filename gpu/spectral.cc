#include "gpu/spectral.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "gpu/spectral_design.h"

namespace octavo {
namespace {

absl::Status InRange(const char* field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}

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

}  // namespace

absl::Status SpectralProcessor::Validate(const SpectralConfig& c) {
  OCTAVO_RETURN_IF_ERROR(InRange("samples_per_record", c.samples_per_record, 16, 65536));
  if (c.raw_type != DType::kU8 && c.raw_type != DType::kU16 && c.raw_type != DType::kI16 && c.raw_type != DType::kF32) {
    return InvalidField("raw_type", absl::StrCat("is ", Info(c.raw_type).name, "; allowed u8, u16, i16, f32"));
  }
  OCTAVO_RETURN_IF_ERROR(InRange("max_records_per_block", c.max_records_per_block, 1, 1 << 24));
  if (c.background == math::Background::kStatic) {
    OCTAVO_RETURN_IF_ERROR(Length("background.spectrum", c.background_spectrum.size(), c.samples_per_record));
    OCTAVO_RETURN_IF_ERROR(Finite("background.spectrum", c.background_spectrum));
  }
  if (c.background == math::Background::kRolling) {
    OCTAVO_RETURN_IF_ERROR(InRange("background.window_records", c.background_window_records, 1, 1 << 20));
  }
  int64_t n = c.samples_per_record;
  if (c.interpolation != math::Interpolation::kNone) {
    OCTAVO_RETURN_IF_ERROR(InRange("k_linearisation.index (its length)", static_cast<int64_t>(c.k_index.size()), 16, 65536));
    n = static_cast<int64_t>(c.k_index.size());
    for (size_t j = 0; j < c.k_index.size(); ++j) {
      const float r = c.k_index[j];
      if (!(r >= 0 && r <= static_cast<float>(c.samples_per_record - 1))) {
        return InvalidField("k_linearisation.index", absl::StrCat("is ", r, " at ", j, "; allowed 0 to ", c.samples_per_record - 1));
      }
      if (j > 0 && r < c.k_index[j - 1]) {
        return InvalidField("k_linearisation.index", absl::StrCat("decreases at ", j, ": ", r, " after ", c.k_index[j - 1]));
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
  if (!IsFastLength(c.fft_length)) {
    return InvalidField("fft_length", absl::StrCat("is ", c.fft_length, "; allowed are products of 2, 3 and 5; the next is ",
                                                   NextFastLength(c.fft_length)));
  }
  OCTAVO_RETURN_IF_ERROR(InRange("first_bin", c.first_bin, 0, c.fft_length - 1));
  OCTAVO_RETURN_IF_ERROR(InRange("depth", c.depth, 1, c.fft_length - c.first_bin));
  if (c.output != DType::kU8 && c.output != DType::kU16 && c.output != DType::kF32) {
    return InvalidField("dtype", absl::StrCat("is ", Info(c.output).name, "; allowed u8, u16, f32"));
  }
  if (c.has_levels && !(std::isfinite(c.level_lo) && std::isfinite(c.level_hi) && c.level_lo < c.level_hi)) {
    return InvalidField("levels", absl::StrCat("are ", c.level_lo, " to ", c.level_hi, "; lo must be less than hi"));
  }
  if (!c.has_levels && c.output != DType::kF32) return InvalidField("levels", "are needed for integer output");
  const bool whole = c.slab_begin == 0 && c.slab_end == 0;
  if (!whole && !(c.slab_begin >= 0 && c.slab_begin < c.slab_end && c.slab_end <= c.depth)) {
    return InvalidField("slab", absl::StrCat("is depth samples ", c.slab_begin, " to ", c.slab_end, "; allowed 0 to ", c.depth));
  }
  return absl::OkStatus();
}

SpectralProcessor::SpectralProcessor(SpectralConfig config, std::unique_ptr<SpectralPlan> plan)
    : config_(std::move(config)), plan_(std::move(plan)) {}

absl::StatusOr<std::unique_ptr<SpectralProcessor>> SpectralProcessor::Create(const SpectralConfig& config, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Validate(config));
  SpectralConfig resolved = config;
  if (resolved.slab_end == 0) resolved.slab_end = resolved.depth;
  OCTAVO_ASSIGN_OR_RETURN(auto plan, device.spectral().CreatePlan(resolved));
  return std::unique_ptr<SpectralProcessor>(new SpectralProcessor(std::move(resolved), std::move(plan)));
}

absl::Status SpectralProcessor::BeginBlock(StreamRef stream, const void* raw, int64_t records) {
  if (config_.background != math::Background::kRolling) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(InRange("records", records, 1, config_.max_records_per_block));
  return plan_->UpdateBackground(stream, raw, records);
}

absl::Status SpectralProcessor::Process(StreamRef stream, const void* raw, int64_t records, const RecordPlacement& placement,
                                        const SpectralTarget& target) {
  OCTAVO_RETURN_IF_ERROR(InRange("records", records, 1, config_.max_records_per_block));
  return plan_->Process(stream, raw, records, placement, target);
}

std::string SpectralProcessor::Describe() const { return absl::StrCat(DescribeChain(config_), "backend: ", plan_->description()); }

std::string DescribeChain(const SpectralConfig& c) {
  std::string text = absl::StrCat("input: ", c.samples_per_record, " samples of ", Info(c.raw_type).name, " a record\n");
  switch (c.background) {
    case math::Background::kNone: text += "background: none\n"; break;
    case math::Background::kStatic: text += "background: the given spectrum\n"; break;
    case math::Background::kRolling:
      absl::StrAppend(&text, "background: mean of the last ", c.background_window_records, " records\n");
      break;
  }
  switch (c.interpolation) {
    case math::Interpolation::kNone: text += "k-linearisation: none\n"; break;
    case math::Interpolation::kLinear: absl::StrAppend(&text, "k-linearisation: linear to ", c.k_index.size(), " samples\n"); break;
    case math::Interpolation::kCubic: absl::StrAppend(&text, "k-linearisation: cubic to ", c.k_index.size(), " samples\n"); break;
  }
  absl::StrAppend(&text, "window: ", c.window.size(), " samples", c.phase_rad.empty() ? "" : " with dispersion phase", "\n",
                  "transform: inverse DFT of ", c.fft_length, ", bins ", c.first_bin, " to ", c.first_bin + c.depth - 1, "\n", "value: ",
                  c.value == math::Value::kDb ? "dB" : c.value == math::Value::kPower ? "power" : "magnitude", ", stored as ",
                  Info(c.output).name);
  if (c.has_levels) absl::StrAppend(&text, " with levels ", c.level_lo, " to ", c.level_hi);
  return text + "\n";
}

}  // namespace octavo
