#include "gpu/array/chain_builder.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"

namespace octavo::inline gpu {

ChainBuilder::ChainBuilder(const ArrayType& in, const std::vector<ArrayType>& others,
                           int64_t most_numbers)
    : most_numbers_(most_numbers), type_(in) {
  chain_.in = in;
  chain_.others = others;
}

absl::Status ChainBuilder::BadOp(const std::string& what) const {
  return InvalidField(field_, what);
}

absl::Status ChainBuilder::Bad(absl::string_view name, const std::string& what) const {
  return InvalidField(absl::StrCat(field_, ".", name), what);
}

absl::Status ChainBuilder::NoComplex() const {
  if (!IsComplex(type_.scalar)) return absl::OkStatus();
  return BadOp(absl::StrCat("has no meaning for complex numbers (", NameOf(type_.scalar),
                            "); scale with a part first"));
}

absl::Status ChainBuilder::KnownScalar(Scalar scalar) const {
  if (static_cast<int>(scalar) <= kMostScalar) return absl::OkStatus();
  return Bad("type", absl::StrCat("has the unknown value ", static_cast<int>(scalar)));
}

absl::StatusOr<int> ChainBuilder::Axis(absl::string_view name, int64_t axis) const {
  const int rank = type_.rank();
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  return Bad(name, absl::StrCat("is ", axis, "; allowed ", -rank, " to ", rank - 1, " for ",
                                type_.Text()));
}

absl::StatusOr<std::vector<bool>> ChainBuilder::Axes(const std::vector<int64_t>& axes) const {
  std::vector<bool> chosen(type_.dims.size(), axes.empty());
  for (const int64_t axis : axes) {
    OCTAVO_ASSIGN_OR_RETURN(const int a, Axis("axes", axis));
    if (chosen[static_cast<size_t>(a)])
      return Bad("axes", absl::StrCat("names axis ", a, " twice"));
    chosen[static_cast<size_t>(a)] = true;
  }
  return chosen;
}

absl::Status ChainBuilder::Add(StepSpec spec, ArrayType out) {
  int64_t numbers = out.lanes;
  for (const int64_t d : out.dims) {
    if (d > most_numbers_ / numbers) {
      return WithInfo(BadOp(absl::StrCat("makes ", absl::StrJoin(out.dims, " x "),
                                         " elements; the result may have ", most_numbers_)),
                      {.reason = Reason::kTooManyElements,
                       .field = field_,
                       .numbers = {{"allowed", absl::StrCat(most_numbers_)}}});
    }
    numbers *= d;
  }
  chain_.steps.push_back({.spec = std::move(spec), .out_bytes = out.bytes()});
  type_ = std::move(out);
  return absl::OkStatus();
}

GatherSpec ChainBuilder::Elements(int64_t bytes, const int64_t (&extent)[4],
                                  const int64_t (&stride)[4]) {
  GatherSpec spec{.bytes = bytes};
  // Adjacent axes that lie in memory like a single one become one axis. Rows get longer, and an
  // element costs fewer divisions.
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
  return spec;
}

absl::Status ChainBuilder::Gather(const int64_t (&extent)[4], const int64_t (&stride)[4],
                                  int64_t offset, ArrayType out) {
  GatherSpec spec = Elements(SizeOf(type_.scalar), extent, stride);
  spec.offset = offset;
  return Add(spec, std::move(out));
}

absl::Status ChainBuilder::Map(MapSpec spec, Scalar out) {
  ArrayType made = type_;
  made.scalar = out;
  spec.in = type_.scalar;
  spec.out = out;
  spec.count = type_.numbers();
  return Add(spec, std::move(made));
}

int64_t ChainBuilder::AddTable(const void* data, size_t bytes) {
  const auto at = static_cast<size_t>(AlignedBytes(static_cast<int64_t>(chain_.tables.size())));
  chain_.tables.resize(at + bytes);
  std::memcpy(chain_.tables.data() + at, data, bytes);
  return static_cast<int64_t>(at);
}

ArrayChain ChainBuilder::Build() && {
  chain_.out = std::move(type_);
  return std::move(chain_);
}

}  // namespace octavo::inline gpu
