#include "server/scan/resolve_scan.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "gpu/spectral/spectral_design.h"
#include "gpu/spectral/spectral_span.h"
#include "server/pattern/plan.h"
#include "server/processing/processing_doubts.h"
#include "server/processing/stored_form.h"
#include "server/source/sources.h"

namespace octavo::engine {
namespace {

constexpr int64_t kMostVolumeBytes = int64_t{1} << 40, kMostVolumeRecords = int64_t{1} << 31;
constexpr int64_t kMostBlockBytes = int64_t{1} << 30, kMostBlockRecords = 1 << 24;
constexpr int64_t kMostHoldSlots = 65536;
constexpr double kLeastWavelengthNm = 100, kMostWavelengthNm = 20'000;
constexpr int64_t kGatheredBytes = 2 << 20;  // smaller uploads do not fill a link (tests/bench/RESULTS.md)

absl::Status InRange(const std::string& field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}

absl::Status InRange(const std::string& field, double value, double lo, double hi) {
  if (std::isfinite(value) && value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}

// The chain's own names for its fields → the request's.
absl::Status InRequestWords(const absl::Status& status) {
  if (status.ok()) return status;
  ErrorInfo info = InfoOf(status);
  const bool acquisition = info.field == "samples_per_record" || info.field == "raw_type" || info.field == "channels" || info.field == "channel" ||
                           info.field == "record_average";
  const std::string field = absl::StrCat(acquisition ? "acquisition." : "processing.", info.field);
  const std::string message(status.message().substr(info.field.size()));
  return WithInfo(absl::Status(status.code(), absl::StrCat(field, message)), {.reason = info.reason, .field = field, .numbers = info.numbers});
}

// How many bits of a sample carry numbers: as the source declares, unless the client knows better.
absl::Status ResolveAdcBits(ResolvedScan& scan) {
  Acquisition& a = scan.spec.acquisition;
  const int64_t container = ContainerBits(a.raw_type, a.packing);
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.adc_bits", a.adc_bits, 0, container == 0 ? 32 : container));
  const auto* simulated = std::get_if<SimulatedSource>(&scan.spec.source);
  if (simulated != nullptr && a.adc_bits != 0 && a.adc_bits != simulated->adc_bits) {
    return InvalidField("acquisition.adc_bits",
                        absl::StrCat("is ", a.adc_bits, " and simulated.adc_bits is ", simulated->adc_bits, "; allowed 0 or the same number"));
  }
  if (a.adc_bits == 0) a.adc_bits = scan.source.adc_bits > 0 ? scan.source.adc_bits : container;
  return absl::OkStatus();
}

absl::Status ResolveAcquisition(ResolvedScan& scan) {
  Acquisition& a = scan.spec.acquisition;
  const Pattern& p = scan.spec.pattern;
  a.samples_per_record = scan.source.samples_per_record;
  a.raw_type = scan.source.raw_type;
  a.packing = scan.source.packing;
  a.raw_type_given = true;
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.samples_per_record", a.samples_per_record, 16, 65536));
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.channels", a.channels, 1, 65536 / a.samples_per_record));
  OCTAVO_RETURN_IF_ERROR(ResolveAdcBits(scan));
  int64_t line = p.ascans_per_bscan + p.flyback_records;
  scan.volume_records = line * p.bscans_per_volume + p.volume_flyback_records;
  if (p.plan != nullptr) {  // flyback may differ from segment to segment
    scan.volume_records = p.plan->volume_records;
    line = std::max<int64_t>(1, scan.volume_records / std::ssize(p.plan->kind[0].segments));
  }
  if (scan.volume_records > kMostVolumeRecords) {
    return InvalidField(FieldsOf(p.kind) + "bscans_per_volume",
                        absl::StrCat("makes ", scan.volume_records, " records a volume; allowed ", kMostVolumeRecords));
  }
  const int64_t record_bytes = a.SourceRecordBytes() * a.record_average;
  if (a.records_per_block == 0) {
    // About 4 MiB, whole lines, and no more than a volume, so that small volumes come out at once.
    const int64_t lines = std::max<int64_t>(1, (4 << 20) / (record_bytes * line));
    a.records_per_block = std::min({lines * line, scan.volume_records, kMostBlockBytes / record_bytes});
  }
  OCTAVO_RETURN_IF_ERROR(
      InRange("acquisition.records_per_block", a.records_per_block, 1, std::min(kMostBlockBytes / record_bytes, kMostBlockRecords)));
  if (a.ring_blocks == 0) a.ring_blocks = 8;
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.ring_blocks", a.ring_blocks, 3, 1024));
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.record_rate_hz", a.record_rate_hz, 0.0, 1e9));
  a.record_rate_hz = scan.source.record_rate_hz;
  return absl::OkStatus();
}

absl::Status ResolveK(ResolvedScan& scan, std::vector<double>* wavelength_nm) {
  Processing& p = scan.spec.processing;
  if (p.k_mode == KMode::kDefault) {
    p.k_mode = scan.source.wavelength_nm.empty() ? KMode::kNone : KMode::kFromSource;
  }
  SpectralConfig& c = scan.chain;
  const int64_t samples = scan.spec.acquisition.samples_per_record;
  switch (p.k_mode) {
    case KMode::kDefault:
    case KMode::kNone: break;
    case KMode::kIndex:
      if (p.k_index.size() < 16 || p.k_index.size() > 65536) {
        return InvalidField("processing.k_linearisation.index", absl::StrCat("has ", p.k_index.size(), " values; allowed 16 to 65536"));
      }
      c.k_index = p.k_index;
      break;
    case KMode::kPolynomial: {
      auto index = KIndexFromPolynomial(p.k_polynomial, samples);
      if (!index.ok()) return InRequestWords(index.status());
      c.k_index = *std::move(index);
      break;
    }
    case KMode::kFromSource:
      if (scan.source.wavelength_nm.empty()) {
        return InvalidField("processing.k_linearisation.from_source", "only a simulated source knows its wavelengths; give them");
      }
      *wavelength_nm = scan.source.wavelength_nm;
      break;
    case KMode::kWavelength:
      if (static_cast<int64_t>(p.k_wavelength_nm.size()) != samples) {
        return InvalidField("processing.k_linearisation.wavelength_nm", absl::StrCat("has ", p.k_wavelength_nm.size(), " values; needs ", samples));
      }
      for (size_t j = 0; j < p.k_wavelength_nm.size(); ++j) {
        // Positions depend on ratios alone: a wrong unit would spoil nothing but the axial spacing, unseen.
        if (p.k_wavelength_nm[j] >= kLeastWavelengthNm && p.k_wavelength_nm[j] <= kMostWavelengthNm) continue;
        return InvalidField("processing.k_linearisation.wavelength_nm",
                            absl::StrCat("is ", p.k_wavelength_nm[j], " at ", j, "; allowed ", kLeastWavelengthNm, " to ", kMostWavelengthNm,
                                         " (nanometres: 0.84 um is 840)"));
      }
      *wavelength_nm = p.k_wavelength_nm;
      break;
  }
  if (!wavelength_nm->empty()) {
    auto index = KIndexFromWavelength(*wavelength_nm);
    if (!index.ok()) return InRequestWords(index.status());
    c.k_index = *std::move(index);
  }
  if (p.k_interpolation == KInterpolation::kDefault) p.k_interpolation = KInterpolation::kCubic;
  if (p.k_mode == KMode::kNone) {
    c.interpolation = math::Interpolation::kNone;
  } else {
    c.interpolation = p.k_interpolation == KInterpolation::kLinear  ? math::Interpolation::kLinear
                      : p.k_interpolation == KInterpolation::kCubic ? math::Interpolation::kCubic
                                                                    : math::Interpolation::kLanczos;
  }
  return absl::OkStatus();
}

// What a file holds and the scan does not take, or takes several times: mostly a wrong length or number of records.
void CompareWithFile(ResolvedScan* scan) {
  const int64_t holds = scan->source.file_records, volumes = scan->spec.pattern.volumes;
  const auto* replay = std::get_if<ReplaySource>(&scan->spec.source);
  if (holds == 0 || replay == nullptr) return;
  const int64_t volume = scan->volume_records * scan->spec.acquisition.record_average;  // in the file's records
  const auto warn = [&](auto... words) { scan->warnings.push_back(absl::StrCat("The file holds ", holds, " records", words...)); };
  const bool endless = replay->loops == 0, once = replay->loops == 1;
  if (volumes > 0 && holds > volumes * volume) {
    const int64_t left_out = holds - volumes * volume;
    const int64_t record_bytes = scan->spec.acquisition.SourceRecordBytes();
    const bool header = scan->source.first_differs && left_out <= std::max<int64_t>(1, (int64_t{1} << 20) / record_bytes);
    warn("; the scan takes ", volumes * volume, " of them: ", left_out, left_out == 1 ? " is left out." : " are left out.",
         header ? absl::StrCat(" The first record is unlike the next ones: if it is a header, give replay.header_bytes = ",
                               static_cast<int64_t>(replay->header_bytes) + record_bytes, ".")
                : "");
  } else if (volumes > 0 && endless && holds < volumes * volume) {
    warn("; the scan takes ", volumes * volume, ": the file is read again from its beginning.");
  } else if (volumes > 0 && !endless && scan->source.total_records < volumes * volume) {
    warn(once ? "" : absl::StrCat(", read ", replay->loops, " times"), "; the scan would take ", volumes * volume,
         ": it ends early, and its last volume may lack A-scans.");
  } else if (volumes == 0 && holds % volume != 0) {
    warn(", which are ", static_cast<double>(holds) / static_cast<double>(volume), " volumes of ", volume,
         endless ? ": from the second time on, volumes begin at other records." : ": the last volume lacks A-scans.");
  }
}

// The axes of a file may say how its records stand in B-scans and volumes.
void CompareShapes(ResolvedScan* scan) {
  const std::vector<int64_t>& shape = scan->source.file_shape;
  const Pattern& p = scan->spec.pattern;
  if (shape.size() < 2 || shape.size() > 3 || p.kind != PatternKind::kRaster || scan->spec.acquisition.record_average > 1) return;
  const int64_t ascans = shape.back(), bscans = shape[shape.size() - 2];
  const bool of_volume = shape.size() == 3 || p.volumes == 1;  // else the B-scans of several volumes may stand in one row
  const bool fits_ascans = ascans == p.ascans_per_bscan || ascans == p.ascans_per_bscan + p.flyback_records;
  const bool fits_bscans = bscans == p.bscans_per_volume || !of_volume || p.volume_flyback_records > 0;
  if (fits_ascans && fits_bscans) return;
  const bool exchanged = ascans == p.bscans_per_volume && bscans == p.ascans_per_bscan;
  scan->warnings.push_back(absl::StrCat("The file's own shape is ", absl::StrJoin(shape, " x "), " records, B-scans of ", ascans,
                                        " A-scans; the pattern has ", p.bscans_per_volume, " B-scans of ", p.ascans_per_bscan, " A-scans",
                                        exchanged ? ": are bscans_per_volume and ascans_per_bscan exchanged?" : "."));
}

// Which distances of A-scans and B-scans nobody says.
void NoteAssumed(const Pattern& given, ResolvedScan* scan) {
  const bool extents = IsRaster(given) || given.kind == PatternKind::kLissajous;
  const bool radii =
      (IsRadial(given) && given.radius_begin_mm == 0 && given.radius_end_mm == 0) || (given.kind == PatternKind::kSpiral && given.radius_end_mm == 0);
  scan->spacing_assumed[0] = radii || (extents && given.extent_y_mm == 0);
  scan->spacing_assumed[1] = radii || (extents && given.extent_x_mm == 0);
}

// No scanner goes so far, and no microscope is so fine: mostly micrometres or metres that were given as millimetres.
void DoubtExtents(ResolvedScan* scan) {
  constexpr double kMostMm = 100, kLeastPixelUm = 0.2;
  const Pattern& p = scan->spec.pattern;
  const bool extents = IsRaster(p) || p.kind == PatternKind::kLissajous;
  for (const auto& [axis, value] : {std::pair{"x", p.extent_x_mm}, std::pair{"y", p.extent_y_mm}}) {
    if (value <= kMostMm) continue;
    const std::string what = extents ? absl::StrCat(FieldsOf(p.kind), "extent_", axis, "_mm is ", value)
                                     : absl::StrCat("The pattern goes over ", value, " mm along ", axis);
    scan->warnings.push_back(absl::StrCat(what, ", ", value / 1000, " m. If micrometres are meant: in mm they are a thousandth."));
  }
  if (!extents) return;
  const std::tuple<const char*, double, bool, int64_t> axes[] = {{"x", p.extent_x_mm, scan->spacing_assumed[1], p.ascans_per_bscan},
                                                                 {"y", p.extent_y_mm, scan->spacing_assumed[0], p.bscans_per_volume}};
  for (const auto& [axis, value, assumed, places] : axes) {
    const double pixel_um = value * 1e3 / static_cast<double>(IsRaster(p) ? places : p.ascans_per_bscan);
    if (assumed || places < 2 || pixel_um >= kLeastPixelUm) continue;
    scan->warnings.push_back(absl::StrFormat("%sextent_%s_mm is %g, %.3g um from one place to the next. It is in mm: if metres are meant, give %g.",
                                             FieldsOf(p.kind), axis, value, pixel_um, value * 1e3));
  }
}

// What looks at a B-scan as a whole needs enough of it.
absl::Status ResolveBscans(ResolvedScan& scan) {
  SpectralConfig& c = scan.chain;
  Processing& p = scan.spec.processing;
  if (p.fixed_pattern_noise == FixedPatternNoise::kDefault) p.fixed_pattern_noise = FixedPatternNoise::kKeep;
  c.fixed_pattern = p.fixed_pattern_noise == FixedPatternNoise::kMean   ? math::FixedPattern::kMean
                    : p.fixed_pattern_noise == FixedPatternNoise::kKeep ? math::FixedPattern::kNone
                                                                        : math::FixedPattern::kQuietSegment;
  const Pattern& pattern = scan.spec.pattern;
  if (pattern.averaged() && pattern.passes() > 1) {
    if (p.value == ValueKind::kReal || p.value == ValueKind::kComplex) {
      return InvalidField("processing.value", "is REAL or COMPLEX; repeats that are averaged need DB, MAGNITUDE or POWER");
    }
    c.repeats = pattern.passes();
    c.repeat_ascans = pattern.repeat_period * pattern.ascans_per_bscan;
  }
  if (c.background != math::Background::kBscan && c.fixed_pattern == math::FixedPattern::kNone) return absl::OkStatus();
  c.bscan_records = pattern.ascans_per_bscan;
  const int64_t least = c.fixed_pattern == math::FixedPattern::kQuietSegment ? 2 * math::kFixedPatternSegments : 2;
  if (c.bscan_records >= least) return absl::OkStatus();
  const bool noise = c.fixed_pattern != math::FixedPattern::kNone;
  return InvalidField(noise ? "processing.fixed_pattern_noise" : "processing.background.mode",
                      absl::StrCat("needs at least ", least, " A-scans per B-scan; the pattern has ", c.bscan_records));
}

// A B-scan with its flyback, the first one where they differ; of a path a stored row of it.
int64_t BscanRecords(const ResolvedScan& scan) {
  const Pattern& p = scan.spec.pattern;
  if (p.plan == nullptr) return p.ascans_per_bscan + p.flyback_records;
  const auto& segments = p.plan->kind[0].segments;
  if (segments[0].ascans > p.ascans_per_bscan) return p.ascans_per_bscan;
  return segments.size() > 1 ? segments[1].first_record - segments[0].first_record : scan.volume_records;
}

// Type and levels of the voxels, and which of them are shown as black and white.
void ResolveStored(ResolvedScan& scan) {
  Processing& p = scan.spec.processing;
  SpectralConfig& c = scan.chain;
  const StoredForm form = DefaultForm(c, scan.spec.acquisition.adc_bits, p.dtype_given, p.dtype);
  p.dtype = form.dtype;
  p.dtype_given = true;
  if (!p.has_levels && form.has_levels) {
    p.has_levels = true;
    p.level_lo = form.level_lo;
    p.level_hi = form.level_hi;
  }
  c.output = p.dtype;
  c.has_levels = p.has_levels;
  c.level_lo = p.level_lo;
  c.level_hi = p.level_hi;
  if (!c.has_levels) {
    scan.display_lo = form.shown_lo;
    scan.display_hi = form.shown_hi;
    return;
  }
  const double bottom = static_cast<double>(LowestOf(c.output)), top = IsInteger(c.output) ? static_cast<double>(HighestOf(c.output)) : 1;
  scan.display_lo = bottom;
  scan.display_hi = top;
  // Show the client's own levels whole; default levels hold more than is worth showing.
  if (!form.has_levels || c.level_lo != form.level_lo || c.level_hi != form.level_hi) return;
  const auto stored = [&](double value) {
    const double lo = static_cast<double>(c.level_lo), share = (value - lo) / (static_cast<double>(c.level_hi) - lo);
    return std::clamp(std::round(bottom + share * (top - bottom)), bottom, top);
  };
  if (stored(form.shown_lo) >= stored(form.shown_hi)) return;
  scan.display_lo = stored(form.shown_lo);
  scan.display_hi = stored(form.shown_hi);
}

absl::Status ResolveProcessing(ResolvedScan& scan) {
  Processing& p = scan.spec.processing;
  SpectralConfig& c = scan.chain;
  c = SpectralConfig();
  const Acquisition& a = scan.spec.acquisition;
  c.samples_per_record = a.samples_per_record;
  c.raw_type = a.raw_type;
  c.packing = a.packing;
  c.channels = a.channels;
  c.channel = a.channel;
  c.record_average = a.record_average;
  c.volume_records = scan.volume_records;
  c.max_records_per_block = UploadRecords(scan.spec, scan.volume_records);
  if (p.background == BackgroundMode::kDefault) p.background = BackgroundMode::kRolling;
  c.background = p.background == BackgroundMode::kNone     ? math::Background::kNone
                 : p.background == BackgroundMode::kStatic ? math::Background::kStatic
                 : p.background == BackgroundMode::kBscan  ? math::Background::kBscan
                                                           : math::Background::kRolling;
  if (p.background == BackgroundMode::kStatic) {
    c.background_spectrum = p.background_spectrum;
  } else if (!p.background_spectrum.empty()) {
    return InvalidField("processing.background.spectrum", "is given; it needs mode STATIC");
  }
  if (p.background == BackgroundMode::kRolling) {
    if (p.background_group_records == 0) {  // it waits on the device until it is whole
      p.background_group_records =
          std::min({DefaultGroupRecords(BscanRecords(scan), scan.volume_records), RollingShape::kMostRecords, kMostBlockBytes / RecordBytes(c)});
    }
    c.background_group_records = p.background_group_records;
    c.background_window_records = p.background_window_records;
  }
  OCTAVO_RETURN_IF_ERROR(ResolveBscans(scan));
  std::vector<double> wavelength_nm;
  OCTAVO_RETURN_IF_ERROR(ResolveK(scan, &wavelength_nm));
  const int64_t n = c.k_index.empty() ? a.samples_per_record : static_cast<int64_t>(c.k_index.size());
  if (c.k_index.size() > 1 && c.k_index.front() == c.k_index.back()) {
    return InvalidField(p.k_mode == KMode::kPolynomial ? "processing.k_linearisation.polynomial" : "processing.k_linearisation.index",
                        absl::StrCat("gives the same position, ", c.k_index.front(), ", for all ", n, " samples; allowed are positions that ascend"));
  }
  if (!p.window_values.empty() && p.window != 0) return InvalidField("processing.window_values", "and window are both given; allowed is one");
  OCTAVO_RETURN_IF_ERROR(InRange("processing.window", int64_t{p.window}, 0, 1 + static_cast<int64_t>(WindowKind::kFlatTop)));
  if (p.window_values.empty() && p.window == 0) p.window = 1 + static_cast<int>(WindowKind::kHann);
  c.window = p.window_values.empty() ? MakeWindow(static_cast<WindowKind>(p.window - 1), n) : p.window_values;
  if (std::ssize(p.window_values) == n && std::all_of(p.window_values.begin(), p.window_values.end(), [](float w) { return w == 0; })) {
    return InvalidField("processing.window_values", absl::StrCat("is 0 at all ", n, " samples; allowed is a window that lets something through"));
  }
  const bool polynomial = p.dispersion_a2 != 0 || p.dispersion_a3 != 0;
  for (const auto& [name, value] : {std::pair{"a2", p.dispersion_a2}, std::pair{"a3", p.dispersion_a3}}) {
    if (!std::isfinite(value)) return InvalidField(absl::StrCat("processing.dispersion.", name), absl::StrCat("is ", value, "; allowed is a finite number"));
  }
  if (polynomial && !p.dispersion_phase.empty()) return InvalidField("processing.dispersion.phase", "and a2, a3 are both given; allowed is one");
  c.phase_rad = polynomial ? MakeDispersionPhase(p.dispersion_a2, p.dispersion_a3, n) : p.dispersion_phase;
  if (p.fft_length == 0) p.fft_length = n;
  c.fft_length = p.fft_length;
  c.first_bin = p.first_bin;
  if (p.depth == 0 && p.first_bin >= p.fft_length / 2 && p.first_bin < p.fft_length) {
    return InvalidField("processing.depth", absl::StrCat("is not given and fft_length / 2 - first_bin is ", p.fft_length / 2 - p.first_bin,
                                                         "; allowed 1 to ", p.fft_length - p.first_bin));
  }
  if (p.depth == 0) p.depth = std::max<int64_t>(p.fft_length / 2 - p.first_bin, 1);
  c.depth = p.depth;
  if (p.value == ValueKind::kDefault) p.value = ValueKind::kDb;
  c.value = static_cast<math::Value>(static_cast<int>(p.value) - 1);
  ResolveStored(scan);

  OCTAVO_RETURN_IF_ERROR(InRange("processing.axial_spacing_um", p.axial_spacing_um, 0.0, 1e6));
  if (p.refractive_index == 0) p.refractive_index = 1;
  OCTAVO_RETURN_IF_ERROR(InRange("processing.refractive_index", p.refractive_index, 1.0, 5.0));
  double axial = p.axial_spacing_um;
  scan.spacing_assumed[2] = axial == 0 && wavelength_nm.empty();
  if (scan.spacing_assumed[2]) axial = 1;
  if (axial == 0) axial = AxialSpacingUm(wavelength_nm, p.fft_length, p.refractive_index);
  scan.spacing_um[2] = axial;

  Products& products = scan.spec.products;
  if (products.angiography != 0 && scan.spec.pattern.repeats() < 2) {
    return InvalidField("products.angiography",
                        absl::StrCat("needs a repeated pattern of at least 2 repeats; the pattern is ", Name(scan.spec.pattern.kind)));
  }
  if (products.angiography != 0 && c.output != DType::kU8 && c.output != DType::kU16 && c.output != DType::kF32) {
    return InvalidField("products.angiography", absl::StrCat("needs voxels of u8, u16 or f32; they are ", Info(c.output).name));
  }
  OCTAVO_RETURN_IF_ERROR(InRange("products.slab_begin_um", products.slab_begin_um, 0.0, 1e9));
  OCTAVO_RETURN_IF_ERROR(InRange("products.slab_end_um", products.slab_end_um, 0.0, 1e9));
  if (products.slab_begin_um > 0 || products.slab_end_um > 0) {
    const auto to_sample = [&](double um) {  // clamped before it becomes an integer
      return static_cast<int64_t>(std::min(std::round(um / axial - static_cast<double>(p.first_bin)), 1e9));
    };
    c.slab_begin = std::max<int64_t>(0, to_sample(products.slab_begin_um));
    c.slab_end = products.slab_end_um == 0 ? c.depth : to_sample(products.slab_end_um);
    if (c.slab_end > c.depth) c.slab_end = c.depth;
    if (c.slab_begin >= c.slab_end) {
      return InvalidField("products.slab_end_um", absl::StrCat("with slab_begin_um leaves no depth sample between ", products.slab_begin_um, " and ",
                                                               products.slab_end_um, " um of the kept range"));
    }
  }
  OCTAVO_RETURN_IF_ERROR(InRequestWords(SpectralProcessor::Validate(c)));
  for (std::string& doubt : DoubtsOfProcessing(scan)) scan.warnings.push_back(std::move(doubt));
  return absl::OkStatus();
}

absl::Status ResolveRetention(ScanSpec& spec) {
  Retention& r = spec.retention;
  const bool counted = spec.pattern.volumes > 0;
  if (r.mode == RetentionMode::kDefault) r.mode = counted ? RetentionMode::kCapture : RetentionMode::kLive;
  if (r.disposition == Disposition::kDefault) r.disposition = Disposition::kAsk;
  if (r.on_tier_full == OnFull::kDefault) r.on_tier_full = r.mode == RetentionMode::kCapture ? OnFull::kStopAtVolume : OnFull::kDropNew;
  if (Spills(r.on_tier_full)) return InvalidField("retention.on_tier_full", "is a tier itself; allowed STOP_AT_VOLUME, DROP_NEW");
  OCTAVO_RETURN_IF_ERROR(InRange("retention.keep_last", r.keep_last, 0, kMostHoldSlots));
  if (r.keep_last > 0 && (r.mode != RetentionMode::kLive || r.disposition != Disposition::kAsk)) {
    return InvalidField("retention.keep_last",
                        "is for LIVE scans with the disposition ASK: CAPTURE keeps every volume, AUTO_COMMIT and AUTO_DISCARD none");
  }
  if (r.ttl_seconds != 0) OCTAVO_RETURN_IF_ERROR(InRange("retention.ttl_seconds", r.ttl_seconds, 1.0, 31536000.0));
  if (r.ttl_warning_seconds == 0) r.ttl_warning_seconds = std::min(60.0, r.ttl_seconds / 2);
  OCTAVO_RETURN_IF_ERROR(InRange("retention.ttl_warning_seconds", r.ttl_warning_seconds, 0.0, r.ttl_seconds / 2));
  if (spec.session.empty() && r.orphan != Orphan::kDefault && r.orphan != Orphan::kKeep) {
    return InvalidField("retention.orphan",
                        "says what follows when the client is gone; that is known of clients with a session only (session_secret)");
  }
  if (r.orphan == Orphan::kDefault) r.orphan = Orphan::kKeep;
  if (r.on_full == OnFull::kDefault) r.on_full = r.mode == RetentionMode::kCapture ? OnFull::kStopAtVolume : OnFull::kDropNew;
  if (r.hold_slots == 0) {
    // A capture holds all it makes; what is committed as it completes needs but a few.
    const bool all = r.mode == RetentionMode::kCapture && counted && r.disposition == Disposition::kAsk && !Spills(r.on_full);
    if (all && spec.pattern.volumes > kMostHoldSlots) {
      return InvalidField("retention.hold_slots",
                          absl::StrCat("is not given and all ", spec.pattern.volumes, " volumes would be held; allowed 1 to ", kMostHoldSlots));
    }
    r.hold_slots = r.disposition == Disposition::kAutoDiscard ? 2 : all ? spec.pattern.volumes : 4;
  }
  OCTAVO_RETURN_IF_ERROR(InRange("retention.hold_slots", r.hold_slots, 1, kMostHoldSlots));
  if (spec.overrun == Overrun::kDefault) spec.overrun = r.mode == RetentionMode::kCapture ? Overrun::kFailScan : Overrun::kDropBlock;
  if (r.disposition == Disposition::kAutoCommit && r.auto_commit.destination.empty()) {
    return InvalidField("retention.auto_commit.destination", "is empty; AUTO_COMMIT needs one, for example \"{title}_{index:05}\"");
  }
  return absl::OkStatus();
}

// Where records go within a device's part is written down for every pattern.
absl::Status ResolveStripes(ResolvedScan& scan) {
  ScanSpec& spec = scan.spec;
  if (spec.chains != nullptr) return InvalidField("spread.striped", "is set with chains: operations work on whole volumes; allowed is one of them");
  if (spec.products.angiography != 0) {
    return InvalidField("spread.striped", "is set with products.angiography: repeats may lie on different devices; allowed is one of them");
  }
  if (spec.pattern.plan != nullptr) return absl::OkStatus();
  auto plan = MakePlan(spec.pattern, RecordRateHz(spec));
  if (!plan.ok()) {
    return InvalidField("spread.striped", absl::StrCat("needs to know the place of each record: ", plan.status().message()));
  }
  spec.pattern.plan = std::make_shared<const PatternPlan>(*std::move(plan));
  return absl::OkStatus();
}

absl::Status SetGeometry(ResolvedScan& scan) {
  const Pattern& p = scan.spec.pattern;
  scan.shape[0] = p.rows();
  scan.shape[1] = p.ascans_per_bscan;
  scan.shape[2] = scan.chain.depth;
  SpacingUm(p, &scan.spacing_um[0], &scan.spacing_um[1]);
  const int64_t ascan_bytes = scan.chain.depth * SizeOf(scan.chain.output);
  if (scan.shape[0] * scan.shape[1] > kMostVolumeBytes / ascan_bytes) {
    return InvalidField(FieldsOf(p.kind) + "bscans_per_volume",
                        absl::StrCat("makes a volume of more than ", kMostVolumeBytes, " bytes (", scan.shape[0], " x ", scan.shape[1],
                                     " A-scans of ", ascan_bytes, " bytes)"));
  }
  scan.volume_bytes = scan.shape[0] * scan.shape[1] * ascan_bytes;
  if (scan.spec.spread.striped) OCTAVO_RETURN_IF_ERROR(ResolveStripes(scan));
  if (scan.spec.retention.hold_raw && scan.spec.spread.given) {
    return InvalidField("retention.hold_raw", "is set with spread: raw spectra are held on one device; allowed is one of them");
  }
  if (scan.spec.retention.hold_raw && scan.volume_records > kMostVolumeBytes / RecordBytes(scan.chain)) {
    return InvalidField("retention.hold_raw", absl::StrCat("makes a raw volume of more than ", kMostVolumeBytes, " bytes (", scan.volume_records,
                                                           " records of ", RecordBytes(scan.chain), " bytes)"));
  }
  return absl::OkStatus();
}

bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= 63 && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos;
}

absl::Status ResolveQueue(ResolvedScan& scan) {
  ScanSpec& spec = scan.spec;
  if (!spec.queue.name.empty() && !IsName(spec.queue.name)) {
    return InvalidField("queue.name", absl::StrCat("is '", spec.queue.name, "'; allowed are 1 to 63 of a-z 0-9 _ . -"));
  }
  if (spec.queue.insert != QueueInsert::kDefault && spec.queue.name.empty()) return InvalidField("queue.name", "is empty; insert needs a queue");
  if (spec.markers.size() > 16) return InvalidField("markers", absl::StrCat("has ", spec.markers.size(), " markers; allowed 16"));
  for (size_t i = 0; i < spec.markers.size(); ++i) {
    MarkerRule& marker = spec.markers[i];
    const std::string at = absl::StrCat("markers[", i, "].");
    if (marker.name.empty() || marker.name.size() > 63) {
      return InvalidField(at + "name", absl::StrCat("has ", marker.name.size(), " characters; allowed 1 to 63"));
    }
    // A marker for every record would be more events than anybody can take: at least 64 records apart.
    const int64_t unit = marker.at == MarkerAt::kVolumeStart  ? scan.volume_records
                         : marker.at == MarkerAt::kBscanStart ? spec.pattern.ascans_per_bscan + spec.pattern.flyback_records
                                                              : 1;
    const int64_t least = std::max<int64_t>(1, 64 / unit);
    if (marker.every == 0) marker.every = least;
    OCTAVO_RETURN_IF_ERROR(InRange(at + "every", marker.every, least, (int64_t{1} << 32) - 1));
    if (const int64_t volumes = spec.pattern.volumes; volumes > 0) {
      const int64_t segments = spec.pattern.plan == nullptr ? spec.pattern.bscans_per_volume : std::ssize(spec.pattern.plan->kind[0].segments);
      const int64_t places = volumes * (marker.at == MarkerAt::kVolumeStart  ? 1
                                        : marker.at == MarkerAt::kBscanStart ? segments
                                                                             : scan.volume_records);
      OCTAVO_RETURN_IF_ERROR(InRange(at + "offset", marker.offset, 0, places - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t UploadRecords(const ScanSpec& spec, int64_t volume_records) {
  const Acquisition& a = spec.acquisition;
  const int64_t block_bytes = a.records_per_block * a.SourceRecordBytes() * std::max<int64_t>(1, a.record_average);
  const int64_t blocks = std::min((kGatheredBytes + block_bytes - 1) / block_bytes, volume_records / a.records_per_block);
  return a.records_per_block * std::max<int64_t>(1, blocks);
}

absl::Status AtField(const std::string& prefix, const absl::Status& status) {
  const ErrorInfo info = InfoOf(status);
  if (status.ok() || info.field.empty()) return status;
  return WithInfo(absl::Status(status.code(), absl::StrCat(prefix, status.message())),
                  {.reason = info.reason, .field = absl::StrCat(prefix, info.field), .numbers = info.numbers});
}

double RecordRateHz(const ScanSpec& spec) {
  const auto* replay = std::get_if<ReplaySource>(&spec.source);
  const double rate = spec.acquisition.record_rate_hz > 0                    ? spec.acquisition.record_rate_hz
                      : replay != nullptr                                    ? replay->rate_hz
                      : std::holds_alternative<SimulatedSource>(spec.source) ? 100e3
                                                                             : 0;
  return rate / static_cast<double>(std::max<int64_t>(1, spec.acquisition.record_average));
}

absl::StatusOr<ResolvedScan> ResolveScan(const ScanSpec& spec, const std::vector<std::string>& replay_roots) {
  ResolvedScan scan;
  scan.spec = spec;
  if (std::holds_alternative<std::monostate>(spec.source)) {
    return InvalidField("source", "is not given; allowed are simulated, replay, push, camera, ring");
  }
  Acquisition& a = scan.spec.acquisition;
  if (a.channels == 0) a.channels = 1;
  if (a.record_average == 0) a.record_average = 1;
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.channels", a.channels, 1, 16));
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.channel", a.channel, 0, a.channels - 1));
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.record_average", a.record_average, 1, 256));
  OCTAVO_RETURN_IF_ERROR(ResolvePattern(scan.spec.pattern, RecordRateHz(scan.spec)));
  OCTAVO_ASSIGN_OR_RETURN(scan.source, InspectSource(spec, replay_roots));
  if (auto* simulated = std::get_if<SimulatedSource>(&scan.spec.source)) *simulated = WithDefaults(*simulated, scan.source.raw_type);
  if (auto* push = std::get_if<PushSource>(&scan.spec.source)) *push = WithDefaults(*push);
  if (auto* camera = std::get_if<CameraSource>(&scan.spec.source)) *camera = WithDefaults(*camera);
  OCTAVO_RETURN_IF_ERROR(ResolveAcquisition(scan));
  if (std::holds_alternative<RingSource>(scan.spec.source)) OCTAVO_RETURN_IF_ERROR(ResolveRing(&scan.spec, scan.volume_records));
  scan.warnings.insert(scan.warnings.end(), scan.source.warnings.begin(), scan.source.warnings.end());
  CompareWithFile(&scan);
  CompareShapes(&scan);
  NoteAssumed(spec.pattern, &scan);
  DoubtExtents(&scan);
  OCTAVO_RETURN_IF_ERROR(ResolveQueue(scan));
  OCTAVO_RETURN_IF_ERROR(ResolveProcessing(scan));
  OCTAVO_RETURN_IF_ERROR(ResolveRetention(scan.spec));
  OCTAVO_RETURN_IF_ERROR(InRange("products.preview_rate_hz", scan.spec.products.preview_rate_hz, -1e9, 1e6));
  if (scan.spec.products.preview_rate_hz == 0) scan.spec.products.preview_rate_hz = 10;
  OCTAVO_RETURN_IF_ERROR(SetGeometry(scan));
  return scan;
}

ScanSpec SpecAsTold(const ResolvedScan& scan) {
  ScanSpec spec = scan.spec;
  Pattern& p = spec.pattern;
  const bool extents = IsRaster(p) || p.kind == PatternKind::kLissajous;
  if (extents && scan.spacing_assumed[0]) p.extent_y_mm = 0;
  if (extents && scan.spacing_assumed[1]) p.extent_x_mm = 0;
  if (!extents && scan.spacing_assumed[0]) p.radius_end_mm = 0;
  if (IsRadial(p) && scan.spacing_assumed[0]) p.radius_begin_mm = 0;
  return spec;
}

std::string DescribeSource(const ResolvedScan& scan) {
  std::string text = "source: ";
  if (const auto* simulated = std::get_if<SimulatedSource>(&scan.spec.source)) absl::StrAppend(&text, "simulated with seed ", simulated->seed, ",");
  if (const auto* replay = std::get_if<ReplaySource>(&scan.spec.source)) {
    absl::StrAppend(&text, "replay of '", replay->path, "', which holds ", scan.source.file_records);
  }
  if (std::holds_alternative<PushSource>(scan.spec.source)) text += "push, a client sends";
  if (const auto* camera = std::get_if<CameraSource>(&scan.spec.source)) absl::StrAppend(&text, "camera ", camera->id, ",");
  if (std::holds_alternative<RingSource>(scan.spec.source)) text += "ring, a process on this host writes";
  const double wanted =  // may be more than an integer holds
      static_cast<double>(scan.spec.pattern.volumes) * static_cast<double>(scan.volume_records * scan.spec.acquisition.record_average);
  return absl::StrCat(text, " records of ", scan.source.samples_per_record, " samples (", Info(scan.source.raw_type).name,
                      scan.source.packing == math::Packing::kNone ? "" : ", 12 bits packed", "); the scan takes ",
                      wanted == 0 ? "what comes" : absl::StrFormat("%.0f", wanted), "\n");
}

std::string DescribeSpacing(const ResolvedScan& scan) {
  static constexpr const char* kAxes[] = {"y", "x", "z"};
  std::string text = "spacing:", assumed;
  for (int i = 0; i < 3; ++i) {
    absl::StrAppend(&text, i == 0 ? " " : ", ", kAxes[i], " ", absl::StrFormat("%.4g", scan.spacing_um[i]), " um");
    if (scan.spacing_assumed[i]) absl::StrAppend(&assumed, assumed.empty() ? "" : ", ", kAxes[i]);
  }
  const bool lateral = scan.spacing_assumed[0] || scan.spacing_assumed[1];
  if (!assumed.empty()) {
    absl::StrAppend(&text, " (", assumed, ": assumed, the request does not say ", lateral ? "the extent" : "",
                    lateral && scan.spacing_assumed[2] ? ", " : "", scan.spacing_assumed[2] ? "the wavelengths or axial_spacing_um" : "", ")");
  }
  return text + "\n";
}

absl::StatusOr<ResolvedScan> ResolveProcessingAnew(const ResolvedScan& current, const Processing& processing) {
  ResolvedScan scan = current;
  scan.spec.processing = processing;
  scan.warnings.clear();  // those of the request before
  OCTAVO_RETURN_IF_ERROR(ResolveProcessing(scan));
  OCTAVO_RETURN_IF_ERROR(SetGeometry(scan));
  if (std::string left_out = DescribeLeftOut(current, processing, scan); !left_out.empty()) {
    scan.warnings.insert(scan.warnings.begin(), std::move(left_out));
  }
  return scan;
}

absl::StatusOr<ResolvedScan> ResolveUpdate(const ResolvedScan& current, const Processing& processing) {
  Processing kept = processing;
  if (!kept.dtype_given && (kept.value == ValueKind::kComplex) == (current.chain.output == DType::kC64)) {
    kept.dtype = current.chain.output;
    kept.dtype_given = true;
  }
  OCTAVO_ASSIGN_OR_RETURN(ResolvedScan scan, ResolveProcessingAnew(current, kept));
  if (scan.chain.depth != current.chain.depth) {
    return InvalidField("processing.depth", absl::StrCat("would become ", scan.chain.depth, "; a running scan keeps its ", current.chain.depth));
  }
  if (scan.chain.output != current.chain.output) {
    return InvalidField("processing.dtype",
                        absl::StrCat("would become ", Info(scan.chain.output).name, "; a running scan keeps its ", Info(current.chain.output).name));
  }
  return scan;
}

}  // namespace octavo::engine
