#include "server/rpc/convert/array_operation.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/fixed_bytes.h"

namespace octavo::rpc {
namespace {

std::vector<int64_t> Numbers(const google::protobuf::RepeatedField<int64_t>& in) {
  return {in.begin(), in.end()};
}
math::Number NumberOf(const v1::ArrayOperation::Complex& in) { return {in.re(), in.im()}; }
absl::Status Finite(const std::string& field, const v1::ArrayOperation::Complex& in) {
  if (std::isfinite(in.re()) && std::isfinite(in.im())) return absl::OkStatus();
  return InvalidField(field, "is not finite");
}

/// The axis of an operation that works along one.
template <class In>
absl::StatusOr<int64_t> AxisOf(const std::string& operation, const In& in) {
  if (in.has_axis()) return in.axis();
  return InvalidField(operation + ".axis",
                      "is not given; allowed are the axes of the array, from 0, the slowest (of "
                      "volumes: 0 = y, 1 = x, 2 = z), or from the end, -1");
}

// -- second arrays: buffers by their names

/// Volumes take no second arrays.
absl::Status NeedsBuffers(const std::string& field, const std::vector<std::string>* others) {
  if (others != nullptr) return absl::OkStatus();
  return InvalidField(
      field, "needs a second array, which volumes do not take; allowed in ApplyOp, on buffers");
}
absl::StatusOr<ArrayRef> NamedArray(const std::string& field, const std::string& name,
                                    std::vector<std::string>* others) {
  if (name.empty()) return InvalidField(field, "is empty; name a buffer");
  others->push_back(name);
  return ArrayRef{others->size() - 1};
}
/// An empty name is none.
absl::StatusOr<ArrayRef> MaskOf(const std::string& field, const std::string& name,
                                std::vector<std::string>* others) {
  if (name.empty()) return ArrayRef{};
  OCTAVO_RETURN_IF_ERROR(NeedsBuffers(field, others));
  return NamedArray(field, name, others);
}
/// The second array that an operation cannot do without; volumes have none.
absl::StatusOr<size_t> OtherOf(const std::string& operation, const char* field,
                               const std::string& name, std::vector<std::string>* others) {
  OCTAVO_RETURN_IF_ERROR(NeedsBuffers(operation, others));
  OCTAVO_ASSIGN_OR_RETURN(const ArrayRef other,
                          NamedArray(absl::StrCat(operation, ".", field), name, others));
  return other.index;
}

// -- sampling at positions

absl::StatusOr<math::Sampling> SamplingOf(const std::string& operation, int sampling) {
  if (v1::Sampling_IsValid(sampling)) return static_cast<math::Sampling>(sampling);
  return InvalidField(operation + ".sampling", absl::StrCat("has the unknown value ", sampling));
}

/// The fields that all operations which sample at positions have.
template <class In>
absl::StatusOr<SamplingRules> RulesOf(const std::string& operation, const In& in) {
  SamplingRules rules{.constant = NumberOf(in.constant()),
                      .prefilter = !in.has_prefilter() || in.prefilter()};
  OCTAVO_ASSIGN_OR_RETURN(rules.sampling, SamplingOf(operation, in.sampling()));
  if (!v1::SampleEdge_IsValid(in.edge()))
    return InvalidField(operation + ".edge",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.edge())));
  rules.edge = static_cast<math::SampleEdge>(in.edge());
  return rules;
}

// -- filters

absl::StatusOr<math::Edge> DecodeEdge(const std::string& operation, int edge) {
  if (edge == v1::FILTER_EDGE_UNSPECIFIED) return math::Edge::kReflect;
  if (v1::FilterEdge_IsValid(edge)) return static_cast<math::Edge>(edge);
  return InvalidField(operation + ".edge", absl::StrCat("has the unknown value ", edge));
}

/// A length along each axis, in samples or in um.
absl::StatusOr<std::vector<double>> LengthsOf(const std::string& operation, const char* name,
                                              std::vector<double> samples, std::vector<double> um,
                                              model::OpSpec* in_um) {
  if (um.empty()) {
    if (!samples.empty()) return samples;
    return InvalidField(absl::StrCat(operation, ".", name),
                        absl::StrCat("is empty; give it, or ", name, "_um of a volume"));
  }
  const std::string field = absl::StrCat(operation, ".", name, "_um");
  if (in_um == nullptr) return InvalidField(field, "is given; only volumes have a spacing");
  if (!samples.empty())
    return InvalidField(field, absl::StrCat("is given along with ", name, "; give one of them"));
  in_um->filter_um = true;
  return um;
}

absl::StatusOr<Op> DecodeGaussian(const std::string& at,
                                  const v1::ArrayOperation::GaussianParameters& in,
                                  model::OpSpec* in_um) {
  GaussianOp op{.order = {in.order().begin(), in.order().end()},
                .truncate = in.truncate() == 0 ? 4 : in.truncate(),
                .value = in.edge_value()};
  OCTAVO_ASSIGN_OR_RETURN(op.sigma, LengthsOf(at, "sigma", {in.sigma().begin(), in.sigma().end()},
                                              {in.sigma_um().begin(), in.sigma_um().end()}, in_um));
  OCTAVO_ASSIGN_OR_RETURN(op.edge, DecodeEdge(at, in.edge()));
  return op;
}

absl::StatusOr<Op> DecodeUniform(const std::string& at,
                                 const v1::ArrayOperation::UniformParameters& in,
                                 model::OpSpec* in_um) {
  UniformOp op{.value = in.edge_value()};
  OCTAVO_ASSIGN_OR_RETURN(op.size, LengthsOf(at, "size", {in.size().begin(), in.size().end()},
                                             {in.size_um().begin(), in.size_um().end()}, in_um));
  OCTAVO_ASSIGN_OR_RETURN(op.edge, DecodeEdge(at, in.edge()));
  return op;
}

// -- functions and choices

absl::Status CheckBase(const std::string& operation, int base) {
  if (v1::ArrayOperation::LogarithmParameters::Base_IsValid(base)) return absl::OkStatus();
  return InvalidField(operation + ".base", absl::StrCat("has the unknown value ", base));
}

absl::StatusOr<ThresholdOp> DecodeThreshold(const std::string& at,
                                            const v1::ArrayOperation::ThresholdParameters& in) {
  using Parameters = v1::ArrayOperation::ThresholdParameters;
  switch (in.threshold_case()) {
    case Parameters::kValue: return ThresholdOp{.value = in.value()};
    case Parameters::kOtsu:
      return ThresholdOp{.otsu = true, .bins = in.otsu().bins() == 0 ? 256 : in.otsu().bins()};
    case Parameters::THRESHOLD_NOT_SET: break;
  }
  return InvalidField(at + ".value", "is not given; give it, or otsu");
}

absl::StatusOr<Op> DecodeSelect(const std::string& at,
                                const v1::ArrayOperation::SelectParameters& in,
                                std::vector<std::string>* others) {
  ChooseOp op;
  if (in.has_above()) {
    OCTAVO_ASSIGN_OR_RETURN(op.threshold, DecodeThreshold(at + ".above", in.above()));
  } else {
    if (!in.has_mask()) return InvalidField(at + ".mask", "is not given; give it, or above");
    OCTAVO_RETURN_IF_ERROR(NeedsBuffers(at + ".mask", others));
    OCTAVO_ASSIGN_OR_RETURN(op.mask, NamedArray(at + ".mask", in.mask(), others));
  }
  if (in.has_other()) {
    OCTAVO_RETURN_IF_ERROR(NeedsBuffers(at + ".other", others));
    OCTAVO_ASSIGN_OR_RETURN(op.other, NamedArray(at + ".other", in.other(), others));
  }
  op.value = NumberOf(in.value());
  return op;
}

absl::StatusOr<Op> DecodeArgExtreme(math::Extreme extreme, const std::string& at,
                                    const v1::ArrayOperation::ArgExtremeParameters& in,
                                    std::vector<std::string>* others) {
  ArgExtremeOp op{.extreme = extreme, .keep_dims = in.keep_dims(), .skip_nan = in.skip_nan()};
  OCTAVO_ASSIGN_OR_RETURN(op.axis, AxisOf(at, in));
  OCTAVO_ASSIGN_OR_RETURN(op.mask, MaskOf(at + ".mask", in.mask(), others));
  return op;
}

absl::StatusOr<Op> DecodeSurface(const std::string& at,
                                 const v1::ArrayOperation::SurfaceParameters& in,
                                 std::vector<std::string>* others, model::OpSpec* in_um) {
  if (!v1::ArrayOperation::SurfaceParameters::Algorithm_IsValid(in.algorithm()))
    return InvalidField(at + ".algorithm",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.algorithm())));
  SurfaceOp op{.keep_dims = in.keep_dims(),
               .method = static_cast<SurfaceMethod>(in.algorithm()),
               .thickness = in.thickness(),
               .tile = Numbers(in.tile()),
               .zero_is_data = in.zero_is_data(),
               .detect_cutting_errors = in.detect_cutting_errors()};
  OCTAVO_ASSIGN_OR_RETURN(op.axis, AxisOf(at, in));
  OCTAVO_ASSIGN_OR_RETURN(op.mask, MaskOf(at + ".mask", in.mask(), others));
  if (in.has_sigma()) op.sigma = in.sigma();
  if (in.has_lateral_sigma()) op.lateral_sigma = in.lateral_sigma();
  if (in.has_lateral_size()) op.lateral_size = in.lateral_size();
  if (in.has_order()) op.order = in.order();
  if (in.has_logarithm()) op.logarithm = in.logarithm();
  if (in.thickness_um() == 0) return op;
  if (in_um == nullptr)
    return InvalidField(at + ".thickness_um", "is given; only volumes have a spacing");
  if (in.thickness() != 0)
    return InvalidField(at + ".thickness_um", "is given along with thickness; give one of them");
  op.thickness = in.thickness_um();
  in_um->filter_um = true;
  return op;
}

absl::StatusOr<FlatMethod> FlatMethodOf(const std::string& at, int method) {
  if (v1::ArrayOperation::FlatFieldParameters::Algorithm_IsValid(method))
    return static_cast<FlatMethod>(method);
  return InvalidField(at + ".algorithm", absl::StrCat("has the unknown value ", method));
}
absl::StatusOr<Op> DecodeFlatField(const std::string& at,
                                   const v1::ArrayOperation::FlatFieldParameters& in) {
  FlatFieldOp op{.smoothness = in.smoothness()};
  OCTAVO_ASSIGN_OR_RETURN(op.method, FlatMethodOf(at, in.algorithm()));
  return op;
}
absl::StatusOr<Op> DecodeFocalCurvature(const std::string& at,
                                        const v1::ArrayOperation::FocalCurvatureParameters& in) {
  FocalCurvatureOp op{.tile = Numbers(in.tile()), .smoothness = in.smoothness()};
  OCTAVO_ASSIGN_OR_RETURN(op.method, FlatMethodOf(at, in.algorithm()));
  return op;
}
/// Volumes are not mosaics: these operations are for buffers.
absl::Status OnBuffers(const std::string& at, const std::vector<std::string>* others) {
  if (others != nullptr) return absl::OkStatus();
  return InvalidField(at, "is of tiles, which volumes do not have; allowed in ApplyOp, on buffers");
}

absl::StatusOr<Op> DecodeProjection(math::Reduction kind, const char* name, const std::string& at,
                                    const v1::ArrayOperation::ProjectParameters& in) {
  SlabOp op{.kind = kind, .keep_dims = in.keep_dims(), .called = name};
  OCTAVO_ASSIGN_OR_RETURN(op.axis, AxisOf(absl::StrCat(at, ".", name), in));
  return op;
}

}  // namespace

absl::StatusOr<Scalar> DecodeScalar(const std::string& field, int scalar) {
  if (v1::Dtype_IsValid(scalar)) return static_cast<Scalar>(scalar);
  return InvalidField(field, absl::StrCat("has the unknown value ", scalar));
}

absl::StatusOr<Op> DecodeArrayOperation(const v1::ArrayOperation& in, const std::string& at,
                                        std::vector<std::string>* others, model::OpSpec* in_um) {
  using Case = v1::ArrayOperation::OperationCase;
  switch (in.operation_case()) {
    case Case::kCopy: return CopyOp{};
    case Case::kFill: return FillOp{.value = NumberOf(in.fill().value())};
    case Case::kCrop:
      return CropOp{.start = Numbers(in.crop().start()), .count = Numbers(in.crop().count())};
    case Case::kScale: {
      const auto& scale = in.scale();
      ScaleOp op;
      OCTAVO_ASSIGN_OR_RETURN(op.scalar,
                              DecodeScalar(absl::StrCat(at, ".scale.type"), scale.type()));
      if (!v1::ComplexPart_IsValid(scale.part()))
        return InvalidField(absl::StrCat(at, ".scale.part"),
                            absl::StrCat("has the unknown value ", static_cast<int>(scale.part())));
      OCTAVO_RETURN_IF_ERROR(Finite(absl::StrCat(at, ".scale.multiply"), scale.multiply()));
      OCTAVO_RETURN_IF_ERROR(Finite(absl::StrCat(at, ".scale.add"), scale.add()));
      op.part = static_cast<math::Part>(scale.part());
      if (scale.has_multiply()) op.multiply = NumberOf(scale.multiply());
      op.add = NumberOf(scale.add());
      return op;
    }
    case Case::kCombine: {
      const auto& combine = in.combine();
      if (!v1::ArrayOperation::CombineParameters::Kind_IsValid(combine.kind())) {
        return InvalidField(
            absl::StrCat(at, ".combine.kind"),
            absl::StrCat("has the unknown value ", static_cast<int>(combine.kind())));
      }
      CombineOp op{.kind = static_cast<Combination>(combine.kind())};
      OCTAVO_ASSIGN_OR_RETURN(
          op.other, OtherOf(absl::StrCat(at, ".combine"), "other", combine.other(), others));
      return op;
    }
    case Case::kReduce: {
      const auto& reduce = in.reduce();
      ReduceOp op{.kind = static_cast<math::Reduction>(reduce.kind()),
                  .axes = Numbers(reduce.axes()),
                  .keep_dims = reduce.keep_dims(),
                  .skip_nan = reduce.skip_nan(),
                  .part = static_cast<math::Part>(reduce.part())};
      OCTAVO_ASSIGN_OR_RETURN(op.scalar,
                              DecodeScalar(absl::StrCat(at, ".reduce.type"), reduce.type()));
      if (!v1::ReduceKind_IsValid(reduce.kind()))
        return InvalidField(
            absl::StrCat(at, ".reduce.kind"),
            absl::StrCat("has the unknown value ", static_cast<int>(reduce.kind())));
      if (!v1::ComplexPart_IsValid(reduce.part()))
        return InvalidField(
            absl::StrCat(at, ".reduce.part"),
            absl::StrCat("has the unknown value ", static_cast<int>(reduce.part())));
      OCTAVO_ASSIGN_OR_RETURN(op.mask,
                              MaskOf(absl::StrCat(at, ".reduce.mask"), reduce.mask(), others));
      return op;
    }
    case Case::kMip: return DecodeProjection(math::Reduction::kMax, "mip", at, in.mip());
    case Case::kAip: return DecodeProjection(math::Reduction::kMean, "aip", at, in.aip());
    case Case::kSlab: {
      const auto& slab = in.slab();
      if (!v1::ReduceKind_IsValid(slab.kind()))
        return InvalidField(absl::StrCat(at, ".slab.kind"),
                            absl::StrCat("has the unknown value ", static_cast<int>(slab.kind())));
      SlabOp op{.kind = slab.kind() == v1::REDUCE_KIND_UNSPECIFIED
                            ? math::Reduction::kMax
                            : static_cast<math::Reduction>(slab.kind()),
                .begin = slab.begin(),
                .end = slab.end(),
                .keep_dims = slab.keep_dims()};
      OCTAVO_ASSIGN_OR_RETURN(op.axis, AxisOf(absl::StrCat(at, ".slab"), slab));
      if (slab.begin_um() != 0 || slab.end_um() != 0) {
        if (in_um == nullptr)
          return InvalidField(absl::StrCat(at, ".slab.begin_um"),
                              "is given; only volumes have a spacing");
        if (slab.begin() != 0 || slab.end() != 0)
          return InvalidField(absl::StrCat(at, ".slab.begin"),
                              "is given along with a range in um; give one of them");
        if (!(slab.begin_um() >= 0 && slab.end_um() > slab.begin_um()) ||
            !std::isfinite(slab.end_um())) {
          return InvalidField(absl::StrCat(at, ".slab.end_um"),
                              absl::StrCat("is ", slab.end_um(), " from ", slab.begin_um(),
                                           "; allowed 0 <= begin_um < end_um"));
        }
        in_um->begin_um = slab.begin_um();
        in_um->end_um = slab.end_um();
      }
      return op;
    }
    case Case::kPercentile: {
      PercentileOp op{.percentiles = {in.percentile().percentiles().begin(),
                                      in.percentile().percentiles().end()},
                      .axes = Numbers(in.percentile().axes()),
                      .keep_dims = in.percentile().keep_dims()};
      OCTAVO_ASSIGN_OR_RETURN(
          op.mask, MaskOf(absl::StrCat(at, ".percentile.mask"), in.percentile().mask(), others));
      return op;
    }
    case Case::kHistogram: {
      HistogramOp op{.bins = in.histogram().bins() == 0 ? 256 : in.histogram().bins(),
                     .lo = in.histogram().lo(),
                     .hi = in.histogram().hi()};
      OCTAVO_ASSIGN_OR_RETURN(
          op.mask, MaskOf(absl::StrCat(at, ".histogram.mask"), in.histogram().mask(), others));
      return op;
    }
    case Case::kFft: {
      FftOp op{.inverse = in.fft().inverse()};
      OCTAVO_ASSIGN_OR_RETURN(op.axis, AxisOf(absl::StrCat(at, ".fft"), in.fft()));
      return op;
    }
    case Case::kResize: {
      if (!v1::ResizeEdge_IsValid(in.resize().edge())) {
        return InvalidField(
            absl::StrCat(at, ".resize.edge"),
            absl::StrCat("has the unknown value ", static_cast<int>(in.resize().edge())));
      }
      ResizeOp op{.shape = Numbers(in.resize().shape()),
                  .corner_aligned = in.resize().corner_aligned(),
                  .anti_aliasing = !in.resize().has_anti_aliasing() || in.resize().anti_aliasing(),
                  .edge = static_cast<ResizeEdge>(in.resize().edge())};
      OCTAVO_ASSIGN_OR_RETURN(op.sampling,
                              SamplingOf(absl::StrCat(at, ".resize"), in.resize().sampling()));
      return op;
    }
    case Case::kAffine: {
      AffineOp op{.matrix = {in.affine().matrix().begin(), in.affine().matrix().end()},
                  .offset = {in.affine().offset().begin(), in.affine().offset().end()},
                  .shape = Numbers(in.affine().shape())};
      OCTAVO_ASSIGN_OR_RETURN(op.rules, RulesOf(absl::StrCat(at, ".affine"), in.affine()));
      return op;
    }
    case Case::kMapCoordinates: {
      const std::string operation = absl::StrCat(at, ".map_coordinates");
      MapCoordinatesOp op{.shape = Numbers(in.map_coordinates().shape())};
      OCTAVO_ASSIGN_OR_RETURN(op.rules, RulesOf(operation, in.map_coordinates()));
      OCTAVO_ASSIGN_OR_RETURN(
          op.other, OtherOf(operation, "coordinates", in.map_coordinates().coordinates(), others));
      return op;
    }
    case Case::kDisplace: {
      const std::string operation = absl::StrCat(at, ".displace");
      DisplaceOp op;
      OCTAVO_ASSIGN_OR_RETURN(op.rules, RulesOf(operation, in.displace()));
      OCTAVO_ASSIGN_OR_RETURN(op.other, OtherOf(operation, "field", in.displace().field(), others));
      return op;
    }
    case Case::kShift: {
      const std::string operation = absl::StrCat(at, ".shift");
      ShiftOp op;
      OCTAVO_ASSIGN_OR_RETURN(op.axis, AxisOf(operation, in.shift()));
      OCTAVO_ASSIGN_OR_RETURN(op.rules, RulesOf(operation, in.shift()));
      OCTAVO_ASSIGN_OR_RETURN(op.other,
                              OtherOf(operation, "amounts", in.shift().amounts(), others));
      return op;
    }
    case Case::kFlip: return FlipOp{.axes = Numbers(in.flip().axes())};
    case Case::kTranspose: return TransposeOp{.axes = Numbers(in.transpose().axes())};
    case Case::kGaussian: return DecodeGaussian(at + ".gaussian", in.gaussian(), in_um);
    case Case::kUniform: return DecodeUniform(at + ".uniform", in.uniform(), in_um);
    case Case::kMedian: {
      MedianOp op{.size = in.median().size() == 0 ? 3 : in.median().size(),
                  .axes = Numbers(in.median().axes())};
      OCTAVO_ASSIGN_OR_RETURN(op.edge, DecodeEdge(at + ".median", in.median().edge()));
      return op;
    }
    case Case::kLogarithm: {
      OCTAVO_RETURN_IF_ERROR(CheckBase(at + ".logarithm", in.logarithm().base()));
      const bool ten = in.logarithm().base() == v1::ArrayOperation::LogarithmParameters::BASE_TEN;
      return FunctionOp{.function = ten ? math::Function::kLog10 : math::Function::kLn,
                        .keep_rest = in.logarithm().keep_rest()};
    }
    case Case::kExponential: {
      OCTAVO_RETURN_IF_ERROR(CheckBase(at + ".exponential", in.exponential().base()));
      const bool ten = in.exponential().base() == v1::ArrayOperation::LogarithmParameters::BASE_TEN;
      return FunctionOp{.function = ten ? math::Function::kExp10 : math::Function::kExp};
    }
    case Case::kThreshold: return DecodeThreshold(at + ".threshold", in.threshold());
    case Case::kSelect: return DecodeSelect(at + ".select", in.select(), others);
    case Case::kArgmin:
      return DecodeArgExtreme(math::Extreme::kMin, at + ".argmin", in.argmin(), others);
    case Case::kArgmax:
      return DecodeArgExtreme(math::Extreme::kMax, at + ".argmax", in.argmax(), others);
    case Case::kPaste: {
      PasteOp op{.start = Numbers(in.paste().start())};
      OCTAVO_ASSIGN_OR_RETURN(op.other,
                              OtherOf(at + ".paste", "other", in.paste().other(), others));
      return op;
    }
    case Case::kConcatenate: {
      ConcatenateOp op;
      OCTAVO_RETURN_IF_ERROR(NeedsBuffers(at + ".concatenate", others));
      OCTAVO_ASSIGN_OR_RETURN(op.axis, AxisOf(at + ".concatenate", in.concatenate()));
      for (const std::string& name : in.concatenate().others()) {
        OCTAVO_ASSIGN_OR_RETURN(
            const ArrayRef other,
            NamedArray(absl::StrCat(at, ".concatenate.others[", op.others.size(), "]"), name,
                       others));
        op.others.push_back(other.index);
      }
      return op;
    }
    case Case::kSurface: return DecodeSurface(at + ".surface", in.surface(), others, in_um);
    case Case::kFlatField:
      OCTAVO_RETURN_IF_ERROR(OnBuffers(at + ".flat_field", others));
      return DecodeFlatField(at + ".flat_field", in.flat_field());
    case Case::kFlatten: {
      FlattenOp op{.axes = Numbers(in.flatten().axes())};
      OCTAVO_ASSIGN_OR_RETURN(op.flat,
                              OtherOf(at + ".flatten", "flat", in.flatten().flat(), others));
      return op;
    }
    case Case::kFocalCurvature:
      OCTAVO_RETURN_IF_ERROR(OnBuffers(at + ".focal_curvature", others));
      return DecodeFocalCurvature(at + ".focal_curvature", in.focal_curvature());
    case Case::OPERATION_NOT_SET: break;
  }
  return InvalidField(
      at,
      "is empty; allowed: copy, fill, crop, scale, combine, reduce, mip, aip, "
      "slab, percentile, histogram, fft, resize, flip, transpose, affine, map_coordinates, "
      "displace, shift, gaussian, uniform, median, logarithm, exponential, threshold, select, "
      "argmin, argmax, paste, concatenate, surface, flat_field, flatten, focal_curvature");
}

absl::StatusOr<model::OpSpec> DecodeVolumeOperation(const v1::ArrayOperation& in,
                                                    const std::string& at) {
  model::OpSpec out;
  OCTAVO_ASSIGN_OR_RETURN(out.op, DecodeArrayOperation(in, at, nullptr, &out));
  return out;
}

absl::StatusOr<std::shared_ptr<const model::DerivedVolumeRecipes>> DecodeChains(
    const google::protobuf::RepeatedPtrField<v1::VolumeChain>& in) {
  if (in.empty()) return std::shared_ptr<const model::DerivedVolumeRecipes>();
  if (in.size() > 4)
    return InvalidField("chains", absl::StrCat("has ", in.size(), " entries; allowed 4"));
  auto out = std::make_shared<model::DerivedVolumeRecipes>();
  for (int i = 0; i < in.size(); ++i) {
    const std::string at = absl::StrCat("chains[", i, "]");
    const std::string& name = in[i].name();
    if (name.empty() || name.size() > 63 ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") != std::string::npos) {
      return InvalidField(absl::StrCat(at, ".name"),
                          absl::StrCat("is '", name, "'; allowed are 1 to 63 of a-z 0-9 _ . -"));
    }
    for (const auto& other : out->chains) {
      if (other.name == name)
        return InvalidField(absl::StrCat(at, ".name"),
                            absl::StrCat("is '", name, "' a second time"));
    }
    model::DerivedVolumeRecipe chain{.name = name, .operations = {}};
    if (in[i].operations().empty() || in[i].operations_size() > 8) {
      return InvalidField(
          absl::StrCat(at, ".operations"),
          absl::StrCat("has ", in[i].operations_size(), " operations; allowed 1 to 8"));
    }
    for (int j = 0; j < in[i].operations_size(); ++j) {
      OCTAVO_ASSIGN_OR_RETURN(
          model::OpSpec operation,
          DecodeVolumeOperation(in[i].operations(j), absl::StrCat(at, ".operations[", j, "]")));
      chain.operations.push_back(std::move(operation));
    }
    out->chains.push_back(std::move(chain));
    out->encoded.push_back(FixedBytes(in[i]));
  }
  return out;
}

void EncodeChains(const model::DerivedVolumeRecipes* in,
                  google::protobuf::RepeatedPtrField<v1::VolumeChain>* out) {
  if (in == nullptr) return;
  for (const std::string& chain : in->encoded) (void)out->Add()->ParseFromString(chain);
}

}  // namespace octavo::rpc
