#include "server/processing/resolve_processing.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "gpu/spectral/spectral_design.h"
#include "gpu/spectral/spectral_span.h"
#include "server/base/errors.h"
#include "server/pattern/plan.h"
#include "server/processing/processing_doubts.h"
#include "server/processing/stored_form.h"

namespace octavo::processing {
namespace {

constexpr int64_t kMostVolumeBytes = int64_t{1} << 40;
constexpr double kLeastWavelengthNm = 100;
constexpr double kMostWavelengthNm = 20'000;

// The chain's own names for its fields → the request's.
absl::Status InRequestWords(const absl::Status& status) {
  if (status.ok()) return status;
  ErrorInfo info = InfoOf(status);
  const bool acquisition = info.field == "samples_per_record" || info.field == "raw_type" ||
                           info.field == "channels" || info.field == "channel" ||
                           info.field == "record_average";
  const std::string field = absl::StrCat(acquisition ? "acquisition." : "processing.", info.field);
  const std::string message(status.message().substr(info.field.size()));
  return WithInfo(absl::Status(status.code(), absl::StrCat(field, message)),
                  {.reason = info.reason, .field = field, .numbers = info.numbers});
}

absl::Status ResolveK(model::ResolvedScan& scan, std::vector<double>* wavelength_nm) {
  model::Processing& p = scan.spec.processing;
  if (p.k_mode == model::KMode::kDefault) {
    p.k_mode = scan.source.wavelength_nm.empty() ? model::KMode::kNone : model::KMode::kFromSource;
  }
  SpectralConfig& c = scan.chain;
  const int64_t samples = scan.spec.acquisition.samples_per_record;
  switch (p.k_mode) {
    case model::KMode::kDefault:
    case model::KMode::kNone: break;
    case model::KMode::kIndex:
      if (p.k_index.size() < 16 || p.k_index.size() > 65536) {
        return InvalidField(
            "processing.k_linearisation.index",
            absl::StrCat("has ", p.k_index.size(), " positions; allowed 16 to 65536"));
      }
      c.k_index = p.k_index;
      break;
    case model::KMode::kPolynomial: {
      auto index = KIndexFromPolynomial(p.k_polynomial, samples);
      if (!index.ok()) return InRequestWords(index.status());
      c.k_index = *std::move(index);
      break;
    }
    case model::KMode::kFromSource:
      if (scan.source.wavelength_nm.empty()) {
        return InvalidField(
            "processing.k_linearisation.from_source",
            "is true, and this source does not know its wavelengths; allowed with a simulated "
            "source; give k_linearisation.wavelength_nm");
      }
      *wavelength_nm = scan.source.wavelength_nm;
      break;
    case model::KMode::kWavelength:
      if (static_cast<int64_t>(p.k_wavelength_nm.size()) != samples) {
        return InvalidField("processing.k_linearisation.wavelength_nm",
                            absl::StrCat("has ", p.k_wavelength_nm.size(), " values; allowed ",
                                         samples, ", one for each sample"));
      }
      for (size_t j = 0; j < p.k_wavelength_nm.size(); ++j) {
        // Positions depend on ratios only, so a wrong unit would silently change the axial spacing
        // and nothing else.
        if (p.k_wavelength_nm[j] >= kLeastWavelengthNm && p.k_wavelength_nm[j] <= kMostWavelengthNm)
          continue;
        return InvalidField("processing.k_linearisation.wavelength_nm",
                            absl::StrCat("is ", p.k_wavelength_nm[j], " at index ", j, "; allowed ",
                                         kLeastWavelengthNm, " to ", kMostWavelengthNm,
                                         " nanometres (0.84 um is 840)"));
      }
      *wavelength_nm = p.k_wavelength_nm;
      break;
  }
  if (!wavelength_nm->empty()) {
    auto index = KIndexFromWavelength(*wavelength_nm);
    if (!index.ok()) return InRequestWords(index.status());
    c.k_index = *std::move(index);
  }
  if (p.k_interpolation == model::KInterpolation::kDefault)
    p.k_interpolation = model::KInterpolation::kCubic;
  if (p.k_mode == model::KMode::kNone) {
    c.interpolation = math::Interpolation::kNone;
  } else {
    c.interpolation =
        p.k_interpolation == model::KInterpolation::kLinear  ? math::Interpolation::kLinear
        : p.k_interpolation == model::KInterpolation::kCubic ? math::Interpolation::kCubic
                                                             : math::Interpolation::kLanczos;
  }
  return absl::OkStatus();
}

// Checks that B-scans have enough A-scans for the operations on a whole B-scan.
absl::Status ResolveBscans(model::ResolvedScan& scan) {
  SpectralConfig& c = scan.chain;
  model::Processing& p = scan.spec.processing;
  if (p.fixed_pattern_noise == model::FixedPatternNoise::kDefault)
    p.fixed_pattern_noise = model::FixedPatternNoise::kKeep;
  c.fixed_pattern = p.fixed_pattern_noise == model::FixedPatternNoise::kMean
                        ? math::FixedPattern::kMean
                    : p.fixed_pattern_noise == model::FixedPatternNoise::kKeep
                        ? math::FixedPattern::kNone
                        : math::FixedPattern::kQuietSegment;
  const pattern::Pattern& pattern = scan.spec.pattern;
  if (pattern.averaged() && pattern.passes() > 1) {
    if (p.value == model::ValueKind::kReal || p.value == model::ValueKind::kComplex) {
      return InvalidField(
          "processing.value",
          "is REAL or COMPLEX, and the pattern averages its repeats; allowed DB, MAGNITUDE, POWER");
    }
    c.repeats = pattern.passes();
    c.repeat_ascans = pattern.repeat_period * pattern.ascans_per_bscan;
  }
  if (c.background != math::Background::kBscan && c.fixed_pattern == math::FixedPattern::kNone)
    return absl::OkStatus();
  c.bscan_records = pattern.ascans_per_bscan;
  const int64_t least =
      c.fixed_pattern == math::FixedPattern::kQuietSegment ? 2 * math::kFixedPatternSegments : 2;
  if (c.bscan_records >= least) return absl::OkStatus();
  const bool noise = c.fixed_pattern != math::FixedPattern::kNone;
  return InvalidField(noise ? "processing.fixed_pattern_noise" : "processing.background.mode",
                      absl::StrCat("needs B-scans of at least ", least,
                                   " A-scans; those of the pattern have ", c.bscan_records));
}

// The records of a B-scan with its flyback (of the first B-scan if they differ). A path has no
// B-scans: there it counts the records of a stored row.
int64_t BscanRecords(const model::ResolvedScan& scan) {
  const pattern::Pattern& p = scan.spec.pattern;
  if (p.plan == nullptr) return p.ascans_per_bscan + p.flyback_records;
  const auto& segments = p.plan->kind[0].segments;
  if (segments[0].ascans > p.ascans_per_bscan) return p.ascans_per_bscan;
  return segments.size() > 1 ? segments[1].first_record - segments[0].first_record
                             : scan.volume_records;
}

// Resolves type and levels of the voxels, and the values that pictures show as black and white.
void ResolveStored(model::ResolvedScan& scan) {
  model::Processing& p = scan.spec.processing;
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
  const double bottom = static_cast<double>(LowestOf(c.output)),
               top = IsInteger(c.output) ? static_cast<double>(HighestOf(c.output)) : 1;
  scan.display_lo = bottom;
  scan.display_hi = top;
  // Show the client's own levels in full; default levels span more than is worth showing.
  if (!form.has_levels || c.level_lo != form.level_lo || c.level_hi != form.level_hi) return;
  const auto stored = [&](double value) {
    const double lo = static_cast<double>(c.level_lo),
                 share = (value - lo) / (static_cast<double>(c.level_hi) - lo);
    return std::clamp(std::round(bottom + share * (top - bottom)), bottom, top);
  };
  if (stored(form.shown_lo) >= stored(form.shown_hi)) return;
  scan.display_lo = stored(form.shown_lo);
  scan.display_hi = stored(form.shown_hi);
}

// Makes the table that tells the place of each record; every striped pattern needs it.
absl::Status ResolveStripes(model::ResolvedScan& scan) {
  model::ScanSpec& spec = scan.spec;
  if (spec.chains != nullptr)
    return InvalidField(
        "spread.striped",
        "is set together with chains, whose operations need whole volumes on one device; allowed "
        "one of the two");
  if (spec.products.angiography != 0) {
    return InvalidField("spread.striped",
                        "is set together with products.angiography, which needs all repeats on one "
                        "device; allowed one of the two");
  }
  if (spec.pattern.plan != nullptr) return absl::OkStatus();
  auto plan = pattern::MakePlan(spec.pattern, model::RecordRateHz(spec));
  if (!plan.ok()) {
    return InvalidField("spread.striped",
                        absl::StrCat("needs the place of each record, and the server cannot "
                                     "compute it: ",
                                     plan.status().message()));
  }
  spec.pattern.plan = std::make_shared<const pattern::PatternPlan>(*std::move(plan));
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolveProcessing(model::ResolvedScan& scan) {
  model::Processing& p = scan.spec.processing;
  SpectralConfig& c = scan.chain;
  c = SpectralConfig();
  const model::Acquisition& a = scan.spec.acquisition;
  c.samples_per_record = a.samples_per_record;
  c.raw_type = a.raw_type;
  c.packing = a.packing;
  c.channels = a.channels;
  c.channel = a.channel;
  c.record_average = a.record_average;
  c.volume_records = scan.volume_records;
  c.max_records_per_block = model::UploadRecords(scan.spec, scan.volume_records);
  if (p.background == model::BackgroundMode::kDefault)
    p.background = model::BackgroundMode::kRolling;
  c.background = p.background == model::BackgroundMode::kNone     ? math::Background::kNone
                 : p.background == model::BackgroundMode::kStatic ? math::Background::kStatic
                 : p.background == model::BackgroundMode::kBscan  ? math::Background::kBscan
                                                                  : math::Background::kRolling;
  if (p.background == model::BackgroundMode::kStatic) {
    c.background_spectrum = p.background_spectrum;
  } else if (!p.background_spectrum.empty()) {
    return InvalidField("processing.background.spectrum",
                        "is given; allowed with background.mode STATIC");
  }
  if (p.background == model::BackgroundMode::kRolling) {
    if (p.background_group_records == 0) {  // the group stays on the device until it is complete
      p.background_group_records =
          std::min({DefaultGroupRecords(BscanRecords(scan), scan.volume_records),
                    RollingShape::kMostRecords, kMostBlockBytes / RecordBytes(c)});
    }
    c.background_group_records = p.background_group_records;
    c.background_window_records = p.background_window_records;
  }
  OCTAVO_RETURN_IF_ERROR(ResolveBscans(scan));
  std::vector<double> wavelength_nm;
  OCTAVO_RETURN_IF_ERROR(ResolveK(scan, &wavelength_nm));
  const int64_t n =
      c.k_index.empty() ? a.samples_per_record : static_cast<int64_t>(c.k_index.size());
  if (c.k_index.size() > 1 && c.k_index.front() == c.k_index.back()) {
    return InvalidField(p.k_mode == model::KMode::kPolynomial
                            ? "processing.k_linearisation.polynomial"
                            : "processing.k_linearisation.index",
                        absl::StrCat("gives the position ", c.k_index.front(), " for all ", n,
                                     " samples; allowed ascending positions"));
  }
  if (!p.window_values.empty() && p.window != 0)
    return InvalidField("processing.window_values",
                        "is given together with window; allowed one of the two");
  OCTAVO_RETURN_IF_ERROR(InRange("processing.window", int64_t{p.window}, 0,
                                 1 + static_cast<int64_t>(WindowKind::kFlatTop)));
  if (p.window_values.empty() && p.window == 0) p.window = 1 + static_cast<int>(WindowKind::kHann);
  c.window = p.window_values.empty() ? MakeWindow(static_cast<WindowKind>(p.window - 1), n)
                                     : p.window_values;
  if (std::ssize(p.window_values) == n &&
      std::all_of(p.window_values.begin(), p.window_values.end(), [](float w) { return w == 0; })) {
    return InvalidField(
        "processing.window_values",
        absl::StrCat("is 0 at all ", n, " samples; allowed a window with a value other than 0"));
  }
  const bool polynomial = p.dispersion_a2 != 0 || p.dispersion_a3 != 0;
  for (const auto& [name, value] :
       {std::pair{"a2", p.dispersion_a2}, std::pair{"a3", p.dispersion_a3}}) {
    if (!std::isfinite(value))
      return FieldNotAllowed(absl::StrCat("processing.dispersion.", name), value,
                             "a finite number");
  }
  if (polynomial && !p.dispersion_phase.empty())
    return InvalidField("processing.dispersion.phase",
                        "is given together with a2 or a3; allowed the phase, or a2 and a3");
  c.phase_rad =
      polynomial ? MakeDispersionPhase(p.dispersion_a2, p.dispersion_a3, n) : p.dispersion_phase;
  if (p.fft_length == 0) p.fft_length = n;
  c.fft_length = p.fft_length;
  c.first_bin = p.first_bin;
  if (p.depth == 0 && p.first_bin >= p.fft_length / 2 && p.first_bin < p.fft_length) {
    return InvalidField("processing.depth",
                        absl::StrCat("is not given, and its default fft_length / 2 - first_bin is ",
                                     p.fft_length / 2 - p.first_bin, "; give a depth from 1 to ",
                                     p.fft_length - p.first_bin));
  }
  if (p.depth == 0) p.depth = std::max<int64_t>(p.fft_length / 2 - p.first_bin, 1);
  c.depth = p.depth;
  if (p.value == model::ValueKind::kDefault) p.value = model::ValueKind::kDb;
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

  model::Products& products = scan.spec.products;
  if (products.angiography != 0 && scan.spec.pattern.repeats() < 2) {
    return InvalidField("products.angiography",
                        absl::StrCat("needs a pattern with at least 2 repeats; the pattern is ",
                                     Name(scan.spec.pattern.kind)));
  }
  if (products.angiography != 0 && c.output != DType::kU8 && c.output != DType::kU16 &&
      c.output != DType::kF32) {
    return InvalidField("products.angiography",
                        absl::StrCat("needs voxels of u8, u16 or f32; those of this scan are ",
                                     Info(c.output).name));
  }
  OCTAVO_RETURN_IF_ERROR(InRange("products.slab_begin_um", products.slab_begin_um, 0.0, 1e9));
  OCTAVO_RETURN_IF_ERROR(InRange("products.slab_end_um", products.slab_end_um, 0.0, 1e9));
  if (products.slab_begin_um > 0 || products.slab_end_um > 0) {
    if (scan.spacing_assumed[2]) {
      return InvalidField(
          products.slab_begin_um > 0 ? "products.slab_begin_um" : "products.slab_end_um",
          "is in um, and nothing says how many um a depth sample is; allowed with wavelengths (of "
          "the source, or processing.k_linearisation.wavelength_nm) or "
          "processing.axial_spacing_um");
    }
    const auto to_sample = [&](double um) {  // clamped before it becomes an integer
      return static_cast<int64_t>(
          std::min(std::round(um / axial - static_cast<double>(p.first_bin)), 1e9));
    };
    c.slab_begin = std::max<int64_t>(0, to_sample(products.slab_begin_um));
    c.slab_end = products.slab_end_um == 0 ? c.depth : to_sample(products.slab_end_um);
    if (c.slab_end > c.depth) c.slab_end = c.depth;
    if (c.slab_begin >= c.slab_end) {
      return InvalidField(
          "products.slab_end_um",
          absl::StrCat("is ", products.slab_end_um, " um and slab_begin_um is ",
                       products.slab_begin_um, " um; the scan keeps no depth sample between them"));
    }
  }
  OCTAVO_RETURN_IF_ERROR(InRequestWords(SpectralProcessor::Validate(c)));
  for (std::string& doubt : DoubtsOfProcessing(scan)) scan.warnings.push_back(std::move(doubt));
  return absl::OkStatus();
}

absl::Status SetGeometry(model::ResolvedScan& scan) {
  const pattern::Pattern& p = scan.spec.pattern;
  scan.shape[0] = p.rows();
  scan.shape[1] = p.ascans_per_bscan;
  scan.shape[2] = scan.chain.depth;
  pattern::SpacingUm(p, &scan.spacing_um[0], &scan.spacing_um[1]);
  const int64_t ascan_bytes = scan.chain.depth * SizeOf(scan.chain.output);
  if (scan.shape[0] * scan.shape[1] > kMostVolumeBytes / ascan_bytes) {
    return InvalidField(
        pattern::FieldsOf(p.kind) + "bscans_per_volume",
        absl::StrCat("makes a volume of ", scan.shape[0], " x ", scan.shape[1], " A-scans of ",
                     ascan_bytes, " bytes; allowed ", SizeText(kMostVolumeBytes)));
  }
  scan.volume_bytes = scan.shape[0] * scan.shape[1] * ascan_bytes;
  if (scan.spec.spread.striped) OCTAVO_RETURN_IF_ERROR(ResolveStripes(scan));
  if (scan.spec.retention.hold_raw && scan.spec.spread.given) {
    return InvalidField("retention.hold_raw",
                        "is set together with spread, and the server holds raw spectra on one "
                        "device; allowed one of "
                        "the two");
  }
  if (scan.spec.retention.hold_raw &&
      scan.volume_records > kMostVolumeBytes / RecordBytes(scan.chain)) {
    return InvalidField(
        "retention.hold_raw",
        absl::StrCat("makes a raw volume of ", scan.volume_records, " records of ",
                     RecordBytes(scan.chain), " bytes; allowed ", SizeText(kMostVolumeBytes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<model::ResolvedScan> ResolveProcessingAnew(const model::ResolvedScan& current,
                                                          const model::Processing& processing,
                                                          bool whole) {
  model::ResolvedScan scan = current;
  scan.spec.processing = scan.requested = processing;
  scan.warnings.clear();  // the request's own, before resolution
  OCTAVO_RETURN_IF_ERROR(ResolveProcessing(scan));
  OCTAVO_RETURN_IF_ERROR(SetGeometry(scan));
  if (!whole) return scan;
  if (std::string left_out = DescribeLeftOut(current, processing, scan); !left_out.empty())
    scan.warnings.insert(scan.warnings.begin(), std::move(left_out));
  return scan;
}

absl::StatusOr<model::ResolvedScan> ResolveUpdate(const model::ResolvedScan& current,
                                                  const model::Processing& requested, bool whole) {
  model::Processing kept = requested;
  if (!kept.dtype_given &&
      (kept.value == model::ValueKind::kComplex) == (current.chain.output == DType::kC64)) {
    kept.dtype = current.chain.output;
    kept.dtype_given = true;
  }
  OCTAVO_ASSIGN_OR_RETURN(model::ResolvedScan scan, ResolveProcessingAnew(current, kept, whole));
  scan.requested = requested;  // without the kept dtype: the next update may bring one
  if (scan.chain.depth != current.chain.depth) {
    return InvalidField("processing.depth",
                        absl::StrCat("would become ", scan.chain.depth,
                                     "; a running scan keeps its depth of ", current.chain.depth));
  }
  if (scan.chain.output != current.chain.output) {
    return InvalidField(
        "processing.dtype",
        absl::StrCat("would become ", Info(scan.chain.output).name,
                     "; a running scan keeps its dtype ", Info(current.chain.output).name));
  }
  return scan;
}

}  // namespace octavo::processing
