#include "server/processing/stored_form.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/spectral/spectral_span.h"
#include "server/model/resolved_scan.h"

namespace octavo::processing {
namespace {

constexpr double kFinestStepDb = 0.01;
constexpr double kBelowNoiseDb = 20;  // 1 % of the powers of noise lie lower
constexpr double kUnknownSteps =
    65535;  // assumed across the range of a raw F32 whose ADC is not known

double Db(double magnitude) { return 20 * std::log10(magnitude); }

struct Interval {
  double lo, hi;
};

bool AdcIsKnown(const SpectralConfig& c, int64_t bits) {
  return c.raw_type != DType::kF32 || bits > 0;
}

// The range of values the chain can produce: in dB from any number of an integer raw type, else
// from numbers of `bits` bits.
Interval WholeSpan(const SpectralConfig& c, int64_t bits) {
  if (c.value == math::Value::kDb) {
    const ValueSpan span =
        DbSpan(c, RangeOf(c.raw_type, c.packing, c.raw_type == DType::kF32 ? bits : 0));
    return {span.lo, span.hi};
  }
  const double most = LargestMagnitude(c, RangeOf(c.raw_type, c.packing, bits));
  return {c.value == math::Value::kReal ? -most : 0,
          c.value == math::Value::kPower ? most * most : most};
}

// The levels for 256 steps. Digitising noise lies 20 dB above the lower end; about 1 % of it falls
// below.
Interval CoarseSpan(const SpectralConfig& c, int64_t bits) {
  const SampleRange range = RangeOf(c.raw_type, c.packing, bits);
  const double most = LargestMagnitude(c, range), reflector = most / 4;
  if (c.value == math::Value::kDb) {
    const double step = AdcIsKnown(c, bits) ? 1 : 2 * range.hi / kUnknownSteps;
    return {Db(NoiseMagnitude(c, step / std::sqrt(12.0))) - kBelowNoiseDb, Db(most)};
  }
  return {c.value == math::Value::kReal ? -reflector : 0,
          c.value == math::Value::kPower ? reflector * reflector : reflector};
}

}  // namespace

StoredForm DefaultForm(const SpectralConfig& c, int64_t adc_bits, bool dtype_given, DType dtype) {
  StoredForm form;
  // A strong reflector has about full scale / 20 after window and transform; speckle lies some 50
  // dB below.
  const double bright = RangeOf(c.raw_type, c.packing, adc_bits).hi / 60;
  form.shown_hi = c.value == math::Value::kDb      ? Db(bright)
                  : c.value == math::Value::kPower ? bright * bright
                                                   : bright;
  form.shown_lo = c.value == math::Value::kDb     ? form.shown_hi - 52
                  : c.value == math::Value::kReal ? -bright
                                                  : 0;

  const Interval whole = WholeSpan(c, adc_bits);
  const bool fine =
      c.value == math::Value::kDb && AdcIsKnown(c, adc_bits) &&
      (whole.hi - whole.lo) / static_cast<double>(HighestOf(DType::kU16)) <= kFinestStepDb;
  form.dtype = dtype_given                        ? dtype
               : c.value == math::Value::kComplex ? DType::kC64
               : fine                             ? DType::kU16
                                                  : DType::kF32;
  form.has_levels = IsInteger(form.dtype);
  if (!form.has_levels) return form;
  const Interval levels = form.dtype == DType::kU16 ? whole : CoarseSpan(c, adc_bits);
  form.level_lo = static_cast<float>(levels.lo);
  form.level_hi = static_cast<float>(levels.hi);
  // A chain that gives only one value (a window of zeros): any levels will do.
  if (!(std::isfinite(form.level_lo) && std::isfinite(form.level_hi) &&
        form.level_lo < form.level_hi))
    form.level_lo = 0, form.level_hi = 1;
  return form;
}

std::string DescribeMemory(const model::ResolvedScan& scan, int64_t slots) {
  const int64_t bytes = SizeOf(scan.chain.output);
  std::string text = absl::StrCat("memory: ", bytes, bytes == 1 ? " byte" : " bytes", " a voxel, ",
                                  scan.volume_bytes, " bytes a volume, ", slots,
                                  slots == 1 ? " volume" : " volumes", " held at once");
  if (bytes > 1 && scan.chain.output != DType::kC64)
    absl::StrAppend(&text, " (u8 would take ", scan.volume_bytes / bytes, " a volume)");
  return text + "\n";
}

std::string DescribeClipping(const model::VolumeStatus& volume, int64_t voxels) {
  const SpectralConfig& c = volume.origin->chain;
  const auto percent = [&](int64_t count) {
    return absl::StrFormat("%.3g %%", 100 * static_cast<double>(count) /
                                          static_cast<double>(std::max<int64_t>(voxels, 1)));
  };
  std::string text =
      absl::StrCat("processing.levels ", c.level_lo, " to ", c.level_hi, " clip: of ", volume.name,
                   " ", percent(volume.clipped_below), " of the voxels lie below and ",
                   percent(volume.clipped_above), " above. ");
  const int64_t bits = volume.origin->spec.acquisition.adc_bits;
  if (!AdcIsKnown(c, bits))
    return text +
           "What raw F32 gives is not known beforehand: dtype F32 without levels clips nothing";
  if (c.raw_type == DType::kF32) {
    const Interval declared = WholeSpan(c, bits);
    return text + absl::StrFormat(
                      "Levels %.6g to %.6g clip nothing within acquisition.adc_bits = %d; dtype "
                      "F32 without levels clips nothing at all",
                      declared.lo, declared.hi, bits);
  }
  const Interval whole = WholeSpan(c, 0);
  absl::StrAppend(&text, absl::StrFormat("Levels %.6g to %.6g clip nothing", whole.lo, whole.hi));
  const char* finer = c.value == math::Value::kDb
                          ? "; nor does dtype U16 without levels, which stores them finer"
                          : "; nor does dtype F32 without levels";
  return text + finer;
}

}  // namespace octavo::processing
