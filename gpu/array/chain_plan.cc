// Chains of operations, checked and taken apart into launches.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/chain_planner.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kMostFft = 1 << 24;

}  // namespace

Scalar RealOf(Scalar scalar) {
  return scalar == Scalar::kC128  ? Scalar::kF64
         : scalar == Scalar::kC64 ? Scalar::kF32
         : scalar == Scalar::kC32 ? Scalar::kF16
                                  : scalar;
}

Scalar FloatOf(Scalar scalar) {
  if (IsComplex(scalar)) return scalar == Scalar::kC128 ? Scalar::kC128 : Scalar::kC64;
  return scalar == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32;
}

absl::Status ChainPlanner::Plan(const Op& op, const std::string& field) {
  field_ = absl::StrCat(field, ".", NameOf(op));
  return std::visit([this](const auto& o) { return Do(o); }, op);
}

absl::Status ChainPlanner::Bad(absl::string_view name, const std::string& what) const {
  return InvalidField(absl::StrCat(field_, ".", name), what);
}

absl::Status ChainPlanner::NoComplex() const {
  if (!IsComplex(type.scalar)) return absl::OkStatus();
  return InvalidField(field_, absl::StrCat("has no meaning for complex numbers (",
                                           NameOf(type.scalar), "); scale with a part first"));
}

absl::StatusOr<int> ChainPlanner::Axis(absl::string_view name, int64_t axis) const {
  const int rank = type.rank();
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  return Bad(
      name, absl::StrCat("is ", axis, "; allowed ", -rank, " to ", rank - 1, " for ", type.Text()));
}

absl::StatusOr<std::vector<bool>> ChainPlanner::Axes(const std::vector<int64_t>& axes) const {
  std::vector<bool> chosen(type.dims.size(), axes.empty());
  for (const int64_t axis : axes) {
    OCTAVO_ASSIGN_OR_RETURN(const int a, Axis("axes", axis));
    if (chosen[static_cast<size_t>(a)])
      return Bad("axes", absl::StrCat("names axis ", a, " twice"));
    chosen[static_cast<size_t>(a)] = true;
  }
  return chosen;
}

absl::Status ChainPlanner::KnownScalar(Scalar scalar, absl::string_view where) {
  if (static_cast<int>(scalar) <= kMostScalar) return absl::OkStatus();
  return InvalidField(where, absl::StrCat("has the unknown value ", static_cast<int>(scalar)));
}

absl::Status ChainPlanner::Add(StepSpec spec, ArrayType out) {
  int64_t numbers = out.lanes;
  for (const int64_t d : out.dims) {
    if (d > most_numbers_ / numbers) {
      return WithInfo(InvalidField(field_, absl::StrCat("makes ", absl::StrJoin(out.dims, " x "),
                                                        " elements; allowed ", most_numbers_)),
                      {.reason = Reason::kTooManyElements,
                       .field = field_,
                       .numbers = {{"allowed", absl::StrCat(most_numbers_)}}});
    }
    numbers *= d;
  }
  chain.steps.push_back({.spec = std::move(spec), .out_bytes = out.bytes()});
  type = std::move(out);
  return absl::OkStatus();
}

absl::Status ChainPlanner::Gather(const int64_t (&extent)[4], const int64_t (&stride)[4],
                                  int64_t offset, ArrayType out) {
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

absl::Status ChainPlanner::Map(MapSpec spec, Scalar out) {
  ArrayType made = type;
  made.scalar = out;
  spec.in = type.scalar;
  spec.out = out;
  spec.count = type.numbers();
  return Add(spec, std::move(made));
}

int64_t ChainPlanner::Table(const void* data, size_t bytes) {
  const auto at = static_cast<size_t>(AlignedBytes(static_cast<int64_t>(chain.tables.size())));
  chain.tables.resize(at + bytes);
  std::memcpy(chain.tables.data() + at, data, bytes);
  return static_cast<int64_t>(at);
}

absl::Status ChainPlanner::Do(const FillOp& op) {
  if (op.value.im != 0 && !IsComplex(type.scalar))
    return Bad("imaginary", absl::StrCat("is given; the array is ", NameOf(type.scalar)));
  return Map({.add = op.value, .fill = true}, type.scalar);
}

absl::Status ChainPlanner::Do(const ScaleOp& op) {
  OCTAVO_RETURN_IF_ERROR(KnownScalar(op.scalar, absl::StrCat(field_, ".type")));
  if (op.part > math::Part::kPower)
    return Bad("part", absl::StrCat("has the unknown value ", static_cast<int>(op.part)));
  const Scalar out = op.scalar != Scalar{}         ? op.scalar
                     : op.part == math::Part::kAll ? type.scalar
                                                   : RealOf(type.scalar);
  if (op.part == math::Part::kAll && IsComplex(type.scalar) && !IsComplex(out)) {
    return Bad("type", absl::StrCat("is ", NameOf(out),
                                    ", the numbers are complex; say which part of them"));
  }
  if (!IsComplex(out) && (op.multiply.im != 0 || op.add.im != 0))
    return Bad("imaginary", absl::StrCat("is given; the result is ", NameOf(out)));
  return Map({.part = op.part, .multiply = op.multiply, .add = op.add}, out);
}

absl::Status ChainPlanner::Do(const CombineOp& op) {
  if (op.other >= others_.size()) return Bad("other", "is empty; name the second array");
  if (op.kind < Combination::kAdd || op.kind > Combination::kDivide) {
    return Bad("kind", absl::StrCat("is ", static_cast<int>(op.kind),
                                    "; allowed ADD, SUBTRACT, MULTIPLY, DIVIDE"));
  }
  const ArrayType& other = others_[op.other];
  const bool fits = other.lanes == type.lanes && other.rank() <= type.rank() &&
                    std::equal(other.dims.rbegin(), other.dims.rend(), type.dims.rbegin());
  if (!fits)
    return Bad("other", absl::StrCat("is ", other.Text(), "; ", type.Text(),
                                     " wants its own shape, or that of its last axes"));
  if (IsComplex(other.scalar) && !IsComplex(type.scalar)) {
    return Bad("other", absl::StrCat("is complex, ", type.Text(),
                                     " is not; scale the first to a complex type before"));
  }
  return Map({.other = other.scalar,
              .combination = op.kind,
              .other_index = op.other,
              .other_count = other.numbers()},
             type.scalar);
}

absl::Status ChainPlanner::Do(const FftOp& op) {
  OCTAVO_ASSIGN_OR_RETURN(const int axis, Axis("axis", op.axis));
  if (type.lanes != 1)
    return InvalidField(field_,
                        absl::StrCat("is not offered for elements of ", type.lanes, " lanes"));
  const int64_t n = type.dims[static_cast<size_t>(axis)];
  if (n > kMostFft) return Bad("axis", absl::StrCat("has ", n, " samples; allowed ", kMostFft));
  OCTAVO_RETURN_IF_ERROR(
      Map({.multiply = {op.inverse ? 1.0 / static_cast<double>(n) : 1.0, 0}}, Scalar::kC64));
  const ArrayType whole = type;
  const ArrayLayout layout(type);
  const int at = 3 - type.rank() + axis;
  const bool last =
      std::all_of(layout.extent + at + 1, layout.extent + 4, [](int64_t e) { return e == 1; });
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
    OCTAVO_RETURN_IF_ERROR(
        Add(FftSpec{.n = n, .rows = type.numbers() / n, .inverse = op.inverse}, whole));
    return Gather(layout.extent, back, 0, whole);
  }
  return Add(FftSpec{.n = n, .rows = type.numbers() / n, .inverse = op.inverse}, whole);
}

absl::StatusOr<ArrayChain> PlanChain(const std::vector<Op>& ops, const ArrayType& in,
                                     const std::vector<ArrayType>& others, bool in_place,
                                     const std::string& field, int64_t most_numbers) {
  if (ops.empty() || ops.size() > 16)
    return InvalidField(field, absl::StrCat("has ", ops.size(), " operations; allowed 1 to 16"));
  ChainPlanner planner(others, most_numbers);
  planner.type = in;
  planner.chain.in = in;
  planner.chain.others = others;
  for (size_t i = 0; i < ops.size(); ++i) {
    OCTAVO_RETURN_IF_ERROR(planner.Plan(ops[i], absl::StrCat(field, "[", i, "]")));
    planner.chain.after.push_back(planner.type);
  }
  // What reads places that others have written must not write where it reads.
  const auto moves = [](const PlannedOp& step) {
    const auto* map = std::get_if<MapSpec>(&step.spec);
    return map == nullptr || SizeOf(map->in) != SizeOf(map->out);
  };
  auto& steps = planner.chain.steps;
  const auto copies = std::count_if(steps.begin(), steps.end(), [](const auto& s) {
    return !std::holds_alternative<FftSpec>(s.spec);
  });
  // A second array that is the output as well must be read before the output is written: it is, by
  // steps before the last one.
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

}  // namespace octavo::inline gpu
