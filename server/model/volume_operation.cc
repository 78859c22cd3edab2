#include "server/model/volume_operation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"

namespace octavo::model {
namespace {

Quantity QuantityOf(math::Reduction kind) {
  constexpr Quantity kQuantities[] = {Quantity::kNone, Quantity::kSum,  Quantity::kMin,
                                      Quantity::kMax,  Quantity::kMean, Quantity::kStd};
  return kQuantities[static_cast<int>(kind)];
}

const char* NameOfReduction(math::Reduction kind) {
  constexpr const char* kNames[] = {"?", "sum", "min", "max", "mean", "std"};
  return kNames[static_cast<int>(kind)];
}

/// How it was sampled, as the end of an operation in words; linear is the rule.
const char* WordsOf(math::Sampling sampling) {
  return sampling == math::Sampling::kNearest ? ", nearest"
         : sampling == math::Sampling::kCubic ? ", cubic"
                                              : "";
}

/// Puts axis order[d] at place d.
void Permute(const int (&order)[3], VolumeStatus* state) {
  const VolumeStatus before = *state;
  for (int d = 0; d < 3; ++d) {
    state->shape[d] = before.shape[order[d]];
    state->spacing_um[d] = before.spacing_um[order[d]];
    state->spacing_assumed[d] = before.spacing_assumed[order[d]];
    state->spacing_inverse[d] = before.spacing_inverse[order[d]];
    state->axes[d] = before.axes[order[d]];
  }
}

/// The samples along the axis are no places any more.
void CountSamples(int axis, VolumeStatus* state) {
  state->spacing_um[axis] = 1;
  state->spacing_assumed[axis] = true;
  state->spacing_inverse[axis] = false;
}

/// Several percentiles over `reduced` (empty = all axes): the axes that are reduced come first, and
/// the last of them counts the percentiles.
void DescribePercentiles(const std::vector<int64_t>& reduced, VolumeStatus* state) {
  bool goes[3] = {reduced.empty(), reduced.empty(), reduced.empty()};
  for (const int64_t axis : reduced) goes[axis < 0 ? axis + 3 : axis] = true;
  int order[3], count = 0;
  for (const bool first : {true, false}) {
    for (int d = 0; d < 3; ++d) {
      if (goes[d] == first) order[count++] = d;
    }
  }
  Permute(order, state);
  const auto last = static_cast<int>(std::count(goes, goes + 3, true)) - 1;
  for (int d = 0; d < last; ++d) state->spacing_um[d] *= static_cast<double>(state->shape[d]);
  CountSamples(last, state);
}

/// The spacing of an affine result: the lengths of its steps in the source. Whether each axis may
/// be taken together with the others is checked first.
absl::Status DescribeAffine(const AffineOp& affine, const std::string& at, VolumeStatus* state) {
  const VolumeStatus before = *state;
  const auto factor = [&](int d, int e) { return affine.matrix[static_cast<size_t>(3 * d + e)]; };
  for (int e = 0; e < 3; ++e) {
    double square = 0;
    bool assumed = false, inverse = false, length = false;
    for (int d = 0; d < 3; ++d) {
      if (factor(d, e) == 0) continue;
      const double step = factor(d, e) * before.spacing_um[d];
      square += step * step;
      assumed |= before.spacing_assumed[d];
      (before.spacing_inverse[d] ? inverse : length) = true;
    }
    if (inverse && length) {
      return InvalidField(
          absl::StrCat(at, ".affine.matrix"),
          absl::StrCat("has a column ", e,
                       " that mixes frequencies and lengths; allowed are steps along axes of one "
                       "kind"));
    }
    if (square == 0) continue;
    state->spacing_um[e] = std::sqrt(square);
    state->spacing_assumed[e] = assumed;
    state->spacing_inverse[e] = inverse;
  }
  return absl::OkStatus();
}

/// Gives a filter whose lengths are in um the spacing that they are divided by.
absl::Status TakeSpacing(const VolumeStatus& state, const std::string& field,
                         const std::vector<double>& lengths, std::vector<double>* step) {
  for (size_t d = 0; d < 3; ++d) {
    const double length = lengths.size() == 1 ? lengths[0] : d < lengths.size() ? lengths[d] : 0;
    if (length == 0 || state.IsLength(static_cast<int>(d))) continue;
    const std::string given =
        absl::StrCat("[", lengths.size() == 1 ? 0 : d, "] is ", length, ", and ");
    return InvalidField(
        field,
        state.spacing_inverse[d]
            ? absl::StrCat(given, "axis ", d, " holds frequencies; allowed 0 there, or samples")
            : absl::StrCat(given, "nobody gave the sample spacing along axis ", d, " (",
                           state.axes[d], "); allowed 0 there, or samples"));
  }
  step->assign(state.spacing_um, state.spacing_um + 3);
  return absl::OkStatus();
}

std::string WordsFor(const ThresholdOp& op) {
  return op.otsu ? absl::StrCat("Otsu's threshold of ", op.bins, " bins") : absl::StrCat(op.value);
}

bool Differentiates(const GaussianOp& op) {
  return std::any_of(op.order.begin(), op.order.end(), [](int64_t order) { return order != 0; });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ArrayChain>> PlanVolumeOperation(const OpSpec& operation,
                                                                      const std::string& at,
                                                                      VolumeStatus* state) {
  Op op = operation.op;
  const ArrayType in{
      .scalar = ScalarOf(state->dtype), .lanes = 1, .dims = {state->shape, state->shape + 3}};
  // Volumes have three axes: a reduced axis stays with one sample.
  if (auto* reduce = std::get_if<ReduceOp>(&op)) reduce->keep_dims = true;
  if (auto* quantiles = std::get_if<PercentileOp>(&op)) quantiles->keep_dims = true;
  if (auto* histogram = std::get_if<HistogramOp>(&op)) histogram->scalar = Scalar::kF64;
  if (auto* place = std::get_if<ArgExtremeOp>(&op)) {
    place->keep_dims = true;
    place->scalar = Scalar::kF64;
  }
  if (auto* gaussian = std::get_if<GaussianOp>(&op); gaussian != nullptr && operation.filter_um) {
    OCTAVO_RETURN_IF_ERROR(TakeSpacing(*state, absl::StrCat(at, ".gaussian.sigma_um"),
                                       gaussian->sigma, &gaussian->step));
  }
  if (auto* uniform = std::get_if<UniformOp>(&op); uniform != nullptr && operation.filter_um) {
    OCTAVO_RETURN_IF_ERROR(
        TakeSpacing(*state, absl::StrCat(at, ".uniform.size_um"), uniform->size, &uniform->step));
  }
  if (auto* surface = std::get_if<SurfaceOp>(&op)) {
    surface->keep_dims = true;
    const int64_t axis = surface->axis < 0 ? surface->axis + 3 : surface->axis;
    if (operation.filter_um && axis >= 0 && axis < 3) {
      std::vector<double> lengths(3, 0.0), step;
      lengths[static_cast<size_t>(axis)] = surface->thickness;
      OCTAVO_RETURN_IF_ERROR(
          TakeSpacing(*state, absl::StrCat(at, ".surface.thickness_um"), lengths, &step));
      surface->step = step[static_cast<size_t>(axis)];
    }
  }
  if (auto* slab = std::get_if<SlabOp>(&op)) {
    slab->keep_dims = true;
    const int64_t axis = slab->axis < 0 ? slab->axis + 3 : slab->axis;
    if (operation.end_um > 0 && axis >= 0 && axis < 3) {
      if (state->spacing_inverse[axis]) {
        return InvalidField(absl::StrCat(at, ".slab.end_um"),
                            absl::StrCat("is given, and axis ", axis,
                                         " holds frequencies; allowed are begin and end"));
      }
      if (state->spacing_assumed[axis]) {
        return InvalidField(
            absl::StrCat(at, ".slab.end_um"),
            absl::StrCat("is given, and nobody gave the sample spacing along axis ", axis, " (",
                         state->axes[axis], "); allowed are begin and end, in samples"));
      }
      const double spacing = state->spacing_um[axis];
      // Thinner than a sample: most likely millimetres.
      if (const double thickness = operation.end_um - operation.begin_um; thickness < spacing / 2) {
        return InvalidField(absl::StrCat(at, ".slab.end_um"),
                            absl::StrCat("is ", thickness, " um above begin_um; a sample is ",
                                         spacing, " um, allowed is half of it or more"));
      }
      slab->begin = static_cast<int64_t>(std::floor(operation.begin_um / spacing));
      slab->end =
          std::min(static_cast<int64_t>(std::ceil(operation.end_um / spacing)), state->shape[axis]);
      if (slab->begin >= state->shape[axis]) {
        return InvalidField(absl::StrCat(at, ".slab.begin_um"),
                            absl::StrCat("is ", operation.begin_um, "; the volume ends at ",
                                         static_cast<double>(state->shape[axis]) * spacing));
      }
    }
  }
  auto planned = PlanChain({op}, in, {}, false, "operation");
  if (!planned.ok()) {
    // A chain of one operation names it operation[0].
    const ErrorInfo info = InfoOf(planned.status());
    const std::string own = absl::StrCat("operation[0].", NameOf(op)), name = NameOf(op);
    const auto rename = [&](const std::string& text) {
      if (text.rfind(own, 0) == 0) return absl::StrCat(at, ".", name, text.substr(own.size()));
      return text.rfind("operation[0]", 0) == 0 ? absl::StrCat(at, text.substr(12)) : text;
    };
    return WithInfo(
        absl::Status(planned.status().code(), rename(std::string(planned.status().message()))),
        {.reason = info.reason, .field = rename(info.field), .numbers = info.numbers});
  }
  const ArrayType& out = planned->out;
  if (!IsDType(out.scalar)) {
    return InvalidField(absl::StrCat(at, ".", NameOf(op)),
                        absl::StrCat("makes ", NameOf(out.scalar),
                                     "; volumes have u8, i8, u16, i16, f16, f32, f64, c64"));
  }
  int64_t shape[3] = {1, 1, 1};
  std::copy(out.dims.begin(), out.dims.end(), shape + 3 - out.dims.size());

  // The present order of the axes.
  std::string text = NameOf(op);
  bool same_quantity = true;
  bool same_range = true;  // the values lie where those before did: means of them, and percentiles
  const auto* percentile = std::get_if<PercentileOp>(&op);
  const bool several = percentile != nullptr && percentile->percentiles.size() > 1;
  const auto* const affine = std::get_if<AffineOp>(&op);
  if (affine != nullptr) OCTAVO_RETURN_IF_ERROR(DescribeAffine(*affine, at, state));
  for (int d = 0; d < 3 && !several && affine == nullptr; ++d) {
    const bool collapsed = shape[d] == 1 && state->shape[d] > 1;
    if (std::holds_alternative<ResizeOp>(op) && shape[d] != state->shape[d]) {
      const bool corners = std::get<ResizeOp>(op).corner_aligned;
      const auto from = static_cast<double>(state->shape[d]), to = static_cast<double>(shape[d]);
      state->spacing_um[d] *= corners && shape[d] > 1 ? (from - 1) / (to - 1) : from / to;
    } else if (collapsed && std::holds_alternative<SlabOp>(op)) {
      const auto& slab = std::get<SlabOp>(op);
      state->spacing_um[d] *=
          static_cast<double>((slab.end == 0 ? state->shape[d] : slab.end) - slab.begin);
    } else if (collapsed && !std::holds_alternative<CropOp>(op)) {
      state->spacing_um[d] *= static_cast<double>(state->shape[d]);
    }
  }
  if (const auto* transpose = std::get_if<TransposeOp>(&op)) {
    int order[3];
    for (int d = 0; d < 3; ++d) {
      const int64_t axis =
          transpose->axes.empty() ? 2 - d : transpose->axes[static_cast<size_t>(d)];
      order[d] = static_cast<int>(axis < 0 ? axis + 3 : axis);
    }
    Permute(order, state);
    text =
        absl::StrCat("transpose to ", state->axes[0], ", ", state->axes[1], ", ", state->axes[2]);
  } else if (const auto* crop = std::get_if<CropOp>(&op)) {
    text = absl::StrCat("crop to ", absl::StrJoin(out.dims, " x "), " from ",
                        crop->start.empty() ? "0, 0, 0" : absl::StrJoin(crop->start, ", "));
  } else if (const auto* reduce = std::get_if<ReduceOp>(&op)) {
    const bool extreme =
        reduce->kind == math::Reduction::kMin || reduce->kind == math::Reduction::kMax;
    same_quantity = extreme && reduce->part == math::Part::kAll;
    text = absl::StrCat(NameOfReduction(reduce->kind), " over axes ",
                        reduce->axes.empty() ? "0, 1, 2" : absl::StrJoin(reduce->axes, ", "));
    same_range = same_quantity ||
                 (reduce->kind == math::Reduction::kMean && reduce->part == math::Part::kAll);
    if (!same_quantity) state->quantity = QuantityOf(reduce->kind);
  } else if (const auto* slab = std::get_if<SlabOp>(&op)) {
    same_quantity = slab->kind == math::Reduction::kMax || slab->kind == math::Reduction::kMin;
    const int64_t axis = slab->axis < 0 ? slab->axis + 3 : slab->axis;
    text = absl::StrCat(NameOfReduction(slab->kind), " over axis ", axis, ", samples ", slab->begin,
                        " to ", slab->end == 0 ? in.dims[static_cast<size_t>(axis)] : slab->end);
    same_range = same_quantity || slab->kind == math::Reduction::kMean;
    if (!same_quantity) state->quantity = QuantityOf(slab->kind);
  } else if (const auto* fft = std::get_if<FftOp>(&op)) {
    const int64_t axis = fft->axis < 0 ? fft->axis + 3 : fft->axis;
    // The axis changes to cycles per um, or back.
    state->spacing_um[axis] =
        1 / (state->spacing_um[axis] * static_cast<double>(state->shape[axis]));
    state->spacing_inverse[axis] = !state->spacing_inverse[axis];
    same_quantity = same_range = false;
    text = absl::StrCat(fft->inverse ? "inverse " : "", "fft along axis ", axis);
    state->quantity = Quantity::kSpectrum;
  } else if (percentile != nullptr) {
    same_quantity = false;
    if (several) DescribePercentiles(percentile->axes, state);
    text = absl::StrCat("percentiles ", absl::StrJoin(percentile->percentiles, ", "));
    state->quantity = Quantity::kPercentile;
  } else if (std::holds_alternative<HistogramOp>(op)) {
    same_quantity = same_range = false;
    for (int d = 0; d < 3; ++d) CountSamples(d, state);
    text = absl::StrCat("histogram of ", std::get<HistogramOp>(op).bins, " bins");
    state->quantity = Quantity::kCount;
  } else if (const auto* scale = std::get_if<ScaleOp>(&op)) {
    const bool as_it_was = scale->multiply.re == 1 && scale->multiply.im == 0 &&
                           scale->add.re == 0 && scale->add.im == 0 &&
                           scale->part == math::Part::kAll;
    same_quantity = as_it_was && ScalarOf(state->dtype) == out.scalar;
    text = absl::StrCat("scale to ", NameOf(out.scalar), ": x ", scale->multiply.re, " + ",
                        scale->add.re);
    same_range = same_quantity;
    if (!same_quantity) state->quantity = Quantity::kScaled;
  } else if (std::holds_alternative<FillOp>(op)) {
    same_quantity = same_range = false;
    state->quantity = Quantity::kConstant;
  } else if (const auto* gaussian = std::get_if<GaussianOp>(&op)) {
    const bool derivative = Differentiates(*gaussian);
    text = absl::StrCat(
        "gaussian, sigma ", absl::StrJoin(gaussian->sigma, ", "), operation.filter_um ? " um" : "",
        derivative ? absl::StrCat(", order ", absl::StrJoin(gaussian->order, ", ")) : "");
    // A smoothed value is a mean of values; in the same type, it means what they did.
    same_range = !derivative;
    same_quantity = same_range && ScalarOf(state->dtype) == out.scalar;
    if (!same_quantity) state->quantity = derivative ? Quantity::kDerivative : Quantity::kMean;
  } else if (const auto* uniform = std::get_if<UniformOp>(&op)) {
    text = absl::StrCat("mean over ", absl::StrJoin(uniform->size, ", "),
                        operation.filter_um ? " um" : " samples");
    same_quantity = ScalarOf(state->dtype) == out.scalar;
    if (!same_quantity) state->quantity = Quantity::kMean;
  } else if (const auto* median = std::get_if<MedianOp>(&op)) {
    text = absl::StrCat("median of ", median->size, " samples along axes ",
                        median->axes.empty() ? "0, 1, 2" : absl::StrJoin(median->axes, ", "));
  } else if (const auto* function = std::get_if<FunctionOp>(&op)) {
    const bool logarithm = function->function <= math::Function::kLog10;
    same_quantity = same_range = false;
    text = absl::StrCat(
        NameOf(op), " to base ",
        function->function == math::Function::kLn || function->function == math::Function::kExp
            ? "e"
            : "10");
    state->quantity = logarithm ? Quantity::kLogarithm : Quantity::kExponential;
  } else if (const auto* threshold = std::get_if<ThresholdOp>(&op)) {
    same_quantity = same_range = false;
    text = absl::StrCat("above ", WordsFor(*threshold));
    state->quantity = Quantity::kMask;
  } else if (const auto* choose = std::get_if<ChooseOp>(&op)) {
    text = absl::StrCat("select above ", WordsFor(choose->threshold), ", else ", choose->value.re);
  } else if (const auto* place = std::get_if<ArgExtremeOp>(&op)) {
    same_quantity = same_range = false;
    text =
        absl::StrCat(NameOf(op), " along axis ", place->axis < 0 ? place->axis + 3 : place->axis);
    state->quantity = Quantity::kIndex;
  } else if (const auto* surface = std::get_if<SurfaceOp>(&op)) {
    same_quantity = same_range = false;
    text = absl::StrCat(
        "surface along axis ", surface->axis < 0 ? surface->axis + 3 : surface->axis,
        surface->method == SurfaceMethod::kGradient ? ", steepest rise" : ", Otsu's threshold");
    state->quantity = Quantity::kIndex;
  } else if (std::holds_alternative<ResizeOp>(op)) {
    text = absl::StrCat("resize to ", absl::StrJoin(out.dims, " x "),
                        WordsOf(std::get<ResizeOp>(op).sampling));
  } else if (affine != nullptr) {
    text =
        absl::StrCat("affine to ", absl::StrJoin(out.dims, " x "), WordsOf(affine->rules.sampling),
                     ", matrix ", absl::StrJoin(affine->matrix, " "), ", offset ",
                     affine->offset.empty() ? "0 0 0" : absl::StrJoin(affine->offset, " "));
  }
  // Levels give the meaning of stored integers: they stay valid as long as the values are the
  // stored ones.
  if (!same_quantity) state->has_levels = false;
  if (!same_range) state->display_lo = state->display_hi = 0;
  state->operations.push_back(text);
  std::copy(shape, shape + 3, state->shape);
  state->dtype = static_cast<DType>(out.scalar);
  state->bytes = out.bytes();
  return std::make_shared<const ArrayChain>(*std::move(planned));
}

}  // namespace octavo::model
