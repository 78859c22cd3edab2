#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"

namespace octavo::rpc {

absl::StatusOr<model::Processing> DecodeProcessing(const v1::Processing& in) {
  model::Processing out;
  const auto& background = in.background();
  OCTAVO_RETURN_IF_ERROR(CheckEnum("processing.background.mode", background.mode(),
                                   v1::Processing::Background::Mode_IsValid(background.mode())));
  out.background = static_cast<model::BackgroundMode>(background.mode());
  out.background_spectrum.assign(background.spectrum().begin(), background.spectrum().end());
  out.background_window_records = background.window_records();
  out.background_group_records = background.group_records();
  const auto& k = in.k_linearisation();
  OCTAVO_RETURN_IF_ERROR(CheckEnum("processing.k_linearisation.interpolation", k.interpolation(),
                                   v1::Interpolation_IsValid(k.interpolation())));
  out.k_interpolation = static_cast<model::KInterpolation>(k.interpolation());
  switch (k.positions_case()) {
    case v1::Processing::KLinearisation::kIndex:
      out.k_mode = model::KMode::kIndex;
      out.k_index.assign(k.index().values().begin(), k.index().values().end());
      break;
    case v1::Processing::KLinearisation::kIndexF64:
      out.k_mode = model::KMode::kIndex;
      out.k_index.assign(k.index_f64().values().begin(), k.index_f64().values().end());
      break;
    case v1::Processing::KLinearisation::kPolynomial:
      out.k_mode = model::KMode::kPolynomial;
      out.k_polynomial.assign(k.polynomial().values().begin(), k.polynomial().values().end());
      break;
    case v1::Processing::KLinearisation::kWavelengthNm:
      out.k_mode = model::KMode::kWavelength;
      out.k_wavelength_nm.assign(k.wavelength_nm().values().begin(),
                                 k.wavelength_nm().values().end());
      break;
    case v1::Processing::KLinearisation::kNone:
      OCTAVO_RETURN_IF_ERROR(CheckChoice("processing.k_linearisation.none", k.none()));
      out.k_mode = model::KMode::kNone;
      break;
    case v1::Processing::KLinearisation::kFromSource:
      OCTAVO_RETURN_IF_ERROR(
          CheckChoice("processing.k_linearisation.from_source", k.from_source()));
      out.k_mode = model::KMode::kFromSource;
      break;
    case v1::Processing::KLinearisation::POSITIONS_NOT_SET: break;
  }
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("processing.window", in.window(), v1::WindowKind_IsValid(in.window())));
  out.window = in.window();  // RECT = 1 is WindowKind::kRect + 1
  out.window_values.assign(in.window_values().begin(), in.window_values().end());
  out.dispersion_a2 = in.dispersion().a2();
  out.dispersion_a3 = in.dispersion().a3();
  out.dispersion_phase.assign(in.dispersion().phase().begin(), in.dispersion().phase().end());
  out.fft_length = in.fft_length();
  out.first_bin = in.first_bin();
  out.depth = in.depth();
  OCTAVO_RETURN_IF_ERROR(CheckEnum("processing.value", in.value(), v1::Value_IsValid(in.value())));
  out.value = static_cast<model::ValueKind>(in.value());
  out.has_levels = in.has_levels();
  if (in.has_levels()) {
    OCTAVO_RETURN_IF_ERROR(CheckFinite("processing.levels.lo", in.levels().lo()));
    OCTAVO_RETURN_IF_ERROR(CheckFinite("processing.levels.hi", in.levels().hi()));
    out.level_lo = in.levels().lo();
    out.level_hi = in.levels().hi();
  }
  if (in.dtype() != v1::DTYPE_UNSPECIFIED) {
    switch (in.dtype()) {
      case v1::DTYPE_U8:
      case v1::DTYPE_I8:
      case v1::DTYPE_U16:
      case v1::DTYPE_F16:
      case v1::DTYPE_F32:
      case v1::DTYPE_C64: break;
      default:
        return InvalidField(
            "processing.dtype",
            absl::StrCat("is ", EnumName(in.dtype()), "; allowed U8, I8, U16, F16, F32, C64"));
    }
    out.dtype_given = true;
    out.dtype = static_cast<DType>(in.dtype());
  }
  OCTAVO_RETURN_IF_ERROR(CheckFinite("processing.axial_spacing_um", in.axial_spacing_um()));
  OCTAVO_RETURN_IF_ERROR(CheckFinite("processing.refractive_index", in.refractive_index()));
  out.axial_spacing_um = in.axial_spacing_um();
  out.refractive_index = in.refractive_index();
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("processing.fixed_pattern_noise", in.fixed_pattern_noise(),
                v1::Processing::FixedPatternNoise_IsValid(in.fixed_pattern_noise())));
  out.fixed_pattern_noise = static_cast<model::FixedPatternNoise>(in.fixed_pattern_noise());
  return out;
}

namespace {

// As it was given.
void EncodeIndex(const std::vector<double>& index, v1::Processing::KLinearisation* out) {
  const bool f32 = std::all_of(index.begin(), index.end(), [](double r) {
    return static_cast<double>(static_cast<float>(r)) == r;
  });
  if (!f32) {
    out->mutable_index_f64()->mutable_values()->Add(index.begin(), index.end());
    return;
  }
  for (const double r : index) out->mutable_index()->add_values(static_cast<float>(r));
}

}  // namespace

void EncodeProcessing(const model::Processing& in, v1::Processing* out) {
  auto* background = out->mutable_background();
  background->set_mode(static_cast<v1::Processing::Background::Mode>(in.background));
  background->mutable_spectrum()->Add(in.background_spectrum.begin(), in.background_spectrum.end());
  background->set_window_records(static_cast<uint32_t>(in.background_window_records));
  background->set_group_records(static_cast<uint32_t>(in.background_group_records));
  auto* k = out->mutable_k_linearisation();
  k->set_interpolation(static_cast<v1::Interpolation>(in.k_interpolation));
  switch (in.k_mode) {
    case model::KMode::kDefault: break;
    case model::KMode::kNone: k->set_none(true); break;
    case model::KMode::kFromSource: k->set_from_source(true); break;
    case model::KMode::kIndex: EncodeIndex(in.k_index, k); break;
    case model::KMode::kPolynomial:
      k->mutable_polynomial()->mutable_values()->Add(in.k_polynomial.begin(),
                                                     in.k_polynomial.end());
      break;
    case model::KMode::kWavelength:
      k->mutable_wavelength_nm()->mutable_values()->Add(in.k_wavelength_nm.begin(),
                                                        in.k_wavelength_nm.end());
      break;
  }
  out->set_window(static_cast<v1::WindowKind>(in.window));
  out->mutable_window_values()->Add(in.window_values.begin(), in.window_values.end());
  out->mutable_dispersion()->set_a2(in.dispersion_a2);
  out->mutable_dispersion()->set_a3(in.dispersion_a3);
  out->mutable_dispersion()->mutable_phase()->Add(in.dispersion_phase.begin(),
                                                  in.dispersion_phase.end());
  out->set_fft_length(static_cast<uint32_t>(in.fft_length));
  out->set_first_bin(static_cast<uint32_t>(in.first_bin));
  out->set_depth(static_cast<uint32_t>(in.depth));
  out->set_value(static_cast<v1::Value>(in.value));
  if (in.has_levels) {
    out->mutable_levels()->set_lo(in.level_lo);
    out->mutable_levels()->set_hi(in.level_hi);
  }
  if (in.dtype_given) out->set_dtype(static_cast<v1::Dtype>(in.dtype));
  out->set_axial_spacing_um(in.axial_spacing_um);
  out->set_refractive_index(in.refractive_index);
  out->set_fixed_pattern_noise(
      static_cast<v1::Processing::FixedPatternNoise>(in.fixed_pattern_noise));
}

}  // namespace octavo::rpc
