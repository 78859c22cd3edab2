#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/source/rate_limiter.h"
#include "server/source/simulated_model.h"
#include "server/source/sources.h"

namespace octavo::source {
namespace {

/// Of all simulated sources. If each thread that acquires had one, those of ended scans would add
/// up while all cores are busy (gpu/device/host/stream_threads.h).
tbb::task_arena& Arena() {
  static auto* const arena = new tbb::task_arena;
  return *arena;
}

class SimulatedRecords final : public Source {
 public:
  SimulatedRecords(const model::ScanSpec& spec, const model::SimulatedSource& source,
                   const Clock* clock)
      : acquisition_(spec.acquisition),
        model_(std::in_place, source, spec.pattern, spec.acquisition.samples_per_record,
               spec.acquisition.raw_type, std::max<int64_t>(spec.acquisition.record_average, 1)),
        record_bytes_(spec.acquisition.SourceRecordBytes()),
        plain_(spec.acquisition.packing == math::Packing::kNone && spec.acquisition.channels <= 1),
        repeat_block_(source.repeat_block),
        pacer_(source.as_fast_as_possible ? 0 : spec.acquisition.record_rate_hz),
        clock_(clock) {}

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    if (repeat_block_) {
      Repeat(slot, max_records, stop);
    } else {
      Render(slot, max_records, stop);
    }
    return Take(max_records, stop);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) override {
    return Take(records, stop);
  }
  bool CanWait() const override { return !pacer_.paced(); }
  void Close() override {  // an ended scan stays listed but no longer needs the tissue
    model_.reset();
    first_block_ = {};
    filled_.clear();
  }

 private:
  void Render(void* slot, int64_t records, std::stop_token stop) const {
    const auto render = [&](int64_t r) {
      if (stop.stop_requested()) return;
      auto* out = static_cast<uint8_t*>(slot) + r * record_bytes_;
      if (plain_) {
        model_->Render(next_ + r, out);
      } else {
        thread_local std::vector<uint8_t> samples;
        samples.resize(
            static_cast<size_t>(acquisition_.samples_per_record * SizeOf(acquisition_.raw_type)));
        model_->Render(next_ + r, samples.data());
        Interleave(samples.data(), out);
      }
    };
    Arena().execute([&] { tbb::parallel_for(int64_t{0}, records, render); });
  }
  // The first block; shorter blocks are its beginning. A slot keeps what was written to it.
  void Repeat(void* slot, int64_t records, std::stop_token stop) {
    if (first_block_.empty()) {
      first_block_.resize(static_cast<size_t>(records * record_bytes_));
      Render(first_block_.data(), records, stop);
    }
    int64_t& filled = filled_[slot];
    if (filled >= records) return;
    std::memcpy(slot, first_block_.data(),
                std::min(first_block_.size(), static_cast<size_t>(records * record_bytes_)));
    filled = records;
  }
  // Samples [S] into their channel of a record, packed if so; the other channels hold 0.
  void Interleave(const uint8_t* samples, uint8_t* out) const {
    const model::Acquisition& a = acquisition_;
    const auto size = static_cast<size_t>(SizeOf(a.raw_type));
    std::memset(out, 0, static_cast<size_t>(record_bytes_));
    for (int64_t j = 0; j < a.samples_per_record; ++j) {
      const int64_t i = j * std::max<int64_t>(a.channels, 1) + a.channel;
      const uint8_t* sample = samples + static_cast<size_t>(j) * size;
      if (a.packing == math::Packing::kNone) {
        std::memcpy(out + static_cast<size_t>(i) * size, sample, size);
      } else {
        uint16_t value;
        std::memcpy(&value, sample, 2);
        math::WritePacked12(a.packing, out, i, value);
      }
    }
  }
  SourceBlock Take(int64_t records, std::stop_token stop) {
    if (!pacer_.WaitFor(next_ + records, stop)) return {};
    const SourceBlock block{.first_record = next_, .records = records, .acquired = clock_->Now()};
    next_ += records;
    return block;
  }

  const model::Acquisition acquisition_;  // resolved
  std::optional<SimulatedModel> model_;   // exists until Close
  const int64_t record_bytes_;
  const bool plain_;  // one channel, not packed
  const bool repeat_block_;
  std::vector<uint8_t> first_block_;  // with repeat_block_
  std::map<void*, int64_t> filled_;   // records that a slot holds
  RateLimiter pacer_;
  const Clock* const clock_;
  int64_t next_ = 0;
};

}  // namespace

model::SimulatedSource WithDefaults(const model::SimulatedSource& given, DType raw_type) {
  model::SimulatedSource s = given;
  if (s.centre_wavelength_nm == 0) s.centre_wavelength_nm = 840;
  if (s.bandwidth_nm == 0) s.bandwidth_nm = 94;
  if (s.noise_counts == 0) s.noise_counts = 2;
  if (s.fixed_pattern == 0) s.fixed_pattern = 0.002;
  if (s.adc_bits == 0) s.adc_bits = raw_type == DType::kU8 ? 8 : 12;
  if (s.motion_um_per_volume == 0) s.motion_um_per_volume = 4;
  if (!s.scatterers.has_value()) s.scatterers = s.layers.empty() ? 64 : 0;
  return s;
}

absl::StatusOr<model::SourceTraits> InspectSimulated(const model::ScanSpec& spec,
                                                     const model::SimulatedSource& given) {
  model::SourceTraits traits;
  traits.raw_type = spec.acquisition.raw_type_given ? spec.acquisition.raw_type : DType::kU16;
  traits.packing = spec.acquisition.packing;
  traits.samples_per_record =
      spec.acquisition.samples_per_record == 0 ? 1024 : spec.acquisition.samples_per_record;
  if (traits.samples_per_record < 16 || traits.samples_per_record > 65536) {
    return FieldOutOfRange("acquisition.samples_per_record", traits.samples_per_record, 16, 65536);
  }
  const model::SimulatedSource s = WithDefaults(given, traits.raw_type);
  OCTAVO_RETURN_IF_ERROR(
      InRange("simulated.centre_wavelength_nm", s.centre_wavelength_nm, 400, 2000));
  if (!(s.bandwidth_nm > 0 && s.bandwidth_nm < s.centre_wavelength_nm)) {
    return InvalidField("simulated.bandwidth_nm",
                        absl::StrCat("is ", s.bandwidth_nm, "; allowed > 0 and < ",
                                     s.centre_wavelength_nm, ", the centre wavelength"));
  }
  OCTAVO_RETURN_IF_ERROR(InRange("simulated.nonlinearity", s.nonlinearity, -0.2, 0.2));
  OCTAVO_RETURN_IF_ERROR(InRange("simulated.dispersion_a2", s.dispersion_a2, -1, 1));
  OCTAVO_RETURN_IF_ERROR(InRange("simulated.dispersion_a3", s.dispersion_a3, -1, 1));
  OCTAVO_RETURN_IF_ERROR(InRange("simulated.noise_counts", s.noise_counts, -1e9, 1e4));
  OCTAVO_RETURN_IF_ERROR(InRange("simulated.fixed_pattern", s.fixed_pattern, -1e9, 0.5));
  OCTAVO_RETURN_IF_ERROR(InRange("simulated.adc_bits", s.adc_bits, 8,
                                 traits.raw_type == DType::kU8            ? 8
                                 : traits.packing != math::Packing::kNone ? 12
                                                                          : 16));
  OCTAVO_RETURN_IF_ERROR(
      InRange("simulated.motion_um_per_volume", s.motion_um_per_volume, -1e9, 1e6));
  OCTAVO_RETURN_IF_ERROR(InRange("simulated.scatterers", *s.scatterers, 0, 10000));
  if (s.repeat_block && spec.acquisition.record_average > 1) {
    return InvalidField(
        "simulated.repeat_block",
        absl::StrCat("is given with acquisition.record_average ", spec.acquisition.record_average,
                     "; allowed with 0 or 1 only"));
  }
  if (std::ssize(s.layers) > model::SimulatedSource::kMostLayers) {
    return InvalidField("simulated.layers",
                        absl::StrCat("has ", s.layers.size(), " layers; allowed ",
                                     model::SimulatedSource::kMostLayers));
  }
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const model::SimulatedLayer& layer = s.layers[i];
    const std::string at = absl::StrCat("simulated.layers[", i, "].");
    OCTAVO_RETURN_IF_ERROR(InRange(at + "depth_um", layer.depth_um, 1e-3, 1e6));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "reflectivity", layer.reflectivity, 1e-9, 0.2));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "tilt_um_per_mm", layer.tilt_um_per_mm, -1e4, 1e4));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "waviness_um", layer.waviness_um, -1e4, 1e4));
  }
  const double rate = spec.acquisition.record_rate_hz;
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.record_rate_hz", rate, 0, 1e9));
  traits.record_rate_hz = s.as_fast_as_possible ? 0 : rate == 0 ? 100e3 : rate;
  // Times of markers and the limits of the scanner need the rate all the same.
  if (s.as_fast_as_possible && rate != 0 && !spec.pattern.has_limits && spec.markers.empty()) {
    traits.warnings.push_back(absl::StrCat(
        "acquisition.record_rate_hz is ", rate,
        ", and simulated.as_fast_as_possible makes records as fast as the scan takes them, without "
        "regard to it: leave one of them out."));
  }
  traits.adc_bits = s.adc_bits;
  traits.wavelength_nm = SimulatedModel::WavelengthNm(s, traits.samples_per_record);
  if (std::adjacent_find(traits.wavelength_nm.begin(), traits.wavelength_nm.end(),
                         std::less_equal<>()) != traits.wavelength_nm.end()) {
    return InvalidField("simulated.bandwidth_nm",
                        absl::StrCat("is ", s.bandwidth_nm, ", too little to tell ",
                                     traits.samples_per_record, " samples apart"));
  }
  return traits;
}

std::unique_ptr<Source> OpenSimulated(const model::ScanSpec& resolved,
                                      const model::SimulatedSource& source, const Clock* clock) {
  return std::make_unique<SimulatedRecords>(
      resolved, WithDefaults(source, resolved.acquisition.raw_type), clock);
}

}  // namespace octavo::source
