#include "server/rpc/convert/tomography.h"

#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/math/flat_weights.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"
#include "server/rpc/convert/fixed_bytes.h"
#include "server/rpc/convert/time.h"
#include "server/source/push_projections.h"

namespace octavo::rpc {
namespace {

absl::Status AllFinite(const char* field, const google::protobuf::RepeatedField<double>& values) {
  for (int i = 0; i < values.size(); ++i)
    OCTAVO_RETURN_IF_ERROR(CheckFinite(absl::StrCat(field, "[", i, "]").c_str(), values[i]));
  return absl::OkStatus();
}

absl::Status Unknown(const char* field, int value) {
  return InvalidField(absl::StrCat("tomography.", field),
                      absl::StrCat("has the unknown value ", value));
}
absl::Status CheckFinites(const char* message,
                          std::initializer_list<std::pair<const char*, double>> fields) {
  for (const auto& [name, value] : fields)
    OCTAVO_RETURN_IF_ERROR(
        CheckFinite(absl::StrCat("tomography.", message, ".", name).c_str(), value));
  return absl::OkStatus();
}

/// `at`: the place of the file in the job ("file").
absl::StatusOr<model::ProjectionFileSpec> Decode(const std::string& at,
                                                 const v1::ProjectionFile& in) {
  static constexpr const char* kFormats[] = {"", "data_exchange", "nxtomo", "npy", "zarr", "tiff"};
  static_assert(std::size(kFormats) == v1::ProjectionFormat_ARRAYSIZE);
  const auto field = [&](const char* name) { return absl::StrCat("tomography.", at, ".", name); };
  if (in.path().empty()) return InvalidField(field("path"), "is empty");
  if (!v1::ProjectionFormat_IsValid(in.format()))
    return Unknown(absl::StrCat(at, ".format").c_str(), in.format());
  if (!v1::AngleUnit_IsValid(in.angle_unit()))
    return Unknown(absl::StrCat(at, ".angle_unit").c_str(), in.angle_unit());
  OCTAVO_RETURN_IF_ERROR(AllFinite(field("flat_positions").c_str(), in.flat_positions()));
  OCTAVO_RETURN_IF_ERROR(AllFinite(field("dark_positions").c_str(), in.dark_positions()));
  return model::ProjectionFileSpec{
      .path = in.path(),
      .options = {.format = kFormats[in.format()],
                  .projections = in.projections(),
                  .flats = in.flats(),
                  .darks = in.darks(),
                  .angles = in.angles(),
                  .angle_values = {},
                  .angle_unit = static_cast<storage::AngleUnit>(in.angle_unit()),
                  .flat_positions = {in.flat_positions().begin(), in.flat_positions().end()},
                  .dark_positions = {in.dark_positions().begin(), in.dark_positions().end()}}};
}

/// `out` has the type of the pixels, or its default.
absl::Status DecodeRawType(const v1::PushedProjections& in, model::PushedProjectionsSpec* out) {
  constexpr char kField[] = "tomography.push.raw_type";
  OCTAVO_RETURN_IF_ERROR(CheckEnum(kField, in.raw_type(), v1::RawType_IsValid(in.raw_type())));
  if (in.raw_type() == v1::RAW_TYPE_UNSPECIFIED) return absl::OkStatus();
  const DType pixels = RawDType(in.raw_type());
  if (in.dtype() != v1::DTYPE_UNSPECIFIED && out->dtype != pixels) {
    return InvalidField(
        kField,
        absl::StrCat("is ", EnumName(in.raw_type()), ", whose pixels are ", Info(pixels).name,
                     ", but tomography.push.dtype is ", EnumName(in.dtype()),
                     "; allowed is the same type, U12P or U12_PACKED with U16, or one of the two"));
  }
  out->dtype = pixels;
  out->packing = PackingOf(in.raw_type());
  return absl::OkStatus();
}

absl::StatusOr<model::ProjectionMosaicSpec> Decode(const v1::ProjectionMosaic& in) {
  constexpr int kLeastTiles = 2, kMostTiles = 64;
  constexpr double kMostPosition = 1e6;
  constexpr uint32_t kMostSearch = 512;
  constexpr char kTiles[] = "tomography.mosaic.tiles";
  if (in.tiles_size() < kLeastTiles || in.tiles_size() > kMostTiles) {
    return InvalidField(
        kTiles, absl::StrCat("has ", in.tiles_size(), in.tiles_size() == 1 ? " tile" : " tiles",
                             "; allowed ", kLeastTiles, " to ", kMostTiles));
  }
  if (in.search() > kMostSearch)
    return FieldOutOfRange("tomography.mosaic.search", in.search(), 0, kMostSearch);
  model::ProjectionMosaicSpec out;
  out.search = in.search();
  for (const v1::ProjectionMosaic::Tile& tile : in.tiles()) {
    const std::string at = absl::StrCat("mosaic.tiles[", out.tiles.size(), "]");
    for (const auto& [name, position] : {std::pair("first_column", tile.first_column()),
                                         std::pair("first_row", tile.first_row())}) {
      OCTAVO_RETURN_IF_ERROR(InRange(absl::StrCat("tomography.", at, ".", name), position,
                                     -kMostPosition, kMostPosition));
    }
    OCTAVO_ASSIGN_OR_RETURN(model::ProjectionFileSpec file, Decode(at + ".file", tile.file()));
    out.tiles.push_back({.file = std::move(file),
                         .first_column = tile.first_column(),
                         .first_row = tile.first_row()});
  }
  return out;
}

/// What works on counts or on fields, which a joined detector has not.
absl::Status CheckMosaic(const v1::TomographyPreparation& in) {
  const std::pair<const char*, bool> given[] = {{"outliers", in.has_outliers()},
                                                {"flats_in_time", in.flats_in_time()},
                                                {"dynamic_flats", in.has_dynamic_flats()},
                                                {"denominator_floor", in.denominator_floor() != 0},
                                                {"already_sinograms", in.already_sinograms()}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    return InvalidField(
        absl::StrCat("tomography.preparation.", name),
        "is given with mosaic, whose tiles are divided by their fields and joined before the "
        "preparation; allowed is a mosaic without it");
  }
  return absl::OkStatus();
}

absl::StatusOr<model::PushedProjectionsSpec> Decode(const v1::PushedProjections& in) {
  OCTAVO_RETURN_IF_ERROR(CheckFinites("push", {{"pixel_size_um", in.pixel_size_um()}}));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("tomography.push.idle_timeout", in.idle_timeout()));
  model::PushedProjectionsSpec out{.rows = in.rows(),
                                   .columns = in.columns(),
                                   .frames = in.frames(),
                                   .dtype = DType::kU16,
                                   .packing = math::Packing::kNone,
                                   .pixel_size_um = in.pixel_size_um(),
                                   .credit_messages = in.credit_messages(),
                                   .idle_timeout_s = ToSeconds(in.idle_timeout())};
  OCTAVO_RETURN_IF_ERROR(CheckEnum("tomography.push.on_missing", in.on_missing(),
                                   v1::MissingFrames_IsValid(in.on_missing())));
  out.on_missing = static_cast<model::MissingFrames>(in.on_missing());
  switch (in.dtype()) {
    case v1::DTYPE_UNSPECIFIED:
    case v1::DTYPE_U16: break;
    case v1::DTYPE_U8: out.dtype = DType::kU8; break;
    case v1::DTYPE_I16: out.dtype = DType::kI16; break;
    case v1::DTYPE_F32: out.dtype = DType::kF32; break;
    default:
      return InvalidField("tomography.push.dtype", absl::StrCat("is ", static_cast<int>(in.dtype()),
                                                                "; allowed U8, U16, I16, F32"));
  }
  OCTAVO_RETURN_IF_ERROR(DecodeRawType(in, &out));
  if (auto status = source::ProjectionPort::Check(out); !status.ok())
    return base::AtField("tomography.", status);
  return out;
}

absl::StatusOr<model::IndexRange> Decode(const char* field, const v1::IndexRange& in) {
  if (in.end() != 0 && in.end() <= in.begin()) {
    return InvalidField(
        absl::StrCat("tomography.", field, ".end"),
        absl::StrCat("is ", in.end(), "; allowed 0 (to the end) or more than ", in.begin()));
  }
  return model::IndexRange{.begin = in.begin(), .end = in.end(), .step = in.step()};
}

absl::Status DecodeDynamicFlats(const v1::TomographyPreparation& in, model::PreparationSpec* out) {
  constexpr char kField[] = "tomography.preparation.dynamic_flats";
  const auto refused = [&](const char* beside, const char* why) {
    return InvalidField(
        kField, absl::StrCat("is given with ", beside, ", ", why, "; allowed is one of the two"));
  };
  if (in.already_sinograms()) return refused("already_sinograms", "which uses no flat fields");
  if (in.ignore_fields()) return refused("ignore_fields", "which uses no flat fields");
  if (in.flat_median()) return refused("flat_median", "but its components belong to the mean");
  if (in.flats_in_time())
    return refused("flats_in_time", "but it finds the open beam of each projection by itself");
  const int64_t components = in.dynamic_flats().components();
  if (components > math::kMostFlatComponents)
    return FieldOutOfRange(absl::StrCat(kField, ".components"), components, 0,
                           math::kMostFlatComponents);
  out->dynamic_flats = true;
  out->flat_components = components;
  return absl::OkStatus();
}

absl::Status DecodeShifts(const v1::TomographyPreparation& in, model::PreparationSpec* out) {
  constexpr double kUsual = 5;
  out->row_shifts.assign(in.row_shifts().begin(), in.row_shifts().end());
  for (size_t i = 0; i < out->row_shifts.size(); ++i) {
    if (!(std::abs(out->row_shifts[i]) <= RowShifts::kMost))
      return FieldNotAllowed(absl::StrCat("tomography.preparation.row_shifts[", i, "]"),
                             out->row_shifts[i],
                             absl::StrCat("are ", -RowShifts::kMost, " to ", RowShifts::kMost));
  }
  if (!in.has_row_drift()) return absl::OkStatus();
  constexpr char kField[] = "tomography.preparation.row_drift";
  if (!out->row_shifts.empty())
    return InvalidField(kField, "is given with row_shifts; allowed is one of the two");
  if (!out->integrals())
    return InvalidField(kField,
                        "is given with logarithm = false; it compares sums of line integrals, so "
                        "allowed are the logarithm or already_sinograms");
  const double most = in.row_drift().most_rows();
  if (!(most >= 0 && most <= RowShifts::kMost))
    return FieldNotAllowed(
        absl::StrCat(kField, ".most_rows"), most,
        absl::StrCat("are above 0 to ", RowShifts::kMost, ", and 0 for ", kUsual));
  out->finds_drift = true;
  out->config.shifts.most = most > 0 ? most : kUsual;
  return absl::OkStatus();
}

absl::StatusOr<model::PreparationSpec> Decode(const v1::TomographyPreparation& in) {
  using P = v1::TomographyPreparation;
  model::PreparationSpec out;
  PrepareConfig& c = out.config;
  OCTAVO_RETURN_IF_ERROR(
      CheckFinites("preparation", {{"denominator_floor", in.denominator_floor()},
                                   {"cutoff", in.cutoff()},
                                   {"outliers.difference", in.outliers().difference()},
                                   {"phase.pixel_size_um", in.phase().pixel_size_um()},
                                   {"phase.distance_mm", in.phase().distance_mm()},
                                   {"phase.energy_kev", in.phase().energy_kev()},
                                   {"phase.delta_beta", in.phase().delta_beta()},
                                   {"phase.feature_size_um", in.phase().feature_size_um()},
                                   {"log_floor", in.log_floor()},
                                   {"not_finite_value", in.not_finite_value()},
                                   {"roll_degrees", in.roll_degrees()},
                                   {"stitching.overlap", in.stitching().overlap()}}));
  out.ignore_fields = in.ignore_fields() || in.already_sinograms();
  out.already_sinograms = in.already_sinograms();
  out.flats_in_time = in.flats_in_time();
  if (in.flat_median()) c.flat_average = FieldAverage::kMedian;
  if (in.dark_median()) c.dark_average = FieldAverage::kMedian;
  if (in.has_dynamic_flats()) OCTAVO_RETURN_IF_ERROR(DecodeDynamicFlats(in, &out));
  if (in.denominator_floor() != 0) c.denominator_floor = in.denominator_floor();
  c.has_cutoff = in.cutoff() != 0;
  if (c.has_cutoff) c.cutoff = in.cutoff();
  if (in.has_outliers()) {
    c.outliers = {.window = in.outliers().window(),
                  .difference = in.outliers().difference(),
                  .dark_too = in.outliers().dark_too()};
    if (c.outliers.window == 0)
      return InvalidField("tomography.preparation.outliers.window",
                          "is 0; allowed are odd numbers from 3 to 15");
  }
  if (in.bin_rows() != 0) c.bin_rows = in.bin_rows();
  if (in.bin_columns() != 0) c.bin_columns = in.bin_columns();
  if (in.bin_angles() != 0) c.bin_angles = in.bin_angles();
  if (in.has_phase()) {
    c.phase = {.enabled = true,
               .method = PhaseMethod::kPaganin,
               .pixel_size_um = in.phase().pixel_size_um(),
               .distance_mm = in.phase().distance_mm(),
               .energy_kev = in.phase().energy_kev(),
               .delta_beta = in.phase().delta_beta(),
               .feature_size_um = in.phase().feature_size_um()};
    if (in.already_sinograms())
      return InvalidField(
          "tomography.preparation.phase",
          "is given with already_sinograms; it divides transmissions, so allowed is "
          "already_sinograms = false");
    if (!P::Phase::Method_IsValid(in.phase().retrieval_method()))
      return Unknown("preparation.phase.retrieval_method", in.phase().retrieval_method());
    switch (in.phase().retrieval_method()) {
      case P::Phase::METHOD_GENERALIZED_PAGANIN: c.phase.method = PhaseMethod::kGeneralized; break;
      case P::Phase::METHOD_FARAGO: c.phase.method = PhaseMethod::kFarago; break;
      default: break;  // Paganin
    }
  }
  c.air_left = in.air_left();
  c.air_right = in.air_right();
  c.minus_log = (!in.has_logarithm() || in.logarithm()) && !in.already_sinograms();
  if (in.log_floor() != 0) c.log_floor = in.log_floor();
  c.beam_hardening.assign(in.beam_hardening().begin(), in.beam_hardening().end());
  if (!c.beam_hardening.empty() && !out.integrals())
    return InvalidField(
        "tomography.preparation.beam_hardening",
        "is given with logarithm = false; it corrects line integrals, so allowed are "
        "the logarithm or already_sinograms");
  c.not_finite_value = in.not_finite_value();
  c.roll.degrees = in.roll_degrees();
  OCTAVO_RETURN_IF_ERROR(DecodeShifts(in, &out));
  if (in.has_stitching()) {
    c.stitching = {.enabled = true,
                   .axis_right = in.stitching().axis_right(),
                   .overlap = in.stitching().overlap(),
                   .half_turn = in.stitching().half_turn()};
  }
  for (const auto& ring : in.rings()) {
    const std::string at = absl::StrCat("preparation.rings[", c.rings.size(), "]");
    if (!P::Rings::Method_IsValid(ring.removal_method()))
      return Unknown((at + ".removal_method").c_str(), ring.removal_method());
    OCTAVO_RETURN_IF_ERROR(CheckFinites(at.c_str(), {{"snr", ring.snr()},
                                                     {"drop_ratio", ring.drop_ratio()},
                                                     {"wavelet_sigma", ring.wavelet_sigma()}}));
    RingRemoval r;
    if (ring.removal_method() != P::Rings::METHOD_UNSPECIFIED)
      r.method = static_cast<RingMethod>(ring.removal_method() - 1);
    r.sorting_window = ring.sorting_window();
    if (ring.stripe_window() != 0) r.stripe_window = ring.stripe_window();
    if (ring.snr() != 0) r.snr = ring.snr();
    if (ring.drop_ratio() != 0) r.drop_ratio = ring.drop_ratio();
    r.normalize = !ring.has_rescale_columns() || ring.rescale_columns();
    if (ring.wavelet_order() != 0) r.wavelet_order = ring.wavelet_order();
    r.wavelet_levels = ring.wavelet_levels();
    if (ring.wavelet_sigma() != 0) r.wavelet_sigma = ring.wavelet_sigma();
    r.wavelet_padding = !ring.has_wavelet_padding() || ring.wavelet_padding();
    c.rings.push_back(r);
  }
  return out;
}

v1::TomographyAlgorithmOptions::Algorithm EncodeAlgorithm(TomographyAlgorithm algorithm) {
  using O = v1::TomographyAlgorithmOptions;
  switch (algorithm) {
    case TomographyAlgorithm::kSirt: return O::ALGORITHM_SIRT;
    case TomographyAlgorithm::kMlem: return O::ALGORITHM_MLEM;
    case TomographyAlgorithm::kCgls: return O::ALGORITHM_CGLS;
    case TomographyAlgorithm::kFbp: return O::ALGORITHM_FBP;
    case TomographyAlgorithm::kFourier: return O::ALGORITHM_FOURIER;
    case TomographyAlgorithm::kAuto: return O::ALGORITHM_AUTO;
    case TomographyAlgorithm::kTv: return O::ALGORITHM_TV;
  }
  return O::ALGORITHM_UNSPECIFIED;
}

v1::RotationCenter::Method EncodeMethod(CenterMethod method) {
  switch (method) {
    case CenterMethod::kVo: return v1::RotationCenter::METHOD_VO;
    case CenterMethod::kEntropy: return v1::RotationCenter::METHOD_ENTROPY;
    case CenterMethod::kPhaseCorrelation: return v1::RotationCenter::METHOD_PHASE_CORRELATION;
    case CenterMethod::kPairs: return v1::RotationCenter::METHOD_PAIRS;
  }
  return v1::RotationCenter::METHOD_UNSPECIFIED;
}

absl::StatusOr<model::RotationCenterSpec> Decode(const v1::RotationCenter& in) {
  using C = v1::RotationCenter;
  OCTAVO_RETURN_IF_ERROR(AllFinite("tomography.center.pixels", in.pixels()));
  OCTAVO_RETURN_IF_ERROR(CheckFinites("center", {{"search_begin", in.search_begin()},
                                                 {"search_end", in.search_end()},
                                                 {"tolerance", in.tolerance()},
                                                 {"object_ratio", in.object_ratio()}}));
  if (!C::Method_IsValid(in.search_method()))
    return Unknown("center.search_method", in.search_method());
  if (in.pixels_size() > 0 && in.search_method() != C::METHOD_UNSPECIFIED) {
    return InvalidField("tomography.center.search_method",
                        "is given together with pixels; allowed one of the two");
  }
  model::RotationCenterSpec out;
  out.pixels.assign(in.pixels().begin(), in.pixels().end());
  out.find = in.search_method() != C::METHOD_UNSPECIFIED;
  switch (in.search_method()) {
    case C::METHOD_VO: out.search.method = CenterMethod::kVo; break;
    case C::METHOD_ENTROPY: out.search.method = CenterMethod::kEntropy; break;
    case C::METHOD_PHASE_CORRELATION: out.search.method = CenterMethod::kPhaseCorrelation; break;
    case C::METHOD_FILE_OR_AUTO: out.unless_in_file = true; [[fallthrough]];
    case C::METHOD_AUTO: out.automatic = true; [[fallthrough]];
    default: out.search.method = CenterMethod::kPairs;
  }
  if (!C::OnDoubt_IsValid(in.on_doubt())) return Unknown("center.on_doubt", in.on_doubt());
  out.fail_on_doubt = in.on_doubt() == C::ON_DOUBT_FAIL;
  if (in.has_row()) out.row = in.row();
  out.search_begin = in.search_begin();
  out.search_end = in.search_end();
  if (out.search_begin > out.search_end) {
    return InvalidField(
        "tomography.center.search_end",
        absl::StrCat("is ", out.search_end, "; allowed ", out.search_begin, " or more"));
  }
  if (in.tolerance() != 0) out.search.tolerance = out.search.fine_step = in.tolerance();
  if (in.object_ratio() != 0) out.search.object_ratio = in.object_ratio();
  if (in.has_drop()) out.search.drop = in.drop();
  if (!C::AlongRows_IsValid(in.along_rows())) return Unknown("center.along_rows", in.along_rows());
  out.along_rows = static_cast<model::AlongRows>(in.along_rows());
  return out;
}

// A configuration has one iteration unless the request says how many; that would be a blur.
int64_t UsualIterations(TomographyAlgorithm algorithm) {
  switch (algorithm) {
    case TomographyAlgorithm::kCgls: return 20;
    case TomographyAlgorithm::kTv: return 200;
    default: return 100;
  }
}

absl::StatusOr<TomographyConfig> Decode(const v1::TomographyAlgorithmOptions& in) {
  using O = v1::TomographyAlgorithmOptions;
  const auto field = [](const char* name) {
    return absl::StrCat("tomography.reconstruction.", name);
  };
  const auto unknown = [&](const char* name, int value) {
    return InvalidField(field(name), absl::StrCat("has the unknown value ", value));
  };
  TomographyConfig c;
  switch (in.algorithm()) {
    case O::ALGORITHM_UNSPECIFIED:
    case O::ALGORITHM_AUTO: c.algorithm = TomographyAlgorithm::kAuto; break;
    case O::ALGORITHM_FBP: c.algorithm = TomographyAlgorithm::kFbp; break;
    case O::ALGORITHM_SIRT: c.algorithm = TomographyAlgorithm::kSirt; break;
    case O::ALGORITHM_MLEM: c.algorithm = TomographyAlgorithm::kMlem; break;
    case O::ALGORITHM_CGLS: c.algorithm = TomographyAlgorithm::kCgls; break;
    case O::ALGORITHM_FOURIER: c.algorithm = TomographyAlgorithm::kFourier; break;
    case O::ALGORITHM_TV: c.algorithm = TomographyAlgorithm::kTv; break;
    default: return unknown("algorithm", in.algorithm());
  }
  switch (in.form()) {
    case O::FORM_UNSPECIFIED:
    case O::FORM_CORRECTED: c.form = TomographyForm::kCorrected; break;
    case O::FORM_TOMOPY: c.form = TomographyForm::kTomopy; break;
    default: return unknown("form", in.form());
  }
  switch (in.interpolation()) {
    case O::INTERPOLATION_UNSPECIFIED:
      c.interpolation = c.form == TomographyForm::kTomopy ? math::RayInterpolation::kNearest
                                                          : math::RayInterpolation::kLinear;
      break;
    case O::INTERPOLATION_NEAREST: c.interpolation = math::RayInterpolation::kNearest; break;
    case O::INTERPOLATION_LINEAR: c.interpolation = math::RayInterpolation::kLinear; break;
    case O::INTERPOLATION_CUBIC: c.interpolation = math::RayInterpolation::kCubic; break;
    default: return unknown("interpolation", in.interpolation());
  }
  switch (in.filter()) {
    case O::FILTER_UNSPECIFIED:
    case O::FILTER_RAMP: c.filter = ProjectionFilter::kRamp; break;
    case O::FILTER_SHEPP_LOGAN: c.filter = ProjectionFilter::kSheppLogan; break;
    case O::FILTER_COSINE: c.filter = ProjectionFilter::kCosine; break;
    case O::FILTER_HANN: c.filter = ProjectionFilter::kHann; break;
    case O::FILTER_HAMMING: c.filter = ProjectionFilter::kHamming; break;
    case O::FILTER_PARZEN: c.filter = ProjectionFilter::kParzen; break;
    case O::FILTER_BUTTERWORTH: c.filter = ProjectionFilter::kButterworth; break;
    default: return unknown("filter", in.filter());
  }
  for (const auto& [name, value] :
       {std::pair{"pixel_size", in.pixel_size()}, std::pair{"mask_ratio", in.mask_ratio()},
        std::pair{"min_value", in.min_value()}, std::pair{"max_value", in.max_value()},
        std::pair{"relaxation", in.relaxation()}, std::pair{"stop_change", in.stop_change()},
        std::pair{"stop_residual", in.stop_residual()}, std::pair{"ratio_floor", in.ratio_floor()},
        std::pair{"filter_cutoff", in.filter_cutoff()},
        std::pair{"filter_order", in.filter_order()},
        std::pair{"fourier_accuracy", in.fourier_accuracy()},
        std::pair{"tv_weight", in.tv_weight()}}) {
    OCTAVO_RETURN_IF_ERROR(CheckFinite(field(name).c_str(), value));
  }
  c.image_size = in.image_size();
  if (in.pixel_size() != 0) c.pixel_size = in.pixel_size();
  if (in.has_padding()) c.padding = in.padding();
  if (in.has_mask_ratio()) c.mask_ratio = in.mask_ratio();
  c.has_min = in.has_min_value();
  c.min_value = in.min_value();
  c.has_max = in.has_max_value();
  c.max_value = in.max_value();
  if (IsIterative(c.algorithm)) c.iterations = UsualIterations(c.algorithm);
  if (in.iterations() != 0) c.iterations = in.iterations();
  c.tv_weight = in.tv_weight();
  if (in.relaxation() != 0) c.relaxation = in.relaxation();
  if (in.subsets() != 0) c.subsets = in.subsets();
  c.stop_change = in.stop_change();
  c.stop_residual = in.stop_residual();
  if (in.ratio_floor() != 0) c.ratio_floor = in.ratio_floor();
  c.negative_data_to_zero = in.negative_data_to_zero();
  if (in.filter_cutoff() != 0) c.filter_cutoff = in.filter_cutoff();
  if (in.filter_order() != 0) c.filter_order = in.filter_order();
  c.extend_edges = in.extend_edges();
  if (in.fourier_accuracy() != 0) {
    if (in.algorithm() != O::ALGORITHM_FOURIER)
      return InvalidField(field("fourier_accuracy"),
                          absl::StrCat("is ", in.fourier_accuracy(),
                                       "; only FOURIER has one, others allow 0 only"));
    c.fourier_accuracy = in.fourier_accuracy();
  }
  return c;
}

absl::StatusOr<model::ResultSamplesSpec> Decode(const v1::ResultSamples& in) {
  model::ResultSamplesSpec out;
  switch (in.type()) {
    case v1::DTYPE_UNSPECIFIED:
    case v1::DTYPE_F32: break;
    case v1::DTYPE_F16: out.type = DType::kF16; break;
    case v1::DTYPE_U16: out.type = DType::kU16; break;
    case v1::DTYPE_U8: out.type = DType::kU8; break;
    default:
      return InvalidField(
          "tomography.samples.type",
          absl::StrCat("is ", static_cast<int>(in.type()), "; allowed U8, U16, F16, F32"));
  }
  OCTAVO_RETURN_IF_ERROR(CheckFinites("samples", {{"low", in.low()}, {"high", in.high()}}));
  if (!out.windowed()) {
    for (const auto& [name, value] : {std::pair{"low", in.low()}, std::pair{"high", in.high()}}) {
      if (value == 0) continue;
      return InvalidField(
          absl::StrCat("tomography.samples.", name),
          absl::StrCat("is ", value, " with ", Info(out.type).name,
                       ", which holds the values themselves; allowed is 0, and other windows with "
                       "the types U8 and U16"));
    }
    return out;
  }
  if (in.low() == 0 && in.high() == 0) return out;
  constexpr auto kMost = static_cast<double>(std::numeric_limits<float>::max());
  OCTAVO_RETURN_IF_ERROR(InRange("tomography.samples.low", in.low(), -kMost, kMost));
  OCTAVO_RETURN_IF_ERROR(InRange("tomography.samples.high", in.high(), -kMost, kMost));
  // As Volume.levels tells it.
  out.low = static_cast<double>(static_cast<float>(in.low()));
  out.high = static_cast<double>(static_cast<float>(in.high()));
  if (out.low < out.high) return out;
  return InvalidField("tomography.samples.high",
                      absl::StrCat("is ", in.high(), " and low is ", in.low(),
                                   in.low() < in.high() ? ", which are one number as F32" : "",
                                   "; allowed is a number above low, or 0 for both: the window is "
                                   "found"));
}

// Sinograms have nothing of what makes slices of them.
absl::StatusOr<model::TomographyOutput> DecodeOutput(const v1::TomographyJob& in) {
  if (!v1::TomographyOutput_IsValid(in.output())) return Unknown("output", in.output());
  if (in.output() != v1::TOMOGRAPHY_OUTPUT_SINOGRAMS) return model::TomographyOutput::kSlices;
  for (const auto& [name, given] : {std::pair{"reconstruction", in.has_reconstruction()},
                                    std::pair{"try_centers", in.has_try_centers()},
                                    std::pair{"initial_volume", !in.initial_volume().empty()},
                                    std::pair{"center.pixels", in.center().pixels_size() > 0}}) {
    if (given)
      return InvalidField(
          absl::StrCat("tomography.", name),
          "is given with output SINOGRAMS, which reconstructs nothing; allowed with "
          "output SLICES");
  }
  return model::TomographyOutput::kSinograms;
}

// That the job uses so many projections, and makes so few volumes, is known with its input.
absl::StatusOr<model::VolumeSeriesSpec> Decode(const v1::VolumeSeries& in) {
  constexpr int64_t kMostProjections = 65535;
  OCTAVO_RETURN_IF_ERROR(InRange("tomography.series.projections",
                                 static_cast<int64_t>(in.projections()), int64_t{1},
                                 kMostProjections));
  OCTAVO_RETURN_IF_ERROR(InRange("tomography.series.step", static_cast<int64_t>(in.step()),
                                 int64_t{1}, int64_t{std::numeric_limits<uint32_t>::max()}));
  return model::VolumeSeriesSpec{.projections = in.projections(), .step = in.step()};
}

absl::StatusOr<model::HalfTurn> DecodeHalfTurn(const v1::TomographyJob& in,
                                               const model::PreparationSpec& preparation) {
  if (!v1::HalfTurn_IsValid(in.half_turn())) return Unknown("half_turn", in.half_turn());
  const auto half = static_cast<model::HalfTurn>(in.half_turn());
  if (half == model::HalfTurn::kDefault || half == model::HalfTurn::kAll) return half;
  const auto refused = [&](const char* why) {
    constexpr size_t kPrefix = std::string_view("HALF_TURN_").size();
    return InvalidField(
        "tomography.half_turn",
        absl::StrCat("is ", v1::HalfTurn_Name(in.half_turn()).substr(kPrefix), " with ", why));
  };
  if (preparation.config.stitching.enabled)
    return refused("preparation.stitching, which needs both halves; allowed is ALL");
  if (in.has_series())
    return refused("series, whose volumes have projections of their own; allowed is ALL");
  if (half == model::HalfTurn::kBest && !preparation.integrals())
    return refused(
        "preparation.logarithm = false, but transmissions have no mass to compare; allowed are "
        "FIRST, SECOND and ALL");
  return half;
}

}  // namespace

absl::StatusOr<model::TomographySpec> DecodeTomography(const v1::TomographyJob& in) {
  model::TomographySpec out;
  switch (in.input_case()) {
    case v1::TomographyJob::kFile: {
      OCTAVO_ASSIGN_OR_RETURN(out.input, Decode("file", in.file()));
      break;
    }
    case v1::TomographyJob::kArrays: {
      if (in.arrays().projections().empty())
        return InvalidField("tomography.arrays.projections", "is empty");
      out.input = model::ProjectionArraysSpec{.projections = in.arrays().projections(),
                                              .flats = in.arrays().flats(),
                                              .darks = in.arrays().darks(),
                                              .sinogram_order = in.arrays().sinogram_order()};
      break;
    }
    case v1::TomographyJob::kPush: {
      OCTAVO_ASSIGN_OR_RETURN(out.input, Decode(in.push()));
      break;
    }
    case v1::TomographyJob::kMosaic: {
      OCTAVO_RETURN_IF_ERROR(CheckMosaic(in.preparation()));
      OCTAVO_ASSIGN_OR_RETURN(out.input, Decode(in.mosaic()));
      break;
    }
    case v1::TomographyJob::INPUT_NOT_SET:
      return InvalidField("tomography.input", "is not given; allowed: file, arrays, push, mosaic");
  }
  OCTAVO_RETURN_IF_ERROR(AllFinite("tomography.angles_rad", in.angles_rad()));
  out.angles_rad.assign(in.angles_rad().begin(), in.angles_rad().end());
  OCTAVO_ASSIGN_OR_RETURN(out.projections, Decode("projections", in.projections()));
  OCTAVO_ASSIGN_OR_RETURN(out.rows, Decode("rows", in.rows()));
  OCTAVO_ASSIGN_OR_RETURN(out.columns, Decode("columns", in.columns()));
  if (out.columns.step > 1)
    return FieldNotAllowed("tomography.columns.step", out.columns.step, "0, 1");
  OCTAVO_ASSIGN_OR_RETURN(out.preparation, Decode(in.preparation()));
  OCTAVO_ASSIGN_OR_RETURN(out.center, Decode(in.center()));
  OCTAVO_ASSIGN_OR_RETURN(out.reconstruction, Decode(in.reconstruction()));
  if (in.has_try_centers()) {
    const auto& t = in.try_centers();
    OCTAVO_RETURN_IF_ERROR(CheckFinite("tomography.try_centers.begin", t.begin()));
    OCTAVO_RETURN_IF_ERROR(CheckFinite("tomography.try_centers.end", t.end()));
    OCTAVO_RETURN_IF_ERROR(CheckFinite("tomography.try_centers.step", t.step()));
    if (t.step() <= 0)
      return FieldNotAllowed("tomography.try_centers.step", t.step(), "a number above 0");
    if (t.end() < t.begin())
      return InvalidField("tomography.try_centers.end",
                          absl::StrCat("is ", t.end(), "; allowed ", t.begin(), " or more"));
    if ((t.end() - t.begin()) / t.step() > 1023.5)
      return InvalidField("tomography.try_centers", "names more than 1024 axes; allowed 1 to 1024");
    out.try_centers =
        model::TryCentersSpec{.begin = t.begin(), .end = t.end(), .step = t.step(), .row = {}};
    if (t.has_row()) out.try_centers->row = t.row();
  }
  out.initial_volume = in.initial_volume();
  if (!out.initial_volume.empty() && !IsIterative(out.reconstruction.algorithm)) {
    return InvalidField(
        "tomography.initial_volume",
        absl::StrCat("is ", out.initial_volume,
                     "; allowed only with SIRT, MLEM, CGLS and TV, which begin with an "
                     "image; reconstruction.algorithm is another one"));
  }
  if (in.slices_per_batch() > 4096) {
    return FieldNotAllowed("tomography.slices_per_batch", in.slices_per_batch(),
                           "0 (chosen) to 4096");
  }
  out.slices_per_batch = in.slices_per_batch();
  if (!v1::ResultPlace_IsValid(in.place()))
    return InvalidField("tomography.place",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.place())));
  out.place = static_cast<model::ResultPlace>(in.place());
  OCTAVO_RETURN_IF_ERROR(CheckFinite("tomography.pixel_size_um", in.pixel_size_um()));
  if (in.pixel_size_um() < 0)
    return FieldNotAllowed("tomography.pixel_size_um", in.pixel_size_um(), "0 (not known) or more");
  out.pixel_size_um = in.pixel_size_um();
  OCTAVO_ASSIGN_OR_RETURN(out.samples, Decode(in.samples()));
  OCTAVO_ASSIGN_OR_RETURN(out.output, DecodeOutput(in));
  if (in.has_series()) {
    OCTAVO_ASSIGN_OR_RETURN(out.series, Decode(in.series()));
    if (in.has_try_centers())
      return InvalidField("tomography.try_centers",
                          "is given together with series, and a series of trials shows no volume; "
                          "allowed one of the two");
  }
  OCTAVO_ASSIGN_OR_RETURN(out.half_turn, DecodeHalfTurn(in, out.preparation));
  out.encoded = FixedBytes(in);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  (void)google::protobuf::util::MessageToJsonString(in, &out.json, options);
  return out;
}

void EncodeTomography(const model::TomographySpec& in, v1::TomographyJob* out) {
  out->ParseFromString(in.encoded);
}

namespace {

void Encode(const model::AxisLineReport& in, v1::AxisLine* out) {
  for (const model::AxisLineReport::Group& group : in.groups) {
    auto* const to = out->add_groups();
    to->set_first_row(static_cast<uint32_t>(group.first_row));
    to->set_rows(static_cast<uint32_t>(group.rows));
    to->set_center(group.center);
    to->set_uncertainty(group.uncertainty);
    to->set_used(group.used);
    to->set_residual(group.residual);
  }
  out->set_offset(in.offset);
  out->set_slope(in.slope);
  out->set_offset_uncertainty(in.offset_uncertainty);
  out->set_slope_uncertainty(in.slope_uncertainty);
  out->set_tilt_degrees(in.tilt_degrees);
  out->set_residual_rms(in.residual_rms);
  out->set_leans(in.leans);
  out->set_turned_degrees(in.turned_degrees);
  for (const model::AxisLineReport::Round& round : in.rounds) {
    auto* const to = out->add_rounds();
    to->set_tilt_degrees(round.tilt_degrees);
    to->set_uncertainty_degrees(round.uncertainty_degrees);
    to->set_groups_used(static_cast<uint32_t>(round.groups_used));
    to->set_turned_degrees(round.turned_degrees);
    to->set_remaining_degrees(round.remaining_degrees);
  }
}

}  // namespace

void EncodeTomographyReport(const model::TomographyReport& in, v1::TomographyReport* out) {
  out->mutable_centers()->Add(in.centers.begin(), in.centers.end());
  out->set_center_source(static_cast<v1::TomographyReport::CenterSource>(in.center_source));
  out->set_batches(static_cast<uint32_t>(in.batches));
  out->set_slices_per_batch(static_cast<uint32_t>(in.slices_per_batch));
  out->set_iterations(static_cast<uint64_t>(in.iterations));
  out->set_stop(static_cast<v1::TomographyReport::Stop>(in.stop));
  out->set_residual_norm(in.residual_norm);
  out->set_relative_residual(in.relative_residual);
  out->set_relative_change(in.relative_change);
  out->set_variation_gap(in.variation_gap);
  out->mutable_tried_centers()->Add(in.tried_centers.begin(), in.tried_centers.end());
  out->mutable_scores()->Add(in.scores.begin(), in.scores.end());
  out->set_center_at_edge(in.center_at_edge);
  out->set_center_check(in.center_check);
  if (in.center_check_method.has_value())
    out->set_center_check_method(EncodeMethod(*in.center_check_method));
  out->set_center_uncertainty(in.center_uncertainty);
  out->set_overlap(in.overlap);
  out->set_outliers(in.outliers);
  out->set_not_finite(in.not_finite);
  out->set_floored(in.floored);
  out->set_unlit(in.unlit);
  if (in.algorithm.has_value()) out->set_algorithm(EncodeAlgorithm(*in.algorithm));
  out->set_low(in.low);
  out->set_high(in.high);
  out->set_clipped_below(in.clipped_below);
  out->set_clipped_above(in.clipped_above);
  if (in.axis_line.has_value()) Encode(*in.axis_line, out->mutable_axis_line());
  out->set_series_volumes(static_cast<uint32_t>(in.series_volumes));
  out->set_series_planned(static_cast<uint32_t>(in.series_planned));
  for (const model::HalfTurnReport& half : in.half_turns) {
    auto* const to = out->add_half_turns();
    to->set_begin(static_cast<uint32_t>(half.begin));
    to->set_end(static_cast<uint32_t>(half.end));
    to->set_used(half.used);
    to->set_mass_deviation(half.mass_deviation);
    to->set_center_deviation(half.center_deviation);
    to->set_score(half.score);
  }
  if (in.opposite.has_value()) {
    out->add_opposite_projections(static_cast<uint32_t>(in.opposite->first));
    out->add_opposite_projections(static_cast<uint32_t>(in.opposite->second));
    out->set_opposite_degrees(in.opposite->degrees);
  }
  out->set_flat_components(static_cast<uint32_t>(in.flat_components));
  out->set_largest_flat_weight(in.largest_flat_weight);
  out->mutable_row_shifts()->Add(in.row_shifts.begin(), in.row_shifts.end());
  out->set_row_shift_uncertainty(in.row_shift_uncertainty);
  for (const model::MosaicTileReport& tile : in.mosaic_tiles) {
    auto* const to = out->add_mosaic_tiles();
    to->set_first_column(tile.first_column);
    to->set_first_row(tile.first_row);
    to->set_correlation(tile.correlation);
    to->set_found(tile.found);
  }
}

}  // namespace octavo::rpc
