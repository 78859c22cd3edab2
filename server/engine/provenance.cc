#include "server/engine/provenance.h"

#include <algorithm>

#include "server/engine/resolve.h"

namespace octavo::engine {
namespace {

using nlohmann::json;

json SourceJson(const ScanSpec& spec) {
  if (const auto* sim = std::get_if<SimulatedSource>(&spec.source)) {
    return {{"kind", "simulated"}, {"seed", sim->seed}, {"centre_wavelength_nm", sim->centre_wavelength_nm},
            {"bandwidth_nm", sim->bandwidth_nm}, {"nonlinearity", sim->nonlinearity},
            {"dispersion_a2", sim->dispersion_a2}, {"dispersion_a3", sim->dispersion_a3}, {"adc_bits", sim->adc_bits}};
  }
  if (const auto* replay = std::get_if<ReplaySource>(&spec.source)) {
    return {{"kind", "replay"}, {"path", replay->path}, {"rate_hz", replay->rate_hz}, {"loops", replay->loops}};
  }
  return {{"kind", "none"}};
}

json AcquisitionJson(const ScanSpec& spec) {
  const RasterPattern& p = spec.pattern;
  return {{"source", SourceJson(spec)},
          {"samples_per_record", spec.acquisition.samples_per_record},
          {"raw_type", spec.acquisition.packing == math::Packing::kNone         ? Info(spec.acquisition.raw_type).name
                       : spec.acquisition.packing == math::Packing::kLowFirst12 ? "u12p"
                                                                                : "u12_packed"},
          {"channels", spec.acquisition.channels},
          {"channel", spec.acquisition.channel},
          {"record_average", spec.acquisition.record_average},
          {"record_rate_hz", spec.acquisition.record_rate_hz},
          {"pattern",
           {{"kind", "raster"}, {"ascans_per_bscan", p.ascans_per_bscan}, {"bscans_per_volume", p.bscans_per_volume},
            {"bidirectional", p.bidirectional}, {"flyback_records", p.flyback_records},
            {"volume_flyback_records", p.volume_flyback_records}, {"extent_x_mm", p.extent_x_mm}, {"extent_y_mm", p.extent_y_mm}}}};
}

// The tables themselves, not only how they were asked for: the file must suffice to repeat the processing.
json ProcessingJson(const ResolvedScan& scan) {
  const SpectralConfig& c = scan.chain;
  static constexpr const char* kBackground[] = {"none", "static", "rolling", "bscan"};
  static constexpr const char* kInterpolation[] = {"none", "linear", "cubic", "lanczos"};
  static constexpr const char* kValue[] = {"db", "magnitude", "power", "real", "complex"};
  static constexpr const char* kPattern[] = {"keep", "mean", "quiet_segment"};
  json out = {{"background", kBackground[static_cast<int>(c.background)]},
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

}  // namespace

storage::VolumeMeta MetaOf(const VolumeStatus& volume, const std::string& software, const std::string& device_model) {
  static constexpr const char* kValue[] = {"db", "db", "magnitude", "power", "real", "complex"};
  storage::VolumeMeta meta;
  meta.volume_name = volume.name;
  meta.scan_name = volume.scan;
  meta.title = volume.title;
  meta.index = volume.index;
  std::copy(volume.shape, volume.shape + 3, meta.shape);
  std::copy(volume.spacing_um, volume.spacing_um + 3, meta.spacing_um);
  meta.dtype = volume.dtype;
  meta.value_kind = kValue[static_cast<int>(volume.value)];
  meta.has_levels = volume.has_levels;
  meta.level_lo = volume.level_lo;
  meta.level_hi = volume.level_hi;
  meta.labels = volume.labels;
  meta.acquired_begin_unix_ns = volume.acquired_begin.unix_ns;
  meta.acquired_end_unix_ns = volume.acquired_end.unix_ns;
  meta.missing_ascans = volume.missing_ascans;
  meta.missing_ranges = volume.missing;
  meta.device_model = device_model;
  meta.software = software;
  meta.digest = volume.digest;
  if (volume.origin != nullptr) {
    const ScanSpec& spec = volume.origin->spec;
    meta.display_lo = volume.origin->display_lo;
    meta.display_hi = volume.origin->display_hi;
    meta.subject_id = spec.subject.id;
    meta.subject_site = spec.subject.site;
    meta.subject_note = spec.subject.note;
    meta.processing = ProcessingJson(*volume.origin);
    meta.acquisition = AcquisitionJson(spec);
  }
  return meta;
}

}  // namespace octavo::engine
