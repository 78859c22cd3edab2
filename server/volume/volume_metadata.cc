#include "server/volume/volume_metadata.h"

#include <algorithm>

#include "gpu/base/json.h"
#include "server/model/resolved_scan.h"
#include "server/pattern/plan.h"

namespace octavo::volume {
namespace {

using nlohmann::json;

json SourceJson(const model::ScanSpec& spec) {
  if (const auto* sim = std::get_if<model::SimulatedSource>(&spec.source)) {
    return {{"kind", "simulated"},
            {"seed", sim->seed},
            {"centre_wavelength_nm", sim->centre_wavelength_nm},
            {"bandwidth_nm", sim->bandwidth_nm},
            {"nonlinearity", sim->nonlinearity},
            {"dispersion_a2", sim->dispersion_a2},
            {"dispersion_a3", sim->dispersion_a3},
            {"adc_bits", sim->adc_bits}};
  }
  if (const auto* replay = std::get_if<model::ReplaySource>(&spec.source)) {
    return {{"kind", "replay"},
            {"path", replay->path},
            {"rate_hz", replay->rate_hz},
            {"loops", replay->loops},
            {"header_bytes", replay->header_bytes},
            {"allow_partial", replay->allow_partial}};
  }
  if (std::holds_alternative<model::PushSource>(spec.source)) return {{"kind", "push"}};
  if (std::holds_alternative<model::RingSource>(spec.source)) return {{"kind", "ring"}};
  if (const auto* camera = std::get_if<model::CameraSource>(&spec.source)) {
    json out = {{"kind", "camera"},
                {"id", camera->id},
                {"pixel_format", camera->pixel_format},
                {"exposure_us", camera->exposure_us},
                {"frame_rate_hz", camera->frame_rate_hz},
                {"trigger_source", camera->trigger_source}};
    if (camera->gain.has_value()) out["gain"] = *camera->gain;
    if (camera->offset_x.has_value()) out["offset_x"] = *camera->offset_x;
    if (camera->offset_y.has_value()) out["offset_y"] = *camera->offset_y;
    return out;
  }
  return {{"kind", "none"}};
}

json PatternJson(const pattern::Pattern& p) {
  json out = {{"kind", Name(p.kind)},
              {"ascans_per_bscan", p.ascans_per_bscan},
              {"bscans_per_volume", p.bscans_per_volume},
              {"bidirectional", p.bidirectional},
              {"bidirectional_volumes", p.bidirectional_volumes},
              {"flyback_records", p.flyback_records},
              {"volume_flyback_records", p.volume_flyback_records},
              {"extent_x_mm", p.extent_x_mm},
              {"extent_y_mm", p.extent_y_mm},
              {"offset_mm", {p.offset_x_mm, p.offset_y_mm}},
              {"rotation_deg", p.rotation_deg}};
  if (p.repeated()) {
    out["repeat_count"] = p.repeat_count;
    out["repeat_period"] = p.repeat_period;
    out["repeat_strategy"] = p.averaged()                                           ? "average"
                             : p.repeat_strategy == pattern::RepeatStrategy::kOrder ? "order"
                                                                                    : "pack";
  }
  const bool radial =
      p.kind == pattern::PatternKind::kRadial || p.kind == pattern::PatternKind::kRepeatedRadial;
  if (radial || p.kind == pattern::PatternKind::kSpiral)
    out["radius_mm"] = {p.radius_begin_mm, p.radius_end_mm};
  if (radial) out["angle_deg"] = {p.angle_begin_deg, p.angle_end_deg};
  if (p.kind == pattern::PatternKind::kSpiral)
    out["sampling"] = p.spiral_sampling == pattern::SpiralSampling::kLinear ? "linear" : "angular";
  if (p.kind == pattern::PatternKind::kLissajous) {
    out["cycles"] = {p.cycles_x, p.cycles_y};
    out["phase_deg"] = {p.phase_x_deg, p.phase_y_deg};
  }
  if (p.kind == pattern::PatternKind::kFreeform) {
    out["x_mm"] = p.points_x_mm;
    out["y_mm"] = p.points_y_mm;
  }
  if (p.warp == pattern::WarpKind::kAngular) out["angular_warp_mm_per_deg"] = p.warp_mm_per_deg;
  if (p.warp == pattern::WarpKind::kTelecentric)
    out["telecentric_warp"] = {{"galvo_lens_spacing_mm", p.warp_lens_spacing_mm},
                               {"scale_rad_per_deg", p.warp_rad_per_deg}};
  return out;
}

json AcquisitionJson(const model::ScanSpec& spec) {
  return {{"source", SourceJson(spec)},
          {"samples_per_record", spec.acquisition.samples_per_record},
          {"raw_type", spec.acquisition.packing == math::Packing::kNone
                           ? Info(spec.acquisition.raw_type).name
                       : spec.acquisition.packing == math::Packing::kLowFirst12 ? "u12p"
                                                                                : "u12_packed"},
          {"adc_bits", spec.acquisition.adc_bits},
          {"channels", spec.acquisition.channels},
          {"channel", spec.acquisition.channel},
          {"record_average", spec.acquisition.record_average},
          {"record_rate_hz", spec.acquisition.record_rate_hz},
          {"pattern", PatternJson(spec.pattern)}};
}

// The tables themselves, not only how they were asked for: the file must suffice to repeat the
// processing.
json ProcessingJson(const model::ResolvedScan& scan) {
  const SpectralConfig& c = scan.chain;
  static constexpr const char* kBackground[] = {"none", "static", "rolling", "bscan"};
  static constexpr const char* kInterpolation[] = {"none", "linear", "cubic", "lanczos"};
  static constexpr const char* kValue[] = {"db", "magnitude", "power", "real", "complex"};
  static constexpr const char* kPattern[] = {"keep", "mean", "quiet_segment"};
  json out = {{"background", kBackground[static_cast<int>(c.background)]},
              {"background_group_records", c.background_group_records},
              {"background_window_records", c.background_window_records},
              {"interpolation", kInterpolation[static_cast<int>(c.interpolation)]},
              {"fft_length", c.fft_length},
              {"first_bin", c.first_bin},
              {"depth", c.depth},
              {"value", kValue[static_cast<int>(c.value)]},
              {"output", Info(c.output).name},
              {"fixed_pattern_noise", kPattern[static_cast<int>(c.fixed_pattern)]},
              {"dispersion_a2", scan.spec.processing.dispersion_a2},
              {"dispersion_a3", scan.spec.processing.dispersion_a3},
              {"window", c.window}};
  if (c.has_levels) out["levels"] = {c.level_lo, c.level_hi};
  if (!c.background_spectrum.empty()) out["background_spectrum"] = c.background_spectrum;
  if (!c.k_index.empty()) out["k_index"] = c.k_index;
  if (!c.phase_rad.empty()) out["phase_rad"] = c.phase_rad;
  return out;
}

constexpr const char* kValues[] = {"db", "db", "magnitude", "power", "real", "complex"};
static_assert(std::size(kValues) == static_cast<size_t>(model::ValueKind::kComplex) + 1);

}  // namespace

const char* NameOfValue(model::ValueKind value) { return kValues[static_cast<size_t>(value)]; }

std::optional<model::ValueKind> ValueNamed(const std::string& name) {
  const auto* const found = std::find(std::begin(kValues) + 1, std::end(kValues), name);
  if (found == std::end(kValues)) return std::nullopt;
  return static_cast<model::ValueKind>(found - std::begin(kValues));
}

const pattern::Pattern* PatternOf(const model::VolumeStatus& volume) {
  return volume.origin != nullptr ? &volume.origin->spec.pattern : volume.recovered_pattern.get();
}

storage::VolumeMeta MetaOf(const model::VolumeStatus& volume, const std::string& software,
                           const std::string& device_model) {
  storage::VolumeMeta meta;
  meta.volume_name = volume.name;
  meta.scan_name = volume.scan;
  meta.title = volume.title;
  meta.index = volume.index;
  std::copy(volume.shape, volume.shape + 3, meta.shape);
  std::copy(volume.spacing_um, volume.spacing_um + 3, meta.spacing_um);
  for (int d = 0; d < 3; ++d) meta.spacing_assumed[d] = !volume.IsLength(d);
  std::copy(volume.axes, volume.axes + 3, meta.axes);
  meta.dtype = volume.dtype;
  meta.value_kind = NameOfValue(volume.value);
  if (volume.quantity != model::Quantity::kNone) meta.value_kind = Name(volume.quantity);
  // An imported file that does not say what its numbers are, and the file of it.
  if (volume.value == model::ValueKind::kDefault && volume.quantity == model::Quantity::kNone &&
      volume.recovered_meta != nullptr)
    meta.value_kind = volume.recovered_meta->value_kind;
  meta.has_levels = volume.has_levels;
  meta.level_lo = volume.level_lo;
  meta.level_hi = volume.level_hi;
  meta.labels = volume.labels;
  meta.acquired_begin_unix_ns = volume.acquired_begin.unix_ns;
  meta.acquired_end_unix_ns = volume.acquired_end.unix_ns;
  meta.missing_ascans = volume.missing_ascans;
  meta.missing_ranges = volume.missing;
  meta.missing_frames = volume.missing_frames;
  meta.expected_frames = volume.expected_frames;
  meta.device_model = device_model;
  meta.software = software;
  meta.digest = volume.digest;
  if (volume.origin != nullptr) {
    const model::ScanSpec& spec = volume.origin->spec;
    meta.display_lo = volume.origin->display_lo;
    meta.display_hi = volume.origin->display_hi;
    meta.subject_id = spec.subject.id;
    meta.subject_site = spec.subject.site;
    meta.subject_note = spec.subject.note;
    meta.processing = ProcessingJson(*volume.origin);
    meta.acquisition = AcquisitionJson(spec);
    if (!volume.spread_devices.empty())
      meta.processing["spread"] = {{"devices", volume.spread_devices},
                                   {"layout", volume.stripe_bscans > 0 ? "striped" : "home"}};
  }
  if (volume.origin == nullptr &&
      volume.recovered_meta != nullptr) {  // imported, or derived of what an earlier process left
    const storage::VolumeMeta& source = *volume.recovered_meta;
    meta.display_lo = source.display_lo;
    meta.display_hi = source.display_hi;
    meta.subject_id = source.subject_id;
    meta.subject_site = source.subject_site;
    meta.subject_note = source.subject_note;
    meta.processing = source.processing;
    meta.acquisition = source.acquisition;
    meta.warnings = source.warnings;
  }
  if (!volume.operations.empty())
    meta.processing["derived"] = {{"from", volume.derived_from}, {"operations", volume.operations}};
  if (volume.missing_frames > 0) {
    meta.processing["missing_frames"] = {{"count", volume.missing_frames},
                                         {"of", volume.expected_frames},
                                         {"first_ranges", volume.missing_frame_ranges}};
  }
  if (volume.display_lo < volume.display_hi) {
    meta.display_lo = volume.display_lo;
    meta.display_hi = volume.display_hi;
  }
  // What is derived of a recovered volume has the job among its source's processing already.
  if (!volume.job.empty() && volume.recovered_meta == nullptr) {
    auto parameters = ParseJson(volume.job_parameters);
    if (!parameters.ok()) parameters = json(volume.job_parameters);  // kept all the same, as text
    meta.processing["job"] = {
        {"name", volume.job}, {"kind", volume.job_kind}, {"parameters", *std::move(parameters)}};
  }
  return meta;
}

void DescribeBy(const storage::VolumeMeta& meta, model::VolumeStatus* volume) {
  volume->title = meta.title;
  std::copy(meta.shape, meta.shape + 3, volume->shape);
  std::copy(meta.spacing_um, meta.spacing_um + 3, volume->spacing_um);
  std::copy(meta.spacing_assumed, meta.spacing_assumed + 3, volume->spacing_assumed);
  std::copy(meta.axes, meta.axes + 3, volume->axes);
  volume->dtype = meta.dtype;
  volume->bytes = meta.shape[0] * meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype);
  volume->has_levels = meta.has_levels;
  volume->level_lo = meta.level_lo;
  volume->level_hi = meta.level_hi;
  volume->labels = meta.labels;
  volume->acquired_begin.unix_ns = meta.acquired_begin_unix_ns;
  volume->acquired_end.unix_ns = meta.acquired_end_unix_ns;
  volume->missing_ascans = meta.missing_ascans;
  const auto& missing = meta.missing_ranges;
  volume->missing.assign(missing.begin(),
                         missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
  volume->all_missing.reset();
  if (missing.size() > 32)
    volume->all_missing = std::make_shared<const std::vector<std::pair<int64_t, int64_t>>>(missing);
}

}  // namespace octavo::volume
