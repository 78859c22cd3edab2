// Chains of operations, checked and taken apart into launches.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "gpu/ops.h"
#include "gpu/ops_parts.h"

namespace octavo {
namespace {

constexpr int64_t kMostFft = 1 << 24;
constexpr int64_t kMostWeights = 1 << 26;  // of one axis of a resize: 12 bytes each, on the host, too

Scalar RealOf(Scalar scalar) {
  return scalar == Scalar::kC128 ? Scalar::kF64 : scalar == Scalar::kC64 ? Scalar::kF32 : scalar == Scalar::kC32 ? Scalar::kF16 : scalar;
}
// What means, deviations and interpolated values of `scalar` are kept as.
Scalar FloatOf(Scalar scalar) {
  if (IsComplex(scalar)) return scalar == Scalar::kC128 ? Scalar::kC128 : Scalar::kC64;
  return scalar == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32;
}

/// Four axes: dims, right-aligned, and lanes; strides in numbers.
struct Layout {
  int64_t extent[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
  explicit Layout(const ArrayType& type) {
    extent[3] = type.lanes;
    for (int d = 0; d < type.rank(); ++d) extent[3 - type.rank() + d] = type.dims[static_cast<size_t>(d)];
    int64_t step = 1;
    for (int d = 3; d >= 0; step *= extent[d--]) stride[d] = step;
  }
};

class Planner {
 public:
  Planner(const std::vector<ArrayType>& others, int64_t most_numbers) : others_(others), most_numbers_(most_numbers) {}

  absl::Status Plan(const ArrayOp& op, const std::string& field) {
    field_ = absl::StrCat(field, ".", NameOf(op));
    return std::visit([this](const auto& o) { return Do(o); }, op);
  }

  ArrayType type;
  ArrayChain chain;

 private:
  absl::Status Bad(absl::string_view name, const std::string& what) const { return InvalidField(absl::StrCat(field_, ".", name), what); }
  absl::Status NoComplex() const {
    if (!IsComplex(type.scalar)) return absl::OkStatus();
    return InvalidField(field_, absl::StrCat("has no meaning for complex numbers (", NameOf(type.scalar), "); scale with a part first"));
  }

  absl::StatusOr<int> Axis(absl::string_view name, int64_t axis) const {
    const int rank = type.rank();
    if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
    return Bad(name, absl::StrCat("is ", axis, "; allowed ", -rank, " to ", rank - 1, " for ", type.Text()));
  }
  absl::StatusOr<std::vector<bool>> Axes(const std::vector<int64_t>& axes) const {
    std::vector<bool> chosen(type.dims.size(), axes.empty());
    for (const int64_t axis : axes) {
      OCTAVO_ASSIGN_OR_RETURN(const int a, Axis("axes", axis));
      if (chosen[static_cast<size_t>(a)]) return Bad("axes", absl::StrCat("names axis ", a, " twice"));
      chosen[static_cast<size_t>(a)] = true;
    }
    return chosen;
  }
  static absl::Status KnownScalar(Scalar scalar, absl::string_view where) {
    if (static_cast<int>(scalar) <= kMostScalar) return absl::OkStatus();
    return InvalidField(where, absl::StrCat("has the unknown value ", static_cast<int>(scalar)));
  }

  /// The step makes `out` of what there is.
  template <class Spec>
  absl::Status Add(Spec spec, ArrayType out) {
    int64_t numbers = out.lanes;
    for (const int64_t d : out.dims) {
      if (d > most_numbers_ / numbers) {
        return WithInfo(InvalidField(field_, absl::StrCat("makes ", absl::StrJoin(out.dims, " x "), " elements; allowed ", most_numbers_)),
                        {.reason = "TOO_MANY_ELEMENTS", .field = field_, .numbers = {{"allowed", absl::StrCat(most_numbers_)}}});
      }
      numbers *= d;
    }
    chain.steps.push_back({.spec = std::move(spec), .out_bytes = out.bytes()});
    type = std::move(out);
    return absl::OkStatus();
  }

  absl::Status Gather(const int64_t (&extent)[4], const int64_t (&stride)[4], int64_t offset, ArrayType out) {
    GatherSpec spec{.bytes = SizeOf(type.scalar), .offset = offset};
    // Axes that follow on from each other become one: long rows, few divisions.
    int at = 3;
    spec.out[3] = extent[3];
    spec.stride[3] = stride[3];
    for (int d = 2; d >= 0; --d) {
      if (extent[d] == 1) continue;
      if (spec.out[at] == 1) {
        spec.out[at] = extent[d];
        spec.stride[at] = stride[d];
      } else if (stride[d] == spec.out[at] * spec.stride[at]) {
        spec.out[at] *= extent[d];
      } else {
        spec.out[--at] = extent[d];
        spec.stride[at] = stride[d];
      }
    }
    return Add(spec, std::move(out));
  }
  absl::Status Map(MapSpec spec, Scalar out) {
    ArrayType made = type;
    made.scalar = out;
    spec.in = type.scalar;
    spec.out = out;
    spec.count = type.numbers();
    return Add(spec, std::move(made));
  }

  // Axes that are run over, of the range [begin, end) of the only one if `end` is given.
  AxesSpec Split(const std::vector<bool>& chosen, int64_t begin, int64_t end) const {
    Layout layout(type);
    struct Part {
      int64_t extent, stride;
      bool run;
    };
    std::vector<Part> parts;
    AxesSpec out;
    for (int d = 0; d < 4; ++d) {
      const int axis = d - (3 - type.rank());
      const bool run = axis >= 0 && d < 3 && chosen[static_cast<size_t>(axis)];
      if (run && end > begin) {
        layout.extent[d] = end - begin;
        out.offset = begin * layout.stride[d];
      }
      if (layout.extent[d] == 1) continue;
      const Part part{layout.extent[d], layout.stride[d], run};
      if (!parts.empty() && parts.back().run == run && parts.back().stride == part.extent * part.stride) {
        parts.back() = {parts.back().extent * part.extent, part.stride, run};
      } else {
        parts.push_back(part);
      }
    }
    // Kept and run axes alternate now: of four at most two of a kind. The later one is the inner one.
    int kept = 1, ran = 1;
    for (auto it = parts.rbegin(); it != parts.rend(); ++it) {
      int& at = it->run ? ran : kept;
      (it->run ? out.run : out.keep)[at] = it->extent;
      (it->run ? out.run_stride : out.keep_stride)[at--] = it->stride;
    }
    return out;
  }
  std::vector<int64_t> Without(const std::vector<bool>& chosen, bool keep_dims) const {
    std::vector<int64_t> dims;
    for (size_t d = 0; d < type.dims.size(); ++d) {
      if (!chosen[d]) dims.push_back(type.dims[d]);
      if (chosen[d] && keep_dims) dims.push_back(1);
    }
    if (dims.empty()) dims.push_back(1);
    return dims;
  }

  absl::Status Reduce(math::Reduction kind, math::Part part, const AxesSpec& axes, bool skip_nan, Scalar out, std::vector<int64_t> dims) {
    const bool ordered = kind != math::Reduction::kSum && kind != math::Reduction::kMean;
    if (ordered && part == math::Part::kAll) OCTAVO_RETURN_IF_ERROR(NoComplex());
    const Scalar in = part == math::Part::kAll ? type.scalar : RealOf(type.scalar);
    if (out == Scalar{}) {
      const bool extreme = kind == math::Reduction::kMin || kind == math::Reduction::kMax;
      out = extreme ? in : kind == math::Reduction::kSum && IsIntegral(in) ? Scalar::kF64 : FloatOf(in);
      // A magnitude of half-precision numbers is stored as one; it is not made of f16 alone.
      if (extreme && part != math::Part::kAll && IsComplex(type.scalar)) out = FloatOf(in);
    }
    if (IsComplex(in) && !IsComplex(out)) return Bad("type", absl::StrCat("is ", NameOf(out), "; the result is complex"));
    ReduceSpec spec{.in = type.scalar, .out = out, .part = part, .kind = kind, .skip_nan = skip_nan, .axes = axes};
    spec.parts = std::clamp<int64_t>(65536 / axes.results(), 1, std::max<int64_t>(1, axes.length() / 1024));
    return Add(spec, {.scalar = out, .lanes = type.lanes, .dims = std::move(dims)});
  }

  absl::Status Do(const CopyOp&) {
    const Layout layout(type);
    return Gather(layout.extent, layout.stride, 0, type);
  }
  absl::Status Do(const FillOp& op) {
    if (op.value.im != 0 && !IsComplex(type.scalar)) return Bad("imaginary", absl::StrCat("is given; the array is ", NameOf(type.scalar)));
    return Map({.add = op.value, .fill = true}, type.scalar);
  }

  absl::Status Do(const CropOp& op) {
    Layout layout(type);
    int64_t offset = 0;
    ArrayType out = type;
    for (const auto& [name, values] : {std::pair{"start", &op.start}, std::pair{"count", &op.count}}) {
      if (!values->empty() && values->size() != type.dims.size()) {
        return Bad(name, absl::StrCat("has ", values->size(), " numbers; allowed none or ", type.dims.size(), " for ", type.Text()));
      }
    }
    for (size_t d = 0; d < type.dims.size(); ++d) {
      const int64_t extent = type.dims[d], start = op.start.empty() ? 0 : op.start[d];
      if (start < 0 || start >= extent) return Bad("start", absl::StrCat("[", d, "] is ", start, "; allowed 0 to ", extent - 1));
      const int64_t count = op.count.empty() || op.count[d] == 0 ? extent - start : op.count[d];
      if (count < 1 || count > extent - start) return Bad("count", absl::StrCat("[", d, "] is ", count, "; allowed 1 to ", extent - start));
      const size_t at = 3 - type.dims.size() + d;
      layout.extent[at] = out.dims[d] = count;
      offset += start * layout.stride[at];
    }
    return Gather(layout.extent, layout.stride, offset, std::move(out));
  }

  absl::Status Do(const ScaleOp& op) {
    OCTAVO_RETURN_IF_ERROR(KnownScalar(op.scalar, absl::StrCat(field_, ".type")));
    if (op.part > math::Part::kPower) return Bad("part", absl::StrCat("has the unknown value ", static_cast<int>(op.part)));
    const Scalar out = op.scalar != Scalar{} ? op.scalar : op.part == math::Part::kAll ? type.scalar : RealOf(type.scalar);
    if (op.part == math::Part::kAll && IsComplex(type.scalar) && !IsComplex(out)) {
      return Bad("type", absl::StrCat("is ", NameOf(out), ", the numbers are complex; say which part of them"));
    }
    if (!IsComplex(out) && (op.multiply.im != 0 || op.add.im != 0)) return Bad("imaginary", absl::StrCat("is given; the result is ", NameOf(out)));
    return Map({.part = op.part, .multiply = op.multiply, .add = op.add}, out);
  }

  absl::Status Do(const CombineOp& op) {
    if (op.other >= others_.size()) return Bad("other", "is empty; name the second array");
    if (op.kind < Combination::kAdd || op.kind > Combination::kDivide) {
      return Bad("kind", absl::StrCat("is ", static_cast<int>(op.kind), "; allowed ADD, SUBTRACT, MULTIPLY, DIVIDE"));
    }
    const ArrayType& other = others_[op.other];
    const bool fits =
        other.lanes == type.lanes && other.rank() <= type.rank() && std::equal(other.dims.rbegin(), other.dims.rend(), type.dims.rbegin());
    if (!fits) return Bad("other", absl::StrCat("is ", other.Text(), "; ", type.Text(), " wants its own shape, or that of its last axes"));
    if (IsComplex(other.scalar) && !IsComplex(type.scalar)) {
      return Bad("other", absl::StrCat("is complex, ", type.Text(), " is not; scale the first to a complex type before"));
    }
    return Map({.other = other.scalar, .combination = op.kind, .other_index = op.other, .other_count = other.numbers()}, type.scalar);
  }

  absl::Status Do(const ReduceOp& op) {
    OCTAVO_RETURN_IF_ERROR(KnownScalar(op.scalar, absl::StrCat(field_, ".type")));
    if (op.kind < math::Reduction::kSum || op.kind > math::Reduction::kStd) {
      return Bad("kind", absl::StrCat("is ", static_cast<int>(op.kind), "; allowed SUM, MIN, MAX, MEAN, STD"));
    }
    if (op.part > math::Part::kPower) return Bad("part", absl::StrCat("has the unknown value ", static_cast<int>(op.part)));
    OCTAVO_ASSIGN_OR_RETURN(const auto chosen, Axes(op.axes));
    return Reduce(op.kind, op.part, Split(chosen, 0, 0), op.skip_nan, op.scalar, Without(chosen, op.keep_dims));
  }

  absl::Status Do(const SlabOp& op) {
    if (op.kind < math::Reduction::kSum || op.kind > math::Reduction::kStd) {
      return Bad("kind", absl::StrCat("is ", static_cast<int>(op.kind), "; allowed SUM, MIN, MAX, MEAN, STD"));
    }
    OCTAVO_ASSIGN_OR_RETURN(const int axis, Axis("axis", op.axis));
    const int64_t extent = type.dims[static_cast<size_t>(axis)], end = op.end == 0 ? extent : op.end;
    if (op.begin < 0 || op.begin >= extent) return Bad("begin", absl::StrCat("is ", op.begin, "; allowed 0 to ", extent - 1));
    if (end <= op.begin || end > extent) return Bad("end", absl::StrCat("is ", end, "; allowed ", op.begin + 1, " to ", extent));
    std::vector<bool> chosen(type.dims.size(), false);
    chosen[static_cast<size_t>(axis)] = true;
    const math::Part part = IsComplex(type.scalar) ? math::Part::kMagnitude : math::Part::kAll;
    return Reduce(op.kind, part, Split(chosen, op.begin, end), true, Scalar{}, Without(chosen, op.keep_dims));
  }

  absl::Status Do(const PercentileOp& op) {
    OCTAVO_RETURN_IF_ERROR(NoComplex());
    if (op.percentiles.empty() || op.percentiles.size() > 16) {
      return Bad("percentiles", absl::StrCat("has ", op.percentiles.size(), " numbers; allowed 1 to 16"));
    }
    SelectSpec spec{.in = type.scalar, .percentiles = static_cast<int>(op.percentiles.size())};
    for (size_t p = 0; p < op.percentiles.size(); ++p) {
      if (!(op.percentiles[p] >= 0 && op.percentiles[p] <= 100)) {
        return Bad("percentiles", absl::StrCat("[", p, "] is ", op.percentiles[p], "; allowed 0 to 100"));
      }
      spec.percentile[p] = op.percentiles[p];
    }
    OCTAVO_ASSIGN_OR_RETURN(const auto chosen, Axes(op.axes));
    spec.axes = Split(chosen, 0, 0);
    if (spec.axes.length() >= int64_t{1} << 32)
      return Bad("axes", absl::StrCat("make ", spec.axes.length(), " numbers a percentile; allowed below 2^32"));
    // f64 keys of numbers of few digits end in zeros (or ones, if negative).
    const int64_t size = SizeOf(type.scalar);
    spec.digits = size <= 2 ? 4 : type.scalar == Scalar::kF32 ? 5 : size == 4 ? 6 : 8;
    spec.out = size == 8 || spec.digits == 6 ? Scalar::kF64 : Scalar::kF32;
    ArrayType out{.scalar = spec.out, .lanes = type.lanes, .dims = Without(chosen, op.keep_dims && spec.percentiles == 1)};
    if (spec.percentiles > 1) {
      const bool all = std::find(chosen.begin(), chosen.end(), false) == chosen.end();
      if (all) out.dims.clear();
      out.dims.insert(out.dims.begin(), spec.percentiles);
    }
    return Add(spec, std::move(out));
  }

  absl::Status Do(const HistogramOp& op) {
    OCTAVO_RETURN_IF_ERROR(NoComplex());
    OCTAVO_RETURN_IF_ERROR(KnownScalar(op.scalar, absl::StrCat(field_, ".type")));
    if (op.bins < 1 || op.bins > 65536) return Bad("bins", absl::StrCat("is ", op.bins, "; allowed 1 to 65536"));
    HistogramSpec spec{.in = type.scalar, .count = type.numbers(), .bins = op.bins, .lo = op.lo, .hi = op.hi};
    if (!std::isfinite(op.lo)) return Bad("lo", "is not finite");
    if (!std::isfinite(op.hi)) return Bad("hi", "is not finite");
    if (!(op.lo < op.hi)) {
      const bool small = IsIntegral(type.scalar) && SizeOf(type.scalar) <= 2;
      if (!small || op.lo != 0 || op.hi != 0) {
        return Bad("hi", absl::StrCat("is ", op.hi, "; allowed above lo, which is ", op.lo, " (both 0: the whole range of 8- and 16-bit integers)"));
      }
      const double range = SizeOf(type.scalar) == 1 ? 256 : 65536;
      spec.lo = type.scalar == Scalar::kI8 || type.scalar == Scalar::kI16 ? -range / 2 : 0;
      spec.hi = spec.lo + range;
    }
    OCTAVO_RETURN_IF_ERROR(Add(spec, {.scalar = Scalar::kU64, .lanes = 1, .dims = {op.bins}}));
    return op.scalar == Scalar::kU64 || op.scalar == Scalar{} ? absl::OkStatus() : Map({}, op.scalar);
  }

  absl::Status Do(const FftOp& op) {
    OCTAVO_ASSIGN_OR_RETURN(const int axis, Axis("axis", op.axis));
    if (type.lanes != 1) return InvalidField(field_, absl::StrCat("is not offered for elements of ", type.lanes, " lanes"));
    const int64_t n = type.dims[static_cast<size_t>(axis)];
    if (n > kMostFft) return Bad("axis", absl::StrCat("has ", n, " samples; allowed ", kMostFft));
    OCTAVO_RETURN_IF_ERROR(Map({.multiply = {op.inverse ? 1.0 / static_cast<double>(n) : 1.0, 0}}, Scalar::kC64));
    const ArrayType whole = type;
    const Layout layout(type);
    const int at = 3 - type.rank() + axis;
    const bool last = std::all_of(layout.extent + at + 1, layout.extent + 4, [](int64_t e) { return e == 1; });
    // The axis goes last, so that a transform is a row; and back.
    if (!last) {
      const int order[4] = {at == 0 ? 1 : 0, at <= 1 ? 2 : 1, at, 3};
      int64_t extent[4], stride[4], back[4];
      int64_t step = 1;
      for (int d = 3; d >= 0; --d) {
        extent[d] = layout.extent[order[d]];
        stride[d] = layout.stride[order[d]];
        back[order[d]] = step;
        step *= extent[d];
      }
      OCTAVO_RETURN_IF_ERROR(Gather(extent, stride, 0, whole));
      OCTAVO_RETURN_IF_ERROR(Add(FftSpec{.n = n, .rows = type.numbers() / n, .inverse = op.inverse}, whole));
      return Gather(layout.extent, back, 0, whole);
    }
    return Add(FftSpec{.n = n, .rows = type.numbers() / n, .inverse = op.inverse}, whole);
  }

  absl::Status Do(const ResizeOp& op) {
    if (op.shape.size() != type.dims.size()) {
      return Bad("shape", absl::StrCat("has ", op.shape.size(), " numbers; allowed ", type.dims.size(), " for ", type.Text()));
    }
    const Scalar stored = type.scalar;
    std::vector<size_t> axes;
    for (size_t d = 0; d < op.shape.size(); ++d) {
      if (op.shape[d] < 0 || op.shape[d] > (1 << 20))
        return Bad("shape", absl::StrCat("[", d, "] is ", op.shape[d], "; allowed 0 (as it is) to 2^20"));
      if (op.shape[d] != 0 && op.shape[d] != type.dims[d]) axes.push_back(d);
    }
    if (axes.empty()) return Do(CopyOp{});
    for (const size_t axis : axes) {
      const int64_t n = type.dims[axis], m = op.shape[axis];
      const int64_t radius = ResizeRadius(op, n, m);
      if (radius > (1 << 16))
        return Bad("shape", absl::StrCat("[", axis, "] is ", m, ", which smooths over more than 2^17 samples; allowed from ", n >> 15));
      if (m * ResizeTaps(radius) > kMostWeights) {
        return Bad("shape", absl::StrCat("[", axis, "] is ", m, ", which takes ", m * ResizeTaps(radius), " weights; allowed ", kMostWeights,
                                         " (shrink without anti_aliasing)"));
      }
      TapsSpec spec{.in = type.scalar, .out = axis == axes.back() ? stored : FloatOf(type.scalar), .n = n, .m = m, .taps = ResizeTaps(radius)};
      spec.inner = type.lanes;
      for (size_t d = 0; d < type.dims.size(); ++d) (d < axis ? spec.outer : spec.inner) *= d == axis ? 1 : type.dims[d];
      const AxisTaps taps = TapsOfResize(op, n, m);
      spec.index_offset = Table(taps.index.data(), taps.index.size() * sizeof taps.index[0]);
      spec.weight_offset = Table(taps.weight.data(), taps.weight.size() * sizeof taps.weight[0]);
      ArrayType out = type;
      out.scalar = spec.out;
      out.dims[axis] = m;
      OCTAVO_RETURN_IF_ERROR(Add(spec, std::move(out)));
    }
    return absl::OkStatus();
  }
  int64_t Table(const void* data, size_t bytes) {
    const auto at = static_cast<size_t>(AlignedBytes(static_cast<int64_t>(chain.tables.size())));
    chain.tables.resize(at + bytes);
    std::memcpy(chain.tables.data() + at, data, bytes);
    return static_cast<int64_t>(at);
  }

  absl::Status Do(const FlipOp& op) {
    OCTAVO_ASSIGN_OR_RETURN(const auto chosen, Axes(op.axes));
    Layout layout(type);
    int64_t offset = 0;
    for (size_t d = 0; d < chosen.size(); ++d) {
      const size_t at = 3 - chosen.size() + d;
      if (!chosen[d]) continue;
      offset += (layout.extent[at] - 1) * layout.stride[at];
      layout.stride[at] = -layout.stride[at];
    }
    return Gather(layout.extent, layout.stride, offset, type);
  }

  absl::Status Do(const TransposeOp& op) {
    std::vector<int64_t> axes = op.axes;
    if (axes.empty()) {
      for (int d = type.rank() - 1; d >= 0; --d) axes.push_back(d);
    }
    if (axes.size() != type.dims.size()) return Bad("axes", absl::StrCat("has ", axes.size(), " numbers; allowed none or ", type.dims.size()));
    OCTAVO_RETURN_IF_ERROR(Axes(axes).status());
    const Layout layout(type);
    int64_t extent[4] = {1, 1, 1, layout.extent[3]}, stride[4] = {0, 0, 0, layout.stride[3]};
    ArrayType out = type;
    const size_t first = 3 - axes.size();
    for (size_t d = 0; d < axes.size(); ++d) {
      OCTAVO_ASSIGN_OR_RETURN(const int from, Axis("axes", axes[d]));
      extent[first + d] = layout.extent[first + static_cast<size_t>(from)];
      stride[first + d] = layout.stride[first + static_cast<size_t>(from)];
      out.dims[d] = type.dims[static_cast<size_t>(from)];
    }
    return Gather(extent, stride, 0, std::move(out));
  }

  const std::vector<ArrayType>& others_;
  const int64_t most_numbers_;
  std::string field_;
};

}  // namespace

absl::StatusOr<ArrayChain> PlanChain(const std::vector<ArrayOp>& ops, const ArrayType& in, const std::vector<ArrayType>& others, bool in_place,
                                     const std::string& field, int64_t most_numbers) {
  if (ops.empty() || ops.size() > 16) return InvalidField(field, absl::StrCat("has ", ops.size(), " operations; allowed 1 to 16"));
  Planner planner(others, most_numbers);
  planner.type = in;
  planner.chain.in = in;
  planner.chain.others = others;
  for (size_t i = 0; i < ops.size(); ++i) {
    OCTAVO_RETURN_IF_ERROR(planner.Plan(ops[i], absl::StrCat(field, "[", i, "]")));
    planner.chain.after.push_back(planner.type);
  }
  // What reads places that others have written must not write where it reads.
  const auto moves = [](const ArrayStep& step) {
    const auto* map = std::get_if<MapSpec>(&step.spec);
    return map == nullptr || SizeOf(map->in) != SizeOf(map->out);
  };
  auto& steps = planner.chain.steps;
  const auto copies = std::count_if(steps.begin(), steps.end(), [](const auto& s) { return !std::holds_alternative<FftSpec>(s.spec); });
  // A second array that is the output as well must be read before the output is written: it is, by steps before the last one.
  const bool reads_other = std::any_of(steps.begin(), steps.end(), [](const auto& s) {
    const auto* map = std::get_if<MapSpec>(&s.spec);
    return map != nullptr && map->combination != Combination::kNone;
  });
  if (in_place && ((copies == 1 && moves(steps[0])) || reads_other)) {
    OCTAVO_RETURN_IF_ERROR(planner.Plan(CopyOp{}, field));
  }
  planner.chain.out = planner.type;
  return std::move(planner.chain);
}

}  // namespace octavo
