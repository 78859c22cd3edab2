// Breaks a chain of operations down into steps.

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {

absl::StatusOr<ArrayChain> PlanChain(const std::vector<Op>& ops, const ArrayType& in,
                                     const std::vector<ArrayType>& others, bool in_place,
                                     const std::string& field, int64_t most_numbers) {
  if (ops.empty() || ops.size() > 16)
    return InvalidField(field, absl::StrCat("has ", ops.size(), " operations; allowed 1 to 16"));
  ChainBuilder chain(in, others, most_numbers);
  const auto plan = [&](const Op& op, const std::string& at) {
    chain.BeginOp(absl::StrCat(at, ".", NameOf(op)));
    return std::visit([&](const auto& o) { return PlanOp(o, &chain); }, op);
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    OCTAVO_RETURN_IF_ERROR(plan(ops[i], absl::StrCat(field, "[", i, "]")));
    chain.EndOp();
  }
  // A step that writes to its own input must not overwrite an element before another thread reads
  // it. So a chain that works in place ends with a copy if its only step beside Fourier transforms
  // moves elements or changes their size.
  const auto moves = [](const PlannedOp& step) {
    const auto* map = std::get_if<MapSpec>(&step.spec);
    const auto* function = std::get_if<FunctionSpec>(&step.spec);
    if (map != nullptr) return SizeOf(map->in) != SizeOf(map->out);
    return function == nullptr || SizeOf(function->in) != SizeOf(FloatOf(function->in));
  };
  const auto& steps = chain.steps();
  const auto copies = std::count_if(steps.begin(), steps.end(), [](const auto& s) {
    return !std::holds_alternative<FftSpec>(s.spec);
  });
  // A second array may be the output as well. The copy at the end ensures that the chain reads it
  // before it writes the output.
  const bool reads_other = std::any_of(steps.begin(), steps.end(), [](const auto& step) {
    const std::vector<ArrayRef> read = OthersOf(step);
    return std::any_of(read.begin(), read.end(), [](ArrayRef other) { return other.given(); });
  });
  if (in_place && ((copies == 1 && moves(steps[0])) || reads_other))
    OCTAVO_RETURN_IF_ERROR(plan(CopyOp{}, field));
  return std::move(chain).Build();
}

}  // namespace octavo::inline gpu
